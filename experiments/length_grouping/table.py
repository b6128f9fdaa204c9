"""The table of README.md from the runs of study.py: means over seeds, and paired differences with 95 % intervals of Student's t.

python experiments/length_grouping/table.py runs/length_grouping
"""

import json
import sys
from pathlib import Path

import numpy as np
from study import METHODS

from jax_sentemb.reporting.sweep_table import VARIANT, half_interval

FIVE = ("STS12", "STS14", "STS15", "STSBenchmark-test", "SICKRelatedness-test")
DEV = "eval/STSBenchmark-dev/spearman_cosine"


def last_dev(folder: Path) -> float:
    """STS-B dev at the last evaluation of a run."""
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return max((event["step"], event[DEV]) for event in events if DEV in event)[1]


def cells(random: list[float], sorted_: list[float]) -> list[str]:
    """Both means, and the mean difference of pairs with its interval."""
    gain = np.subtract(sorted_, random)
    return [f"{np.mean(random):.2f}", f"{np.mean(sorted_):.2f}", f"{gain.mean():+.2f} ± {half_interval(gain.tolist()):.2f}"]


def main(runs: Path) -> None:
    rows = json.loads((runs / "vary.json").read_text("utf-8"))
    print(
        "| | dev, last step: random | sorted | difference | five sets, best step: random | sorted | difference |\n|---|"
        + "--:|" * 6
    )
    for name in METHODS:
        pair = [
            sorted((row for row in rows if row["settings"][VARIANT] == f"{name}-{order}"), key=seed)
            for order in ("random", "sorted")
        ]
        last = [[last_dev(runs / row["folder"]) for row in some] for some in pair]
        five = [[float(np.mean([row["scores"][one] for one in FIVE])) for row in some] for some in pair]
        print("| " + " | ".join([name, *cells(*last), *cells(*five)]) + " |")


def seed(row: dict) -> int:
    return int(row["settings"]["train.seed"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
