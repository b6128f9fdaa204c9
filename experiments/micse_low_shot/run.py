"""Low-shot training: SimCSE, AMI+SimCSE, MoCo+SimCSE and miCSE on 1,000 and 10,000 sentences, three seeds each.

    python experiments/micse_low_shot/run.py --corpus wiki_sentences.txt.xz --weights bert-mini --senteval senteval \\
        --workdir runs/micse_low_shot
    python experiments/micse_low_shot/run.py --workdir runs/micse_low_shot --tables-only

A run that has its scores.json is not repeated, one that was interrupted continues. Writes results.csv (every run), results.md (mean
and standard deviation over seeds) and results.png beside this file.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
METHODS = {"SimCSE": "simcse", "AMI+SimCSE": "simcse_ami", "MoCo+SimCSE": "simcse_moco", "miCSE": "micse"}
SIZES = (1000, 10000)
SEEDS = (0, 1, 2)
STEPS = 60
# Chosen on STS-B dev at 1,000 sentences, seed 0, as the paper chose it: `--tune` prints the scores.
AMI_WEIGHT = 10.0
TUNED = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
SHARED = (
    "--config.data.batch_size=64", f"--config.train.max_steps={STEPS}", "--config.optimizer.learning_rate=1e-5",
    "--config.optimizer.warmup_steps=0", "--config.eval.eval_steps=20", "--config.train.save_steps=0",
    "--config.train.precision=bfloat16",
)  # fmt: skip
SETS = {
    "STS12": "STS12",
    "STS14": "STS14",
    "STS15": "STS15",
    "STSb": "STSBenchmark-test",
    "SICK-R": "SICKRelatedness-test",
}


def runs():
    """(method, sentences, seed, work directory name, flags) of every run."""
    yield (
        "untrained",
        0,
        0,
        "untrained",
        ["--config", "configs/simcse.py", "--config.train.max_steps=0", "--config.data.subset=1000"],
    )
    for seed in SEEDS:
        for size in SIZES:
            for method, config in METHODS.items():
                flags = ["--config", f"configs/{config}.py", *SHARED, f"--config.data.subset={size}"]
                flags += [f"--config.data.subset_seed={seed}", f"--config.train.seed={seed}"]
                if "ami" in config or "micse" in config:
                    flags.append(f"--config.method.ami.weight={AMI_WEIGHT}")
                yield method, size, seed, f"{config}-{size}-{seed}", flags


def tuning():
    """As `runs`, for the weight of AMI."""
    for weight in TUNED:
        flags = [
            "--config",
            "configs/simcse_ami.py",
            *SHARED,
            "--config.data.subset=1000",
            f"--config.method.ami.weight={weight}",
        ]
        yield f"AMI weight {weight}", 1000, 0, f"tune-{weight}", flags


def train(options, chosen):
    for method, size, seed, name, flags in chosen:
        workdir = options.workdir / name
        if (workdir / "scores.json").exists():
            continue
        print(f"{method}, {size} sentences, seed {seed}", flush=True)
        data = [f"--config.data.files={options.corpus}", f"--config.encoder.weights={options.weights}"]
        data += [f"--config.eval.data={options.senteval}", "--workdir", str(workdir)]
        subprocess.run([sys.executable, "-m", "jax_sentemb.main", *flags, *data], check=True)


def collect(workdir):
    """One row for every finished run."""
    rows = []
    for method, size, seed, name, _ in runs():
        file = workdir / name / "scores.json"
        if not file.exists():
            continue
        content = json.loads(file.read_text(encoding="utf-8"))
        scores = {label: content["scores"][task]["spearman"]["all"] for label, task in SETS.items()}
        scores["average"] = statistics.mean(scores.values())
        dev = content["scores"]["STSBenchmark-dev"]["spearman"]["all"]
        rows.append({"method": method, "sentences": size, "seed": seed, "best_step": content["step"], "STSb dev": dev, **scores})
    return rows


def table(rows):
    columns = [*SETS, "average"]
    lines = ["| sentences | method | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    for size in sorted({row["sentences"] for row in rows}):
        for method in dict.fromkeys(row["method"] for row in rows):
            group = [row for row in rows if row["sentences"] == size and row["method"] == method]
            if group:
                cells = [spread([row[column] for row in group]) for column in columns]
                lines.append(f"| {size or '–'} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def spread(values):
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def plot(rows, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    sizes = list(SIZES)
    for place, method in enumerate(METHODS):
        for column, size in enumerate(sizes):
            values = [row["average"] for row in rows if row["method"] == method and row["sentences"] == size]
            at = column + (place - 1.5) * 0.18
            axes.scatter([at] * len(values), values, color=f"C{place}", s=18, alpha=0.6)
            if values:
                axes.plot([at - 0.07, at + 0.07], [statistics.mean(values)] * 2, color=f"C{place}", lw=3,
                          label=method if not column else None)  # fmt: skip
    untrained = [row["average"] for row in rows if row["method"] == "untrained"]
    if untrained:
        axes.axhline(untrained[0], color="grey", ls=":", label="untrained")
    axes.set_xticks(range(len(sizes)), [f"{size:,} sentences" for size in sizes])
    axes.set_ylabel("Spearman x 100, average of the sets")
    axes.legend(frameon=False, ncols=3, fontsize=8)
    figure.savefig(file, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus")
    parser.add_argument("--weights")
    parser.add_argument("--senteval")
    parser.add_argument("--workdir", type=Path, default=Path("runs/micse_low_shot"))
    parser.add_argument("--tune", action="store_true", help="choose the weight of AMI instead")
    parser.add_argument("--tables-only", action="store_true")
    options = parser.parse_args()
    if not options.tables_only:
        if not (options.corpus and options.weights and options.senteval):
            parser.error("--corpus, --weights and --senteval are needed to train")
        if options.tune:
            train(options, tuning())
            for method, *_, name, _ in tuning():
                dev = json.loads((options.workdir / name / "scores.json").read_text())["scores"]["STSBenchmark-dev"]
                print(f"{method}: STS-B dev {dev['spearman']['all']:.2f}")
            return
        train(options, runs())
    rows = collect(options.workdir)
    with (HERE / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (HERE / "results.md").write_text(table(rows), encoding="utf-8")
    plot(rows, HERE / "results.png")
    print(table(rows))


if __name__ == "__main__":
    main()
