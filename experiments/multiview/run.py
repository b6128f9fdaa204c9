"""Multi-view: the discriminative and generative objectives and the ablations of Table 6, scored by view and by component removal.

    python experiments/multiview/run.py --data DIR --vectors glove.6B.50d.npz \\
        --workdir runs/multiview
    python experiments/multiview/run.py --workdir runs/multiview --tables-only

A run or score that is there is not repeated. Writes results.csv and results.md here. --vectors (of vectors.py), --steps,
--temperature, --seeds, --runs and --results make a longer study of some models (none is in the tables).
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import kept_rows, parse, write_rows

HERE = Path(__file__).parent
RUNS = {
    "D": (),
    "G": ("--config.method.form=generative",),
    "G without constraint": ("--config.method.form=generative", "--config.method.invertible=False"),
    "D, f alone": ("--config.method.views=f",),
    "D, g alone": ("--config.method.views=g",),
    "D, f-f": ("--config.method.views=ff",),
    "D, g-g": ("--config.method.views=gg",),
    "GD": ("--config.method.form=both",),
}
VIEWS = {"D": "fg", "G": "fg", "G without constraint": "fg", "GD": "fg", "D, f-f": "ff", "D, g-g": "gg"}
SETS = {"STS12": "12", "STS14": "14", "STS15": "15", "STSBenchmark-test": "STSB", "SICKRelatedness-test": "SICK"}
SUPERVISED = ("CR", "TREC", "MRPC")
FLAGS = ("--config=configs/multi_view.py", "--config.method.hidden=256", "--config.data.batch_size=256",
         "--config.train.logging_steps=50", "--config.eval.eval_steps=0")  # fmt: skip
AVERAGE = "word average"


def folder(options, name, seed):
    return options.workdir / ("".join(letter for letter in name.replace(" ", "_") if letter != ",") + (f"-{seed}" if seed else ""))


def chosen(options):
    """(name, seed) of every run; the seed "" is that of the recipe."""
    return [(name, seed) for seed in options.seeds for name in options.runs]


def labelled(name, seed):
    return f"{name} seed {seed}" if seed else name


def train(options):
    for name, seed in chosen(options):
        run = folder(options, name, seed)
        if (run / "scores.json").exists():
            continue
        print(f"== {labelled(name, seed)}", flush=True)
        data = [f"--config.data.files={options.corpus}", f"--config.encoder.vectors={options.vectors}", "--workdir", str(run)]
        more = [
            "--config.train.save_steps=0",
            f"--config.train.max_steps={options.steps}",
            f"--config.method.temperature={options.temperature}",
            *([f"--config.train.seed={seed}"] if seed else []),
        ]
        subprocess.run([sys.executable, "-m", "jax_sentemb.main", *FLAGS, *RUNS[name], *more, *data], check=True)


def evaluate(options):
    """Every view of every run, with and without removal; classifiers on the rich readout."""
    models, rich = {AVERAGE: options.vectors}, {AVERAGE: f"{options.vectors}@remove-first"}
    for name, seed in chosen(options):
        run, views = folder(options, name, seed), VIEWS.get(name, "")
        models[labelled(name, seed)] = str(run)
        models |= {labelled(f"{name}: {view}", seed): f"{run}@{view}" for view in dict.fromkeys(views)}
        # Averages of two recurrent and two linear views need no first-and-last readout; only f has a last state.
        if name in ("D", "G", "GD"):
            rich[labelled(name, seed)] = f"{run}@max+mean+min+last+concatenation+remove-first"
    stages = (("multiview", models, ",".join(SETS), []), ("senteval", models, ",".join(SETS), []),
              ("supervised", rich, ",".join(SUPERVISED), ["--classifier", "senteval_prototyping"]))  # fmt: skip
    for stage, some, tasks, more in stages:
        output = options.workdir / f"scores-{stage}"
        if (output / "tables.md").exists():
            continue
        protocol = [] if stage == "supervised" else ["--sts-protocol", stage, "--resamples", "0"]
        named = [argument for name, model in some.items() for argument in ("--model", f"{name}={model}")]
        command = [sys.executable, "-m", "jax_sentemb", "evaluate", *named, *more, *protocol, "--data", options.senteval]
        subprocess.run([*command, "--tasks", tasks, "--output", str(output)], check=True)


def collect(options):
    """(table, model, column, score, seed)."""
    found = []
    for stage, label in (("multiview", "removed"), ("senteval", "kept"), ("supervised", "supervised")):
        scores, columns = {}, SUPERVISED if stage == "supervised" else tuple(SETS.values())
        for file in sorted(options.workdir.glob(f"scores-{stage}/*/*.json")):
            content = json.loads(file.read_text(encoding="utf-8"))
            values = content["scores"]
            column = SETS.get(content["task"], content["task"])
            scores.setdefault(content["model"], {})[column] = values["score"] if "score" in values else values["accuracy"]
        scores = {model: row for model, row in scores.items() if len(row) == len(columns)}
        for name in sorted(scores, key=lambda name: (name != AVERAGE, name)):
            model, _, seed = name.partition(" seed ")
            found += [(label, model, column, scores[name][column], seed) for column in columns]
            found.append((label, model, "average", statistics.mean(scores[name].values()), seed))
    return found


def tables(found):
    titles = {"removed": "Unsupervised, Pearson x 100, first component removed", "kept": "The same, first component kept",
              "supervised": "Classifiers, accuracy"}  # fmt: skip
    lines = []
    for stage in dict.fromkeys(row[0] for row in found):
        part = [row for row in found if row[0] == stage]
        columns = list(dict.fromkeys(row[2] for row in part))
        lines += [f"**{titles[stage]}**", "", "| | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]
        for model in dict.fromkeys(row[1] for row in part):
            cells = [[value for _, name, task, value, _ in part if (name, task) == (model, column)] for column in columns]
            lines.append(f"| {model} | " + " | ".join(map(mean, cells)) + " |")
        lines.append("")
    return "\n".join(lines)


def mean(values):
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", default="")
    parser.add_argument("--workdir", type=Path, default=Path("runs/multiview"))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--temperature", type=float, default=1.0, help="at the start, of the discriminative models")
    parser.add_argument("--runs", nargs="+", default=[*RUNS], choices=[*RUNS])
    parser.add_argument("--seeds", nargs="+", default=[""], help="default: that of the recipe")
    parser.add_argument("--results", default="results", help="name of the CSV and of the tables beside this file")
    parser.add_argument("--tables-only", action="store_true")
    options = parse(parser, corpus="corpora/ordered_wiki.txt.xz", senteval="senteval")
    if not options.tables_only:
        if not options.vectors:
            parser.error("--vectors is needed to train and score")
        train(options)
        evaluate(options)
    found = collect(options)
    results = HERE / f"{options.results}.csv"
    found = kept_rows(results, found, "score") + found
    rows = [(*row[:3], f"{row[3]:.4f}", row[4]) for row in found]
    write_rows(results, rows, ("table", "model", "set", "score", "seed"))
    (HERE / f"{options.results}.md").write_text(tables(found), encoding="utf-8")
    print(tables(found))


if __name__ == "__main__":
    main()
