"""Multi-view: the discriminative and generative objectives and the ablations of Table 6, scored by view and by component removal.

    python experiments/multiview/run.py --corpus ordered_wiki.txt.xz --vectors glove.6B.50d.npz --senteval senteval \\
        --workdir runs/multiview
    python experiments/multiview/run.py --workdir runs/multiview --tables-only

A run or score that is there is not repeated. Writes results.csv and results.md here.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
from pathlib import Path

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
         "--config.train.max_steps=600", "--config.train.save_steps=0", "--config.train.logging_steps=50",
         "--config.eval.eval_steps=0")  # fmt: skip


def folder(options, name):
    return options.workdir / "".join(letter for letter in name.replace(" ", "_") if letter != ",")


def train(options):
    for name, flags in RUNS.items():
        if (folder(options, name) / "scores.json").exists():
            continue
        print(f"== {name}", flush=True)
        data = [f"--config.data.files={options.corpus}", f"--config.encoder.vectors={options.vectors}"]
        command = [sys.executable, "-m", "jax_sentemb.main", *FLAGS, *flags, *data, "--workdir", str(folder(options, name))]
        subprocess.run(command, check=True)


def evaluate(options):
    """Every view of every run, with and without removal; classifiers on the rich readout."""
    models = {"GloVe average": options.vectors}
    for name in RUNS:
        models[name] = str(folder(options, name))
        if VIEWS.get(name) == "fg":
            models |= {f"{name}: {view}": f"{folder(options, name)}@{view}" for view in "fg"}
        elif name in VIEWS:
            models[f"{name}: {VIEWS[name][0]}"] = f"{folder(options, name)}@{VIEWS[name][0]}"
    # Averages of two recurrent and two linear views need no first-and-last readout; only f has a last state.
    rich = {name: f"{folder(options, name)}@max+mean+min+last+concatenation+remove-first" for name in ("D", "G", "GD")}
    rich["GloVe average"] = f"{options.vectors}@remove-first"
    stages = (("multiview", models, ",".join(SETS), []), ("senteval", models, ",".join(SETS), []),
              ("supervised", rich, ",".join(SUPERVISED), ["--classifier", "senteval_prototyping"]))  # fmt: skip
    for stage, chosen, tasks, more in stages:
        output = options.workdir / f"scores-{stage}"
        if (output / "tables.md").exists():
            continue
        protocol = [] if stage == "supervised" else ["--sts-protocol", stage, "--resamples", "0"]
        named = [argument for name, model in chosen.items() for argument in ("--model", f"{name}={model}")]
        command = [sys.executable, "-m", "jax_sentemb", "evaluate", *named, *more, *protocol, "--data", options.senteval]
        subprocess.run([*command, "--tasks", tasks, "--output", str(output)], check=True)


def collect(options):
    """(table, model, column, score)."""
    found = []
    for stage, label in (("multiview", "removed"), ("senteval", "kept"), ("supervised", "supervised")):
        scores, columns = {}, SUPERVISED if stage == "supervised" else tuple(SETS.values())
        for file in sorted(options.workdir.glob(f"scores-{stage}/*/*.json")):
            content = json.loads(file.read_text(encoding="utf-8"))
            values = content["scores"]
            column = SETS.get(content["task"], content["task"])
            scores.setdefault(content["model"], {})[column] = values["score"] if "score" in values else values["accuracy"]
        scores = {model: row for model, row in scores.items() if len(row) == len(columns)}
        for model in sorted(scores, key=lambda name: (name != "GloVe average", name)):
            found += [(label, model, column, scores[model][column]) for column in columns]
            found.append((label, model, "average", statistics.mean(scores[model].values())))
    return found


def tables(found):
    titles = {"removed": "Unsupervised, Pearson x 100, first component removed", "kept": "The same, first component kept",
              "supervised": "Classifiers, accuracy"}  # fmt: skip
    lines = []
    for stage in dict.fromkeys(row[0] for row in found):
        part = {(model, column): value for kind, model, column, value in found if kind == stage}
        columns = list(dict.fromkeys(column for _, column in part))
        lines += [f"**{titles[stage]}**", "", "| | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]
        for model in dict.fromkeys(model for model, _ in part):
            lines.append(f"| {model} | " + " | ".join(f"{part[model, column]:.1f}" for column in columns) + " |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("corpus", "vectors", "senteval"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--workdir", type=Path, default=Path("runs/multiview"))
    parser.add_argument("--tables-only", action="store_true")
    options = parser.parse_args()
    if not options.tables_only:
        if not all((options.corpus, options.vectors, options.senteval)):
            parser.error("--corpus, --vectors and --senteval are needed to train and score")
        train(options)
        evaluate(options)
    found = collect(options)
    with (HERE / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["table", "model", "set", "score"])
        writer.writerows((*row[:3], f"{row[3]:.4f}") for row in found)
    (HERE / "results.md").write_text(tables(found), encoding="utf-8")
    print(tables(found))


if __name__ == "__main__":
    main()
