"""The learning curves of a study: the development score of every run at every evaluation, and a picture of the means over seeds.

    python experiments/curves.py runs/long --output experiments/micse_low_shot/long_curve.csv

Reads the metrics.jsonl of the runs; several work directories, parts of one study, give one table. Writes the CSV and, beside it, a
picture with one line a method and a band of one standard deviation over seeds; the score before training is its title.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from checkpoints import dev_scores
from study_data import write_rows

from jax_sentemb.reporting.sweep_table import VARIANT

SEED = "train.seed"


def curves(workdir: Path) -> list[tuple[str, str, int, float]]:
    """(method, seed, step, score) of every evaluation of the finished runs."""
    found = []
    for run in json.loads((workdir / "sweep.json").read_text(encoding="utf-8")):
        if "scores" in run:
            named = run["settings"][VARIANT], run["settings"][SEED]
            found += [(*named, step, score) for step, score in dev_scores(workdir / run["folder"]).items()]
    return found


def plot(rows: list[tuple[str, str, int, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(5.5, 4.2), layout="constrained")
    for method in dict.fromkeys(row[0] for row in rows):
        steps = sorted({step for name, _, step, _ in rows if name == method and step})
        scores = [[score for name, _, at, score in rows if (name, at) == (method, step)] for step in steps]
        means, spreads = np.array([np.mean(some) for some in scores]), np.array([np.std(some) for some in scores])
        (line,) = panel.plot(steps, means, marker=".", label=f"{method} ({len(scores[0])} seeds)")
        panel.fill_between(steps, means - spreads, means + spreads, color=line.get_color(), alpha=0.2, linewidth=0)
    untrained = {f"{score:.1f}" for _, _, step, score in rows if not step}
    panel.set_title(f"before training {', '.join(sorted(untrained))}" if untrained else "", fontsize=8)
    panel.set_xlabel("steps")
    panel.set_ylabel("development pairs, Spearman x 100")
    figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdirs", type=Path, nargs="+", help="work directories of a sweep with variants")
    parser.add_argument("--output", type=Path, required=True, help="CSV that is written, and a PNG of its name")
    options = parser.parse_args()
    rows = [row for workdir in options.workdirs for row in curves(workdir)]
    write_rows(options.output, [(*row[:3], f"{row[3]:.2f}") for row in rows], ("variant", "seed", "step", "dev"))
    plot(rows, options.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
