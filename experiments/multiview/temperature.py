"""What decides the discriminative multi-view model: the temperature at the start, the number of steps, the text.

    python experiments/multiview/temperature.py --data DIR --vectors wiki.300d.npz \\
        --workdir runs/multiview_temperature

The linear view alone is trained in half a minute, so it is what is varied; both views have a curve over steps at two
temperatures. A run or score that is there is not repeated. `--runs "g-0.1-*"` runs a part. Rows replace those of the same
run in temperature.csv, from which temperature.png is drawn (Pearson x 100, mean over subsets, first component removed; STS-B dev,
which chooses, beside it). `--table` names another table, for other vectors.
"""

import argparse
import fnmatch
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from run import FLAGS, HERE, SETS

sys.path.insert(0, str(Path(__file__).parents[1]))

from study_data import parse, read_rows, write_rows

DEV = "STSBenchmark-dev"
AVERAGE = "word average"
SEEDS = (1, 2, 3, 4, 5)
POINTS = (250, 500, 750, 1000, 1250, 1500)  # of the curve
FILE = HERE / "temperature.csv"
RUN_FIELDS = ("model", "temperature", "text", "seed", "step")
FIELDS = (*RUN_FIELDS, DEV, *SETS.values(), "average")


class Run(NamedTuple):
    """One training: the views, its temperature at the start, the text, steps and seed."""

    views: str
    temperature: float
    text: str
    steps: int
    seed: int

    def folder(self) -> str:
        return f"{self.views}-{self.temperature}-{self.text}-{self.steps}-{self.seed}"


RUNS = [
    *(Run("g", temperature, "wiki", 1000, seed) for seed in SEEDS for temperature in (0.03, 0.05, 0.1, 0.2, 1.0)),
    *(
        Run("g", 0.1, text, steps, seed)
        for seed in SEEDS
        for text, steps in (("novels", 1000), ("wiki+novels", 2500), ("wiki", 5000))
    ),
    *(Run("fg", temperature, "wiki", POINTS[-1], seed) for seed in SEEDS for temperature in (1.0, 0.1)),
]


def train(options: argparse.Namespace, run: Run) -> None:
    folder = options.workdir / run.folder()
    if (folder / "scores.json").exists():
        return
    files = {"wiki": options.ordered, "novels": options.novels}
    saved = POINTS[0] if run.views == "fg" else 0
    flags = [
        *FLAGS, f"--config.train.save_steps={saved}",
        f"--config.train.keep_checkpoints={POINTS[-1] // POINTS[0]}",
        f"--config.method.views={run.views}", f"--config.method.temperature={run.temperature}",
        f"--config.train.max_steps={run.steps}", f"--config.train.seed={run.seed}", f"--config.encoder.vectors={options.vectors}",
        "--config.data.files=" + ",".join(files[name] for name in run.text.split("+")),
    ]  # fmt: skip
    subprocess.run([sys.executable, "-m", "jax_sentemb.main", *flags, "--workdir", str(folder)], check=True)


def models(options: argparse.Namespace, run: Run) -> Iterator[tuple[int, dict[str, str]]]:
    """(step, {view: model}) of the checkpoints to score."""
    folder = options.workdir / run.folder()
    if run.views == "g":
        yield run.steps, {"g alone": str(folder)}
        return
    for step in POINTS:
        export = folder / f"export-{step}"
        if not export.exists():
            command = ["export", "--workdir", str(folder), "--step", str(step), "--output", str(export)]
            subprocess.run([sys.executable, "-m", "jax_sentemb", *command], check=True)
        yield step, {"D": str(export), "D: f": f"{export}@f", "D: g": f"{export}@g"}


def scores(options: argparse.Namespace, output: Path, named: dict[str, str]) -> dict[str, dict[str, float]]:
    """{model: {set: Pearson x 100}}."""
    if not (output / "tables.md").exists():
        given = [argument for name, model in named.items() for argument in ("--model", f"{name}={model}")]
        protocol = ["--sts-protocol", "multiview", "--resamples", "0", "--data", options.senteval]
        tasks = ["--tasks", ",".join([*SETS, DEV]), "--output", str(output)]
        subprocess.run([sys.executable, "-m", "jax_sentemb", "evaluate", *given, *protocol, *tasks], check=True)
    found: dict[str, dict[str, float]] = {}
    for file in sorted(output.glob("*/*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        found.setdefault(content["model"], {})[content["task"]] = content["scores"]["score"]
    return found


def row(settings: Sequence[object], found: dict[str, float]) -> dict[str, str]:
    five = [found[name] for name in SETS]
    values = (f"{value:.2f}" for value in (found[DEV], *five, sum(five) / len(five)))
    return dict(zip(FIELDS, (*map(str, settings), *values), strict=True))


def replace_rows(table: Path, new: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Write the table with new rows, which replace others of the same run; return its rows."""
    rows = {tuple(each[name] for name in RUN_FIELDS): each for each in [*read_rows(table), *new]}
    write_rows(table, rows.values(), FIELDS)
    return list(rows.values())


def plot(rows: Sequence[dict[str, str]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(5.5, 4.2), layout="constrained")
    for temperature, style in ((1.0, "--"), (0.1, "-")):
        for name, colour in (("D", "tab:blue"), ("D: f", "tab:orange"), ("D: g", "tab:green")):
            some = [each for each in rows if (each["model"], each["temperature"], each["text"]) == (name, str(temperature), "wiki")]
            means = [statistics.mean(float(each["average"]) for each in some if each["step"] == str(step)) for step in POINTS]
            panel.plot(POINTS, means, style, color=colour, label=f"{name}, temperature {temperature:g}")
    average = next(float(each["average"]) for each in rows if each["model"] == AVERAGE)
    panel.axhline(average, color="grey", linewidth=1, label=AVERAGE)
    panel.set_xlabel("batches of 256 sentences")
    panel.set_ylabel("mean of five sets, Pearson x 100")
    figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    figure.savefig(HERE / "temperature.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--workdir", type=Path, default=Path("runs/multiview_temperature"))
    texts = {"ordered": "corpora/ordered_wiki.txt.xz", "novels": "corpora/ordered_novels.txt.xz"}
    names = {run.folder(): run for run in RUNS}
    parser.add_argument("--runs", nargs="+", default=["*"], metavar="RUN", help=f"names or patterns of {', '.join(names)}")
    parser.add_argument("--table", type=Path, default=FILE)
    options = parse(parser, **texts, senteval="senteval")
    if unknown := [pattern for pattern in options.runs if not fnmatch.filter(names, pattern)]:
        parser.error(f"--runs: {unknown[0]} is none of {', '.join(names)}")
    untrained = scores(options, options.workdir / "scores-average", {AVERAGE: options.vectors})
    rows = replace_rows(options.table, [row((AVERAGE, "", "", "", 0), untrained[AVERAGE])])
    chosen = [run for name, run in names.items() if any(fnmatch.fnmatch(name, pattern) for pattern in options.runs)]
    for run in chosen:
        train(options, run)
        for step, named in models(options, run):
            found = scores(options, options.workdir / f"scores-{run.folder()}-{step}", named)
            new = [row((name, run.temperature, run.text, run.seed, step), found[name]) for name in named]
            rows = replace_rows(options.table, new)
    if options.table == FILE:
        plot(rows)


if __name__ == "__main__":
    main()
