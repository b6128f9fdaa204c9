"""Figure 4 of miCSE: scores of methods over training sizes, and differences to their baselines in the same seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jax_sentemb.reporting import plots

Curves = Mapping[str, Sequence[tuple[int, float, float]]]  # method -> [(sentences, mean, standard deviation)]


def low_shot_differences(path: str | Path, scores: Curves, differences: Curves, title: str, score: str) -> Path:
    """Scores on the left and paired differences to the baseline on the right, both over the number of training sentences.

    Bars are one standard deviation, on the right of the differences. The CSV file has a column `panel`. Source: miCSE Fig. 4.
    DataError if there is no point, NumericsError for NaN or Inf.
    """
    flat = [
        (panel, method, *point)
        for panel, curves in (("score", scores), ("difference", differences))
        for method, points in curves.items()
        for point in sorted(points)
    ]
    columns = {name: [row[place] for row in flat] for place, name in enumerate(("sentences", "mean", "standard_deviation"), 2)}
    numbers = plots.checked_numbers(path, columns)
    figure = plots.new_figure(11.0, 4.8)
    left, right = (plots.plain_axes(axes) for axes in figure.subplots(1, 2))
    plots.errors_over_sizes(left, scores)
    plots.errors_over_sizes(right, differences, list(scores))
    right.axhline(0, color="0.4", lw=1, zorder=1)
    left.set_ylabel(score, fontsize=9)
    right.set_ylabel("difference to the baseline in the same seeds", fontsize=9)
    plots.add_legend(figure, left)
    table = {"panel": [row[0] for row in flat], "method": [row[1] for row in flat], **numbers}
    return plots.save(figure, path, title, "mean and standard deviation over seeds", table)
