"""ConsSent on 500,000 sentences: transfer scores after 2,000 to 16,000 batches beside the untrained encoder of the same size.

    python experiments/conssent/slope.py --data DIR --vectors glove.6B.50d.npz \\
        --workdir runs/conssent_slope --hidden 128

The paper trains on 15 million sentences; what a study of this size can show is whether the score rises with the number of batches.
Tasks D(5) and N(3), two seeds, Adam; D(5) with the published SGD beside it. Batches are random. Held-out accuracy, which lowers the
rate, is measured after each multiple of the first number of steps. A run or score that is there is not repeated. Writes slope.csv
and slope.png here (a row of each task, and one of their average), and prints the table; rows of other runs are kept.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from run import HERE, RATE, TASKS

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import kept_rows, parse, write_rows

RESULTS = HERE / "slope.csv"
STEPS = (2000, 4000, 8000, 16_000)
SGD = ("--config.optimizer.name=sgd", "--config.optimizer.learning_rate=1.0", "--config.optimizer.plateau_factor=0.2")
RUNS = {  # name: task, k, optimiser
    "D(5)": ("D", 5, RATE),
    "N(3)": ("N", 3, RATE),
    "D(5), SGD": ("D", 5, SGD),
}
UNTRAINED, AVERAGE = "untrained", "average"


def folder(options, name, seed):
    return options.workdir / f"{''.join(letter for letter in name if letter.isalnum())}-{seed}"


def command(options, name, seed, steps):
    task, k, rate = RUNS.get(name, RUNS["D(5)"])
    return [
        sys.executable, "-m", "jax_sentemb.main", "--config=configs/cons_sent.py", *rate,
        f"--config.method.hidden={options.hidden}", f"--config.method.classifier_width={options.hidden}",
        f"--config.method.task={task}", f"--config.method.k={k}",
        f"--config.train.max_steps={steps}", f"--config.train.seed={seed}",
        f"--config.data.files={options.corpus}", f"--config.encoder.vectors={options.vectors}", "--config.data.validation=2048",
        f"--config.eval.eval_steps={options.steps[0]}", f"--config.train.save_steps={options.steps[0]}",
        f"--config.train.keep_checkpoints={options.steps[-1] // options.steps[0]}", "--config.train.logging_steps=100",
        "--workdir", str(folder(options, name, seed)),
    ]  # fmt: skip


def train(options):
    """Yields (label of a model, its export) as runs finish."""
    for seed in options.seeds:
        for name in (UNTRAINED, *options.models):
            run = folder(options, name, seed)
            if not (run / "scores.json").exists():
                print(f"== {name}, seed {seed}", flush=True)
                subprocess.run(command(options, name, seed, 0 if name == UNTRAINED else options.steps[-1]), check=True)
            if name == UNTRAINED:
                yield f"{name};{seed};0", run / "export"
            for step in options.steps if name != UNTRAINED else ():
                output = run / f"export-{step}"
                if not output.exists():
                    export = ["export", "--workdir", str(run), "--step", str(step), "--output", str(output)]
                    subprocess.run([sys.executable, "-m", "jax_sentemb", *export], check=True)
                yield f"{name};{seed};{step}", output


def evaluate(options, label, model):
    """{task: score} of a model."""
    output = model.parent / f"scores-{model.name}"
    if not (output / "tables.md").exists():
        named = ["--model", f"{label}={model}", "--data", options.senteval, "--tasks", ",".join(TASKS)]
        tasks = ["--classifier", "senteval_prototyping", "--output", str(output)]
        subprocess.run([sys.executable, "-m", "jax_sentemb", "evaluate", *named, *tasks], check=True)
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(output.glob("*/*.json"))]
    return {one["task"]: one["scores"].get("accuracy", one["scores"].get("pearson")) for one in found}


def table(rows, steps):
    """The average of the tasks over the seeds, by model and number of batches."""
    lines = ["| | " + " | ".join(f"{step:,}" for step in steps) + " |", "|---|" + "--:|" * len(steps)]
    for name in (UNTRAINED, *RUNS):
        cells = []
        for step in steps:
            seeds = by_seed(rows, name, 0 if name == UNTRAINED else step)
            spread = f" ± {statistics.stdev(seeds):.1f}" if len(seeds) > 1 else ""
            cells.append(f"{statistics.mean(seeds):.1f}{spread}" if seeds else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def by_seed(rows, name, step):
    return [float(score) for model, _, at, task, score in rows if (model, int(at), task) == (name, step, AVERAGE)]


def plot(rows, steps):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    for name in RUNS:
        if all(by_seed(rows, name, step) for step in steps):
            panel.plot(steps, [statistics.mean(by_seed(rows, name, step)) for step in steps], marker="o", label=name)
    panel.axhline(statistics.mean(by_seed(rows, UNTRAINED, 0)), color="grey", linestyle="--", label=UNTRAINED)
    panel.set_xlabel("batches of 64 sentences")
    panel.set_ylabel(f"mean of {len(TASKS)} tasks")
    figure.legend(loc="outside upper center", ncols=4)
    figure.savefig(HERE / "slope.png", dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--workdir", type=Path, default=Path("runs/conssent_slope"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--models", nargs="+", default=[*RUNS], choices=[*RUNS], metavar="NAME", help="only these")
    parser.add_argument("--hidden", type=int, default=256, help="units in each direction")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="scored after these, multiples of the first")
    options = parse(parser, corpus="corpora/wiki_sentences.txt.xz", senteval="senteval")
    found, rows = [], []
    for label, model in train(options):
        scores = evaluate(options, label, model)
        scores[AVERAGE] = statistics.mean(scores.values())
        found += [(*label.split(";"), task, score) for task, score in scores.items()]
        rows = kept_rows(RESULTS, found, "score") + found
        write_rows(RESULTS, [(*row[:4], f"{row[4]:.2f}") for row in rows], ("model", "seed", "step", "task", "score"))
    plot(rows, options.steps)
    print(table(rows, options.steps))


if __name__ == "__main__":
    main()
