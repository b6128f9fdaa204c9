"""Draw figures as PNG files, each with its numbers in a CSV file of the same name. This needs the extra [plots] (matplotlib).

    jax-sentemb plots run --workdir runs/micse
    jax-sentemb plots low-shot --results results.csv --output low_shot.png

No display is needed, and the global state of matplotlib is not changed. Functions return the path of the PNG, whose text chunk
"Title" repeats the title and the numbers of the heading.
"""

import csv
import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike as Values  # numbers: a sequence, NumPy or JAX

from jax_sentemb.errors import ConfigError, DataError, NumericsError
from jax_sentemb.files import replacing, user_path
from jax_sentemb.public_text import spreadsheet_cell

# Okabe and Ito's colours can be distinguished with any form of colour blindness. Markers differ too, for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
DOTS_PER_INCH = 150

Pairs = tuple[Values, Values]


def similarity_against_gold(path: str | Path, cosine: Values, gold: Values, title: str) -> Path:
    """Draw the cosine [N] over gold scores [N]: every pair as a dot, a box for each range of gold scores, and correlations x 100.

    Boxes contain the middle half of the pairs, the line is the median, whiskers end at the 5th and 95th percentile. Source: miCSE
    Fig. 7.

    Raises:
        DataError: There are no pairs.
        NumericsError: A number is not finite.
    """
    values = checked_numbers(path, {"cosine": cosine, "gold": gold})
    x, y = values["gold"], values["cosine"]
    figure = new_figure(7.0, 4.6)
    axes = new_axes(figure)
    size, opacity = float(np.clip(6e3 / len(x), 5, 18)), float(np.clip(300 / len(x), 0.3, 0.8))
    axes.scatter(x, y, s=size, color=COLOURS[0], alpha=opacity, linewidths=0, label="pair")
    ticks, centres, range_of = gold_ranges(x)
    width = 0.4 * min(np.diff(centres), default=1.0)
    present = np.unique(range_of)
    positions = centres[present]
    # axes.boxplot reads every setting of matplotlib, which would choose a window system.
    low, start, middle, end, high = np.array([np.percentile(y[range_of == number], [5, 25, 50, 75, 95]) for number in present]).T
    box = {"facecolor": (1, 1, 1, 0.6), "edgecolor": "black", "linewidth": 1.4, "zorder": 3}
    axes.bar(positions, end - start, width, start, **box, label="middle half of a range, 5th and 95th percentile")
    for inner, outer in ((start, low), (end, high)):
        axes.vlines(positions, inner, outer, color="black", lw=1.2, zorder=3)
        axes.hlines(outer, positions - width / 4, positions + width / 4, color="black", lw=1.2, zorder=3)
    axes.hlines(middle, positions - width / 2, positions + width / 2, color=COLOURS[1], lw=2.5, zorder=4, label="median")
    count = {"xycoords": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "fontsize": 7, "color": "0.35"}
    for number, position in zip(present, positions, strict=True):
        axes.annotate(f"n={(range_of == number).sum():,}", (position, 0.01), **count)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom - 0.06 * (top - bottom), top)  # room for the counts
    axes.set_xticks(ticks)
    axes.set_xlabel("gold similarity (score given by people)")
    axes.set_ylabel("cosine similarity of the embeddings")
    add_legend(figure, axes)
    return save(figure, path, title, f"{correlations(x, y)}, {len(x):,} pairs", values)


def correlations(first: Values, second: Values) -> str:
    """Return "Spearman 81.25, Pearson 80.10" of two [N], both x 100, or a note that one of them is constant."""
    from scipy.stats import pearsonr, spearmanr  # imported here, so that `--help` does not wait for SciPy

    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if len(first) < 2 or not np.ptp(first) or not np.ptp(second):
        return "no correlation (all values equal)"
    results: Any = (spearmanr(first, second), pearsonr(first, second))  # SciPy declares no attributes
    spearman, pearson = (float(result[0]) for result in results)
    return f"Spearman {100 * spearman:.2f}, Pearson {100 * pearson:.2f}"


# Column of the CSV file -> its name in metrics.jsonl, and the label of its axis.
COURSES = {
    "alignment": ("diagnostics/alignment", "alignment\n(0 is best)"),
    "training_alignment": ("train/alignment", "alignment of\ntraining batches\n(0 is best)"),
    "uniformity": ("diagnostics/uniformity", "uniformity\n(lower is better)"),
    "spread": ("diagnostics/spread", "spread\n(1 isotropic,\n0 collapsed)"),
}


def alignment_uniformity(path: str | Path, records: Sequence[Mapping[str, Any]], title: str) -> Path:
    """Draw alignment, uniformity and spread over the steps of a run.

    If a run did not measure the alignment of its diagnostic sentences, the figure shows that of the training batches (after the
    training head, with dropout), if it was logged. Values that are not finite are left out and counted in the heading. Source of
    the quantities: Wang and Isola 2020.

    Args:
        path: The PNG file.
        records: The events that `read_metrics` returns.
        title: The heading.

    Raises:
        DataError: No record has diagnostics.
    """
    courses: dict[str, dict[int, float]] = {}
    left_out = 0
    for name, (key, _) in COURSES.items():
        course = {record["step"]: float(record[key]) for record in records if isinstance(record.get(key), int | float)}
        finite = {step: value for step, value in sorted(course.items()) if math.isfinite(value)}
        left_out += len(course) - len(finite)
        if finite:
            courses[name] = finite
    if "uniformity" not in courses and "alignment" not in courses:
        raise DataError(f"{path}: nothing to draw: no record of the run has diagnostics/uniformity or diagnostics/alignment")
    if "alignment" in courses:
        courses.pop("training_alignment", None)
    figure = new_figure(6.4, 1.0 + 1.6 * len(courses))
    panels = figure.subplots(len(courses), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, course), colour in zip(panels, courses.items(), COLOURS, strict=False):
        plain_axes(axes)
        marker = "o" if len(course) <= 50 else ""
        axes.plot(list(course), list(course.values()), color=colour, marker=marker, markersize=4, label=name.replace("_", " "))
        axes.set_ylabel(COURSES[name][1], fontsize=9)
        axes.margins(y=0.15)
    panels[-1].set_xlabel("training step (optimiser updates)")
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    figure.align_ylabels(panels)
    add_legend(figure, *panels)
    last_values = ", ".join(f"{name.replace('_', ' ')} {list(course.values())[-1]:.3f}" for name, course in courses.items())
    heading = f"at the end: {last_values}" + (f"; {left_out} values not finite, left out" if left_out else "")
    steps = sorted({step for course in courses.values() for step in course})
    table = {"step": steps, **{name: [course.get(step, "") for step in steps] for name, course in courses.items()}}
    return save(figure, path, title, heading, table)


def low_shot_curves(
    path: str | Path,
    curves: Mapping[str, Sequence[tuple[int, float, float]]],
    title: str,
    score: str = "Spearman x 100, average of the sets",
) -> Path:
    """Draw the score over the number of training sentences (logarithmic).

    Bars are one standard deviation. A point with 0 sentences (no training) is a dotted horizontal line. Methods are shifted
    sideways by a few percent, so that bars do not cover each other; the CSV file has the exact numbers.

    Args:
        path: The PNG file.
        curves: {method: [(sentences, mean, standard deviation)]}.
        title: The heading.
        score: The label of the vertical axis.

    Raises:
        DataError: There are no points to draw.
        NumericsError: A number is not finite.
    """
    flat = [(method, *point) for method, points in curves.items() for point in sorted(points)]
    columns = {
        "sentences": [row[1] for row in flat],
        "mean": [row[2] for row in flat],
        "standard_deviation": [row[3] for row in flat],
    }
    numbers = checked_numbers(path, columns)
    if min(numbers["sentences"]) < 0 or min(numbers["standard_deviation"]) < 0:
        raise DataError(f"{path}: numbers of sentences and standard deviations cannot be negative; correct the file")
    figure = new_figure(6.8, 4.4)
    axes = new_axes(figure)
    errors_over_sizes(axes, curves)
    axes.set_ylabel(score)
    add_legend(figure, axes)
    heading = "mean and standard deviation over seeds"
    return save(figure, path, title, heading, {"method": [row[0] for row in flat], **numbers})


def errors_over_sizes(
    axes: Any, curves: Mapping[str, Sequence[tuple[int, float, float]]], order: Sequence[str] | None = None
) -> None:
    """Draw the curves of `low_shot_curves` in one panel, without a label for the vertical axis.

    A method has the colour and marker of its position in `order` (default: `curves`), so that several panels agree.
    """
    order = list(curves) if order is None else order
    trained = {method: [point for point in sorted(points) if point[0] > 0] for method, points in curves.items()}
    trained = {method: points for method, points in trained.items() if points}
    sizes = sorted({point[0] for points in trained.values() for point in points})
    closest = min((math.log(b / a) for a, b in itertools.pairwise(sizes)), default=1.0)
    step = min(0.05, closest / (2 * len(trained) + 1))
    for position, (method, points) in enumerate(trained.items()):
        x, y, error = zip(*points, strict=True)
        shift, number = math.exp((position - (len(trained) - 1) / 2) * step), order.index(method)
        axes.errorbar(
            [shift * size for size in x], y, yerr=error, label=method, color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[(number + number // len(COLOURS)) % len(MARKERS)], markersize=5.5, capsize=3, lw=1.4, elinewidth=1.1,
        )  # fmt: skip
    for method, points in curves.items():
        for mean in (point[1] for point in points if point[0] == 0):
            axes.axhline(mean, color="0.4", ls=":", lw=1.6, label=f"{method}, 0 sentences", zorder=1)
    if sizes:
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        axes.minorticks_off()
        axes.margins(x=0.12)
    else:
        axes.set_xticks([])
    axes.set_xlabel("training sentences (logarithmic)")


def require_matplotlib() -> Any:
    """Return matplotlib.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install matplotlib") from None
    return matplotlib


def new_figure(width: float, height: float) -> Any:
    """Return a figure of this size in inches, without a window and outside of pyplot's global list."""
    return require_matplotlib().figure.Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")


def new_axes(figure: Any) -> Any:
    """Return the axes of a figure with one panel."""
    return plain_axes(figure.subplots())


def plain_axes(axes: Any) -> Any:
    """Give axes a light grid and no frame; return them."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", lw=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    return axes


def add_legend(figure: Any, *panels: Any) -> None:
    """Add one legend below the panels."""
    handles, labels = (
        list(itertools.chain(*side)) for side in zip(*(axes.get_legend_handles_labels() for axes in panels), strict=True)
    )
    available_width = 17 * figure.get_figwidth()  # characters; a handle takes eight
    in_one_row = sum(len(label) + 8 for label in labels) <= available_width
    columns = len(labels) if in_one_row else max(1, int(available_width // (max(map(len, labels)) + 8)))
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8, columnspacing=1.2)
    for text in legend.get_texts():
        text.set_parse_math(False)  # dollar signs in names are not mathematics


def gold_ranges(gold: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"], Int[np.ndarray, " n"]]:
    """Return ticks, the centres of the ranges, and the range of every score.

    Up to seven distinct scores are separate ranges. Otherwise ranges end at whole numbers if that gives two to twelve ranges;
    if not, there are five of equal width.
    """
    distinct = np.unique(gold)
    if len(distinct) <= 7:
        return distinct, distinct, np.searchsorted(distinct, gold)
    low, high = math.floor(distinct[0]), math.ceil(distinct[-1])
    edges = np.arange(low, high + 1.0) if 2 <= high - low <= 12 else np.linspace(distinct[0], distinct[-1], 6)
    range_of = np.searchsorted(edges, gold, side="right") - 1
    return edges, (edges[:-1] + edges[1:]) / 2, np.minimum(range_of, len(edges) - 2)  # the highest score is in the last range


def checked_numbers(path: str | Path, columns: Mapping[str, Values], prefix: str = "") -> dict[str, np.ndarray]:
    """Return float64 columns of one length.

    Raises:
        DataError: A column is empty.
        NumericsError: A number is not finite.
    """
    arrays = {name: np.asarray(values, np.float64) for name, values in columns.items()}
    if len({array.shape for array in arrays.values()}) > 1:
        raise ValueError(f"{prefix}columns of unlike length: { ({name: array.shape for name, array in arrays.items()}) }")
    for name, array in arrays.items():
        if not array.size:
            raise DataError(f"{path}: {prefix}nothing to draw, {name} is empty")
        if not_finite := int((~np.isfinite(array)).sum()):
            raise NumericsError(f"{path}: {prefix}{not_finite} of {array.size} values of {name} are not finite (NaN or Inf)")
    return arrays


def picture_path(path: str | Path) -> Path:
    """Return the path with the ending .png."""
    path = user_path(path)
    return path if path.suffix == ".png" else path.with_name(f"{path.name}.png")


def table_path(picture: Path) -> Path:
    """Return the path of the CSV file next to a picture."""
    return picture.with_suffix(".csv")


def save(figure: Any, path: str | Path, title: str, numbers: str, table: Mapping[str, Iterable[Any]]) -> Path:
    """Write `figure` with a title and a line of numbers, and `table` as CSV next to it; return the path of the PNG."""
    picture = picture_path(path)
    width = int(14 * figure.get_figwidth())  # characters
    lines = [line for paragraph in f"{title}\n{numbers}".split("\n") for line in textwrap.wrap(paragraph, width)]
    figure.suptitle("\n".join(lines), fontsize=10, parse_math=False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    with replacing(table_path(picture)) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        rows = (table, *zip(*(_cells(column) for column in table.values()), strict=True))
        csv.writer(file, lineterminator="\n").writerows(map(spreadsheet_cell, row) for row in rows)
    with replacing(picture) as partial:
        figure.savefig(partial, format="png", metadata={"Title": f"{title}\n{numbers}"})
    return picture


def _cells(column: Iterable[Any]) -> list[Any]:
    """Return the column as Python values, whose text has all digits."""
    return column.tolist() if isinstance(column, np.ndarray) else list(column)
