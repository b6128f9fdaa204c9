"""Figures 5 and 6 of miCSE: attention against semantic similarity of pairs, for one model or for two side by side.

The pairs, their dropout seeds and the ranges of the axes are the same for both models. Command: run.py.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike as Values

from jax_sentemb.errors import DataError, ModelFileError
from jax_sentemb.reporting import plots

QUANTITY = "mutual information of attention (nats)"
WIDEST_GRID = 6  # panels in a row
Groups = Mapping[str, plots.Pairs]  # name of the pairs -> (semantic [P], attention [P])


class PairModel:
    """The model of an encoder directory or work directory, which compares pairs of sentences."""

    def __init__(self, path: Path, dropout: float) -> None:
        from jax_sentemb.formats.huggingface import read_encoder, read_max_seq_length, read_tokenizer
        from jax_sentemb.formats.model_dir import read_readout
        from jax_sentemb.formats.run_dir import find_export

        model = find_export(path) if (path / "model.json").is_file() else path
        if model is None:
            raise ModelFileError(f"{path} has no export of its run: export a checkpoint with jax-sentemb export")
        self.config, self.params = read_encoder(model)
        self.tokenizer = read_tokenizer(model, self.config)
        self.length, self.pooling, self.dropout = read_max_seq_length(model), read_readout(model).pooling or "mean", dropout
        self.cut = 0

    def encode(self, sentences: Sequence[str]) -> list[Int[np.ndarray, " _"]]:
        """The token rows of sentences. Reports on standard error how many were cut."""
        rows, cut = self.tokenizer.encode(sentences, self.length)
        if cut > self.cut:  # reported once for several groups of the same sentences
            self.cut = cut
            print(f"{cut} of {len(sentences)} sentences were cut at {self.length} tokens", file=sys.stderr)
        return rows

    def compare(self, pairs: Sequence[tuple[str, str]], dropout: bool) -> plots.Pairs:
        """(semantic [P], attention [P]) of pairs of sentences, each in its own dropout view if `dropout`."""
        from attention_pairs import compare_attention, comparison, view_seeds

        first, second = (self.encode(side) for side in zip(*pairs, strict=True))
        seeds = view_seeds(len(pairs)) if dropout else None
        compared = comparison(self.config, pooling=self.pooling, dropout=self.dropout)
        found = compare_attention(compared, self.params, first, second, seeds)
        return found.semantic, found.attention


def pair_panels(path: str | Path, panels: Mapping[str, Groups], title: str, quantity: str = QUANTITY) -> Path:
    """A panel for each model {name: two groups of pairs}: every pair as a dot, the groups' means large, a line between them.

    The heading has the difference of the means (first group minus second) of each model. The CSV file has a column `model` if
    models have names. DataError where a group is empty, NumericsError for NaN or Inf. Source: miCSE Figs. 5 and 6.
    """
    values = {
        model: {
            name: plots.checked_numbers(
                path, {"semantic": pairs[0], "attention": pairs[1]}, f"{f'{model}: ' * bool(model)}{name} pairs: "
            )
            for name, pairs in groups.items()
        }
        for model, groups in panels.items()
    }
    figure = plots.new_figure(6.4 if len(panels) == 1 else 5.2 * len(panels), 4.8)
    axes_of = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    heading, columns = [], {"model": [], "pair": [], "semantic": [], "attention": []}
    for axes, (model, groups) in zip(axes_of, values.items(), strict=True):
        apart = _panel(plots.plain_axes(axes), groups)
        axes.set_title(model, fontsize=9, parse_math=False)
        names = " minus ".join(groups)
        heading.append(f"{f'{model}: ' * bool(model)}{names} mean: cosine {apart[0]:+.3f}, attention {apart[1]:+.3f}")
        for name, pairs in groups.items():
            columns["model"] += [model] * len(pairs["semantic"])
            columns["pair"] += [name] * len(pairs["semantic"])
            for column in ("semantic", "attention"):
                columns[column] += pairs[column].tolist()
    figure.supxlabel("semantic similarity (cosine of the embeddings)", fontsize=10)
    axes_of[0].set_ylabel(quantity)
    plots.add_legend(figure, axes_of[0])
    table = columns if any(panels) else {name: column for name, column in columns.items() if name != "model"}
    return plots.save(figure, path, title, "\n".join(heading), table)


def _panel(axes: Any, groups: Mapping[str, Mapping[str, np.ndarray]]) -> list[float]:
    """Draws the groups. Returns the difference of the means of the first two, (semantic, attention)."""
    means = []
    for (name, values), colour, marker in zip(groups.items(), plots.COLOURS, plots.MARKERS, strict=False):
        x, y = values["semantic"], values["attention"]
        shown = {"s": float(np.clip(8e3 / len(x), 6, 22)), "alpha": float(np.clip(150 / len(x), 0.3, 0.8)), "linewidths": 0}
        axes.scatter(x, y, color=colour, marker=marker, label=f"{name} ({len(x):,} pairs)", **shown)
        means.append((x.mean(), y.mean()))
    axes.plot(*zip(*means, strict=True), color="black", lw=1.2, zorder=3)
    for mean, colour, marker, name in zip(means, plots.COLOURS, plots.MARKERS, groups, strict=False):
        axes.scatter(*mean, color=colour, marker=marker, s=130, edgecolors="black", linewidths=1.4, zorder=4, label=f"mean, {name}")
    return [first - second for first, second in zip(*means[:2], strict=True)]


def model_names(models: Sequence[Path]) -> list[str]:
    """Names of directories: the shortest ends of their paths that differ."""
    parts = [model.resolve().parts for model in models]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    raise DataError(f"{models[0]}: the same model twice")


def attention_histograms(
    path: str | Path, first: Values, second: Values, title: str, names: Sequence[str] = (), quantity: str = "log attention (nats)"
) -> Path:
    """Joint histogram of the attention [S, M] of two views for each of S slices, with their Pearson correlation rho.

    All panels share ranges and colours. `names` are those of the slices; `quantity` labels the axes.
    DataError for no slice or no entry, NumericsError for NaN or Inf. Source: miCSE Fig. 8.
    """
    one, other = (np.asarray(values, np.float64) for values in (first, second))
    count, samples = one.shape
    names = list(names) or [f"slice {number}" for number in range(1, count + 1)]
    values = plots.checked_numbers(path, {"first": one.ravel(), "second": other.ravel()})
    columns = min(WIDEST_GRID, math.ceil(math.sqrt(count)))
    columns = min(range(columns, WIDEST_GRID + 1), key=lambda number: -count % number)  # few empty places
    rows = -(-count // columns)
    figure = plots.new_figure(max(1.75 * columns + 1.3, 4.5), 2.1 * rows + 1.1)
    figure.set_layout_engine("compressed")  # for square panels
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    low, high = min(one.min(), other.min()), max(one.max(), other.max())
    margin = 0.03 * (high - low) or 0.5
    edges = np.linspace(low - margin, high + margin, int(np.clip(math.sqrt(samples) * 1.5, 10, 48)) + 1)
    counts = [np.histogram2d(x, y, bins=[edges, edges])[0].T for x, y in zip(one, other, strict=True)]
    correlation = [_pearson(x, y) for x, y in zip(one, other, strict=True)]
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    norm = LogNorm(1, max(max(found.max() for found in counts), 2))
    for number, axes in enumerate(panels.flat):
        if number >= count:
            axes.set_visible(False)
            if number - columns >= 0:
                panels.flat[number - columns].xaxis.set_tick_params(labelbottom=True)
            continue
        axes.pcolormesh(edges, edges, np.ma.masked_equal(counts[number], 0), norm=norm, cmap="viridis", rasterized=True)
        axes.plot(edges[[0, -1]], edges[[0, -1]], color="0.6", lw=0.7, zorder=0)
        axes.set_aspect("equal")
        rho = "constant" if correlation[number] is None else f"ρ = {correlation[number]:.3f}"
        axes.set_title(f"{names[number]}\n{rho}", fontsize=8, parse_math=False)
        axes.tick_params(labelsize=7)
    bar = figure.colorbar(ScalarMappable(norm, "viridis"), ax=panels, shrink=0.8, aspect=30, pad=0.02)
    bar.set_label("entries in a cell", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    figure.supxlabel(f"{quantity}, first view", fontsize=9)
    figure.supylabel(f"{quantity}, second view", fontsize=9)
    known = [rho for rho in correlation if rho is not None]
    mean = f"mean ρ {np.mean(known):.3f}, " if known else ""
    heading = f"{mean}{count} slice{'s' * (count > 1)} of {samples:,} entries"
    table = {"slice": np.repeat(np.asarray(names, object), samples), **values}
    return plots.save(figure, path, title, heading, table)


def _pearson(first: np.ndarray, second: np.ndarray) -> float | None:
    """Pearson correlation; None if one of the two is constant."""
    from scipy.stats import pearsonr

    if len(first) < 2 or not np.ptp(first) or not np.ptp(second):
        return None
    found: Any = pearsonr(first, second)  # SciPy declares no attributes
    return float(found[0])
