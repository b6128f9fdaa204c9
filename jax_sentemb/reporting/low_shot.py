"""Draw Figure 4 of miCSE: scores of methods over training sizes, and differences to their baselines in the same seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jax_sentemb.reporting import plots

Curves = Mapping[str, Sequence[tuple[int, float, float]]]  # method -> [(sentences, mean, standard deviation)]


def low_shot_differences(path: str | Path, scores: Curves, differences: Curves, title: str, score: str) -> Path:
    """Draw scores on the left and paired differences to the baseline on the right, over the number of training sentences.

    Bars are one standard deviation, on the right that of the differences. The CSV file has a column `panel`. Source: miCSE Fig. 4.

    Args:
        path: The PNG file.
        scores: Curves of all methods.
        differences: Curves of the methods with a baseline.
        title: The heading.
        score: The label of the vertical axis on the left.

    Raises:
        DataError: There are no points to draw.
        NumericsError: A number is not finite.
    """
    flat = [
        (panel, method, *point)
        for panel, curves in (("score", scores), ("difference", differences))
        for method, points in curves.items()
        for point in sorted(points)
    ]
    columns = {name: [row[column] for row in flat] for column, name in enumerate(("sentences", "mean", "standard_deviation"), 2)}
    numbers = plots.checked_numbers(path, columns)
    figure = plots.new_figure(11.0, 4.8)
    score_axes, difference_axes = (plots.plain_axes(axes) for axes in figure.subplots(1, 2))
    plots.errors_over_sizes(score_axes, scores)
    plots.errors_over_sizes(difference_axes, differences, list(scores))
    difference_axes.axhline(0, color="0.4", lw=1, zorder=1)
    score_axes.set_ylabel(score, fontsize=9)
    difference_axes.set_ylabel("difference to the baseline in the same seeds", fontsize=9)
    plots.add_legend(figure, score_axes)
    table = {"panel": [row[0] for row in flat], "method": [row[1] for row in flat], **numbers}
    return plots.save(figure, path, title, "mean and standard deviation over seeds", table)
