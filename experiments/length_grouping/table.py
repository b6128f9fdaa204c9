"""The tables of README.md from the runs of study.py: means over seeds, and paired differences with 95 % intervals of Student's t.

python experiments/length_grouping/table.py runs/length_grouping
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb.reporting.sweep_table import VARIANT, half_interval

FIVE = ("STS12", "STS14", "STS15", "STSBenchmark-test", "SICKRelatedness-test")
DEV, OWN = ("eval/STSBenchmark-dev/spearman_cosine", "eval/dev/spearman_cosine"), ("validation/accuracy",)
Row = dict[str, Any]


def last(runs: Path, row: Row, names: tuple[str, ...]) -> float | None:
    """The last value of a metric in a run; its name depends on whether eval.data or eval.dev has the pairs."""
    events = [json.loads(line) for line in (runs / row["folder"] / "metrics.jsonl").read_text("utf-8").splitlines()]
    values = [value for event in events for name, value in event.items() if name in names]
    return values[-1] if values else None


def dev(runs: Path, row: Row) -> float | None:
    return last(runs, row, DEV)


def five_sets(runs: Path, row: Row) -> float | None:
    """The mean of the five sets at the best step, where they were scored."""
    return float(np.mean([row["scores"][name] for name in FIVE])) if FIVE[0] in row["scores"] else None


def own_task(runs: Path, row: Row) -> float | None:
    """Held-out accuracy in percent at the last step, where there is one."""
    accuracy = last(runs, row, OWN)
    return accuracy if accuracy is None else 100 * accuracy


COLUMNS = {"dev, last step": dev, "five sets, best step": five_sets, "own task, held out, last step": own_task}


def cells(random: list[float], sorted_: list[float]) -> str:
    """Both means, and the mean difference of pairs with its interval."""
    gain = np.subtract(sorted_, random)
    return f"{np.mean(random):.2f} | {np.mean(sorted_):.2f} | {gain.mean():+.2f} ± {half_interval(gain.tolist()):.2f}"


def main(runs: Path) -> None:
    rows = json.loads((runs / "sweep.json").read_text("utf-8"))
    measured = {name: column for name, column in COLUMNS.items() if column(runs, rows[0]) is not None}
    heads = [f"{name}: random | sorted | difference" for name in measured]
    print(f"| | {' | '.join(heads)} |\n|---|{'--:|' * 3 * len(heads)}")
    for name in dict.fromkeys(row["settings"][VARIANT].rpartition("-")[0] for row in rows):
        pair = [
            sorted((row for row in rows if row["settings"][VARIANT] == f"{name}-{order}"), key=seed)
            for order in ("random", "sorted")
        ]
        found = [cells(*([column(runs, row) for row in some] for some in pair)) for column in measured.values()]
        print(f"| {name} | {' | '.join(found)} |")


def seed(row: Row) -> int:
    return int(row["settings"]["train.seed"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
