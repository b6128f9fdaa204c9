"""Scores both checkpoints of every run of a study, the best on its development set and the last, and compares methods seed by seed.

    python experiments/checkpoints.py runs/simcse_methods --data DIR --output experiments/simcse_family/methods.csv

A row of the output is one checkpoint of one run; it is kept, so that a study may grow. Prints means and paired differences to the
baseline of each method, with 95 % intervals of Student's t.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from study_data import read_rows, require, write_rows

from jax_sentemb import SentenceEncoder, score
from jax_sentemb.files import read_json
from jax_sentemb.formats.run_dir import read_checkpoint
from jax_sentemb.inference.load import load
from jax_sentemb.reporting.plot_data import read_metrics
from jax_sentemb.reporting.sweep_table import REPEATED, VARIANT, half_interval

FIVE = {"STS12": "STS12", "STS14": "STS14", "STS15": "STS15", "STSBenchmark-test": "STS-B", "SICKRelatedness-test": "SICK-R"}
CHECKPOINTS = ("dev", "last")  # the best on the development set, and the last step


def scored(run: dict[str, Any], folder: Path, data: Path, checkpoint: str) -> tuple[int, dict[str, float]]:
    """The step of a checkpoint, and its scores by set."""
    if checkpoint == "dev":
        return run["step"], run["scores"]
    params, step = read_checkpoint(folder, "last")
    if step == run["step"]:
        return step, run["scores"]
    encoder = SentenceEncoder(load(folder)._replace(params=params))
    found = {name: score(encoder, data, short)[name] for name, short in FIVE.items()}
    return step, found | {dev_set(folder): dev_scores(folder)[step]}


def dev_set(folder: Path) -> str:
    """The name of the development set of a run."""
    return read_json(folder / "config.json", dict)["eval.dev"] or "STSBenchmark-dev"


def dev_scores(folder: Path) -> dict[int, float]:
    """The development score of every evaluation of a run, by step."""
    name = f"eval/{dev_set(folder)}/spearman_cosine"
    return {event["step"]: event[name] for event in read_metrics(folder) if name in event}


def collect(workdir: Path, data: Path, output: Path) -> list[dict[str, Any]]:
    """The rows of both checkpoints of all finished runs; each is written as soon as it is scored."""
    rows: list[dict[str, Any]] = [*read_rows(output)]
    for run in json.loads((workdir / "sweep.json").read_text("utf-8")):
        for checkpoint in CHECKPOINTS if "scores" in run else ():
            key = {**run["settings"], "baseline": run.get("baseline", ""), "checkpoint": checkpoint}
            if any(all(str(row.get(name)) == value for name, value in key.items()) for row in rows):
                continue
            step, scores = scored(run, workdir / run["folder"], data, checkpoint)
            five = {name: scores[name] for name in FIVE}
            dev = dev_set(workdir / run["folder"])
            values = {dev: scores[dev], **five, "average": statistics.mean(five.values())}
            rows.append({**key, "step": step, **{name: f"{value:.2f}" for name, value in values.items()}})
            write_rows(output, rows)
    return rows


def tables(rows: list[dict[str, Any]]) -> str:
    """Means over seeds of the development set and the five sets, and differences to the baseline of the same seeds and settings."""
    dev = next((name for name in rows[0] if name.startswith("STSBenchmark-dev")), "")
    seeds, named = REPEATED, (*REPEATED, VARIANT, "baseline", "checkpoint", "step", dev, *FIVE, "average")

    def others(row: dict[str, Any], *more: str) -> tuple[str, ...]:
        """What distinguishes groups of runs: all settings but seeds; `more` adds columns."""
        return tuple(f"{name}={value}" for name, value in row.items() if name not in named and value) + tuple(row[m] for m in more)

    lines = [f"| | checkpoint | seeds | {dev} | five sets | difference to the baseline |", "|---|---|--:|--:|--:|--:|"]
    twins = {(*others(row, "checkpoint", VARIANT), *(row.get(s) for s in seeds)): float(row["average"]) for row in rows}
    for group in dict.fromkeys(others(row, "checkpoint", VARIANT) for row in rows):
        some = [row for row in rows if others(row, "checkpoint", VARIANT) == group]
        *settings, checkpoint, variant = group
        base = [twins.get((*settings, checkpoint, row["baseline"], *(row.get(s) for s in seeds))) for row in some]
        gain = [float(row["average"]) - one for row, one in zip(some, base, strict=True) if one is not None]
        values = [float(row["average"]) for row in some]
        cells = (
            " ".join([variant, *settings]), checkpoint, str(len(some)), f"{np.mean([float(row[dev]) for row in some]):.2f}",
            with_interval(values), f"{with_interval(gain, '+')} to {some[0]['baseline']}" if gain else "",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_interval(values: list[float], sign: str = "") -> str:
    spread = f" ± {half_interval(values):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):{sign}.2f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=Path, help="work directory of a sweep")
    parser.add_argument("--data", type=Path, required=True, help="the folder of experiments/data.md")
    parser.add_argument("--output", type=Path, required=True, help="CSV that is written")
    options = parser.parse_args()
    senteval = options.data / "senteval"
    require([senteval])
    print(tables(collect(options.workdir, senteval, options.output)))


if __name__ == "__main__":
    main()
