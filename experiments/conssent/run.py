"""ConsSent: the six tasks, multitask and ensemble, beside the baselines, on transfer and probing tasks; and a sweep of k.

    python experiments/conssent/run.py --data DIR --vectors glove.6B.50d.npz \\
        --probing probing --workdir runs/conssent
    python experiments/conssent/run.py --workdir runs/conssent --tables-only

`--seeds 1 2 3 4 5 --no-sweep` trains everything but the sweep of k with each seed, in a folder of its own below the work directory.
`--models "InferSent (labels)" "GloVe average"` limits this to rows of the tables. A run or score that is there is not repeated.
Writes results.csv, results.md and k_sweep.png here; other rows are kept.
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
RESULTS = HERE / "results.csv"
BEST = {"D(5)": ("D", 5), "P(3)": ("P", 3), "I(3)": ("I", 3), "R(2)": ("R", 2), "N(3)": ("N", 3), "C(4)": ("C", 4)}
KS = (1, 2, 3, 4, 5)
SWEEP = {f"small D({k})": ("D", k) for k in KS}  # a smaller encoder, half as long
TASKS = ("CR", "TREC", "MRPC", "SICKEntailment", "SICKRelatedness", "STSBenchmark")
PROBING = ("Length", "WordContent", "BigramShift")
NLI = ("snli-dev", "snli-test", "snli_counterfactual", "mnli-train_sample", "mnli-test_sample")
FILES = {
    "corpus": "corpora/wiki_sentences.txt.xz",
    "ordered": "corpora/ordered_wiki.txt.xz",
    "nli": ",".join(f"corpora/nli_{name}.tsv.xz" for name in NLI),
    "senteval": "senteval",
}
STEPS = 2000
SEED = 42  # of the recipes
SIZE = ("--config.method.hidden=256", "--config.method.classifier_width=256")
RATE = ("--config.optimizer.name=adamw", "--config.optimizer.learning_rate=1e-3", "--config.optimizer.lr_scheduler_type=constant",
        "--config.optimizer.plateau_factor=0.2")  # fmt: skip
HELD_OUT = ("--config.data.validation=2048", "--config.eval.eval_steps=500")
LENGTH = (f"--config.train.max_steps={STEPS}", "--config.train.save_steps=0", "--config.train.logging_steps=100",
          "--config.data.batch_size=64")  # fmt: skip


def replaced(flags, *more):
    """Return the flags with `more`, which replace flags of the same settings."""
    names = {flag.partition("=")[0] for flag in more}
    return (*(flag for flag in flags if flag.partition("=")[0] not in names), *more)


def runs(options):
    """Name -> flags."""
    shuffled, ordered = f"--config.data.files={options.corpus}", f"--config.data.files={options.ordered}"
    subset = "--config.data.subset=150000"
    common = (f"--config.encoder.vectors={options.vectors}", *LENGTH, "--config.data.length_grouping=32")
    config = "--config=configs/cons_sent.py"
    sweep = {} if options.no_sweep else SWEEP
    found = {
        name: (config, shuffled, subset, f"--config.method.task={task}", f"--config.method.k={k}", *SIZE, *RATE, *HELD_OUT, *common)
        for name, (task, k) in (BEST | sweep).items()
    }
    for name in sweep:
        found[name] = replaced(
            found[name],
            "--config.method.hidden=64",
            "--config.method.classifier_width=64",
            f"--config.train.max_steps={STEPS // 2}",
        )
    found["untrained"] = replaced(found["R(2)"], "--config.train.max_steps=0")
    multitask = ("--config=configs/cons_sent_multitask.py", "--config.method.hidden=128", "--config.method.classifier_width=256")
    found["MT(3)"] = (*multitask, shuffled, subset, *RATE, *HELD_OUT, *common)
    half = f"--config.train.max_steps={STEPS // 2}"  # slow ones: a score for each word, two sentences a pair
    language_model = (
        "--config=configs/language_model.py", shuffled, subset, "--config.method.hidden=512", "--config.encoder.hidden_size=128",
        "--config.encoder.max_words=20000", "--config.method.candidates=2048", *LENGTH, *HELD_OUT,
    )  # fmt: skip
    found["language model"] = replaced(language_model, half)
    found["QuickThoughts"] = (
        "--config=configs/quick_thoughts.py", ordered, "--config.method.hidden=128", *HELD_OUT, *common,
    )  # fmt: skip
    nli = f"--config.data.files={options.nli}"
    labelled = ("--config=configs/infer_sent.py", nli, *SIZE, *RATE, *HELD_OUT, *common)
    found["InferSent (labels)"] = replaced(labelled, half)
    return {name: flags for name, flags in found.items() if wanted(options, name)}


def wanted(options, name):
    """Return whether a row of the tables is trained and scored."""
    return not options.models or name in options.models


def workdir(options):
    """Return the folder of the current seed."""
    return options.workdir / f"seed-{options.seed}" if options.seed != SEED else options.workdir


def folder(options, name):
    return workdir(options) / "".join(letter for letter in name.replace(" ", "_") if letter not in "()")


def train(options):
    for name, flags in runs(options).items():
        if (folder(options, name) / "scores.json").exists():
            continue
        print(f"== {name}", flush=True)
        seed = (f"--config.train.seed={options.seed}", f"--config.data.subset_seed={options.seed if options.seed != SEED else 0}")
        command = [sys.executable, "-m", "jax_sentemb.main", *flags, *seed, "--workdir", str(folder(options, name))]
        subprocess.run(command, check=True)


def evaluate(options):
    """The six with their ensemble, and each of the others; on both groups of tasks."""
    models = {name: folder(options, name) for name in runs(options)}
    if "untrained" in models:
        models["untrained"] /= "export"  # a run of no steps has no checkpoint
    if wanted(options, "GloVe average"):
        models["GloVe average"] = options.vectors
    six = {name: models.pop(name) for name in BEST} if models.keys() >= BEST.keys() else {}
    groups = [("six", six, ["--ensemble"])] if six else []
    groups += [(folder(options, name).name, {name: model}, []) for name, model in models.items()]
    for stage, data, tasks in (("transfer", options.senteval, TASKS), ("probing", options.probing, PROBING)):
        for label, models, more in groups:
            output = workdir(options) / f"{stage}-{label}"
            if not data or (output / "tables.md").exists():
                continue
            named = [argument for name, model in models.items() for argument in ("--model", f"{name}={model}")]
            command = [sys.executable, "-m", "jax_sentemb", "evaluate", *named, *more, "--data", data, "--tasks", ",".join(tasks)]
            subprocess.run([*command, "--classifier", "senteval_prototyping", "--output", str(output)], check=True)


def collect(options):
    """(stage, model, task, score) of everything that is there of a seed; and the accuracy on each method's own task."""
    found = []
    for stage, tasks in (("transfer", TASKS), ("probing", PROBING)):
        scores = {}
        for file in sorted(workdir(options).glob(f"{stage}-*/*/*.json")):
            content = json.loads(file.read_text(encoding="utf-8"))
            values = content["scores"]
            scores.setdefault(content["model"], {})[content["task"]] = values.get("accuracy", values.get("pearson"))
        order = [
            *BEST,
            "MT(3)",
            "ensemble",
            "untrained",
            "GloVe average",
            "language model",
            "QuickThoughts",
            "InferSent (labels)",
            *SWEEP,
        ]
        for model in (name for name in order if len(scores.get(name, {})) == len(tasks)):
            found += [(stage, model, task, scores[model][task]) for task in tasks]
            found.append((stage, model, "average", statistics.mean(scores[model].values())))
    for name in (*BEST, *SWEEP, "MT(3)", "QuickThoughts", "InferSent (labels)"):
        log = folder(options, name) / "metrics.jsonl"
        if log.exists():
            events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
            best = max((100 * event["validation/accuracy"] for event in events if "validation/accuracy" in event), default=0.0)
            found.append(("own task", name, "held-out accuracy", best))
    return found


def tables(found):
    lines = []
    for stage in dict.fromkeys(row[0] for row in found):
        part = by_cell([row[1:] for row in found if row[0] == stage])
        columns = list(dict.fromkeys(task for _, task in part))
        lines += [f"**{stage}**", "", "| | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]
        for model in dict.fromkeys(model for model, _ in part):
            lines.append(f"| {model} | " + " | ".join(mean(part[model, column]) for column in columns) + " |")
        lines.append("")
    return "\n".join(lines)


def by_cell(rows):
    """Return {(model, task): scores, one for each seed}."""
    values = {}
    for model, task, value in rows:
        values.setdefault((model, task), []).append(value)
    return values


def mean(values):
    """Return the mean over the seeds as text, with the standard deviation if there are several."""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def plot(found):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    scores = {cell: statistics.mean(values) for cell, values in by_cell([row[1:] for row in found]).items()}
    shown = [task for task in ("TREC", "MRPC", "STSBenchmark", *PROBING) if all((f"small D({k})", task) in scores for k in KS)]
    if not shown:
        return
    figure, panels = pyplot.subplots(1, len(shown), figsize=(2.6 * len(shown), 2.6), layout="constrained")
    for panel, task in zip(panels, shown, strict=True):
        panel.plot(KS, [scores[f"small D({k})", task] for k in KS], marker="o")
        panel.set_title(task, fontsize=10)
        panel.set_xlabel("k deleted words")
        panel.set_xticks(KS)
    panels[0].set_ylabel("accuracy, or Pearson x 100")
    figure.savefig(HERE / "k_sweep.png", dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", default="")
    parser.add_argument("--probing", default="", help="folder of experiments/probing_rebuilt/build.py")
    parser.add_argument("--workdir", type=Path, default=Path("runs/conssent"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[SEED], help="of training and of the subset of the text")
    parser.add_argument("--models", nargs="+", help="only these rows of the tables")
    parser.add_argument("--no-sweep", action="store_true", help="leave out the sweep of k")
    parser.add_argument("--tables-only", action="store_true")
    options = parse(parser, **FILES)
    if not options.tables_only:
        if not options.vectors:
            parser.error("--vectors is needed to train and score")
    found = []
    for seed in options.seeds:
        options.seed = seed
        if not options.tables_only:
            train(options)
            evaluate(options)
        found += [(seed, *row) for row in collect(options)]
    found = kept_rows(RESULTS, found, "score") + found
    write_rows(RESULTS, [(*row[:4], f"{row[4]:.4f}") for row in found], ("seed", "stage", "model", "task", "score"))
    found = [row[1:] for row in found]
    (HERE / "results.md").write_text(tables(found), encoding="utf-8")
    plot(found)
    print(tables(found))


if __name__ == "__main__":
    main()
