"""Figures 5 and 6 of miCSE: attention against semantic similarity of pairs, for one model or for two side by side.

The pairs, their dropout seeds and the ranges of the axes are the same for both models. Commands: `plots attention`.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.conllu import Parse
from jax_sentemb.errors import DataError
from jax_sentemb.reporting import plots
from jax_sentemb.reporting.plots import Pairs

QUANTITY = "mutual information of attention (nats)"
Groups = Mapping[str, plots.Pairs]  # name of the pairs -> (semantic [P], attention [P])


class PairModel:
    """The model of an encoder directory or work directory, which compares pairs of sentences."""

    def __init__(self, path: Path, dropout: float) -> None:
        from jax_sentemb.formats.huggingface import read_encoder, read_max_seq_length, read_tokenizer
        from jax_sentemb.formats.model_dir import read_readout

        model = path / "export" if (path / "model.json").is_file() else path
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
        from jax_sentemb.reporting.attention import compare_attention, comparison, view_seeds

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
            name: plots._numbers(path, {"semantic": pairs[0], "attention": pairs[1]}, f"{f'{model}: ' * bool(model)}{name} pairs: ")
            for name, pairs in groups.items()
        }
        for model, groups in panels.items()
    }
    figure = plots._figure(6.4 if len(panels) == 1 else 5.2 * len(panels), 4.8)
    axes_of = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    heading, columns = [], {"model": [], "pair": [], "semantic": [], "attention": []}
    for axes, (model, groups) in zip(axes_of, values.items(), strict=True):
        apart = _panel(plots._plain(axes), groups)
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
    plots._legend(figure, axes_of[0])
    table = columns if any(panels) else {name: column for name, column in columns.items() if name != "model"}
    return plots._save(figure, path, title, "\n".join(heading), table)


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


def syntax_pairs(parses: Sequence[Parse], count: int, seed: int = 0) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Up to `count` pairs (rows of `parses`) of different sentences with the same tree, and as many with different trees.

    A pair of the second kind has the same first sentence as a pair of the first kind, so that only the partners differ.
    Sentences with the same tree have the same number of words; others mostly do not. DataError if there are no such pairs.
    Source: miCSE Fig. 6.
    """
    random = np.random.default_rng(seed)
    rows: dict[tuple, list[int]] = {}
    seen: set[str] = set()
    for row in random.permutation(len(parses)).tolist():
        if parses[row].text not in seen:
            seen.add(parses[row].text)
            rows.setdefault(parses[row].tree, []).append(row)
    similar = [pair for group in rows.values() for pair in itertools.pairwise(group)]
    similar = [similar[place] for place in random.permutation(len(similar))[:count]]
    if not similar or len(rows) < 2:
        raise DataError(
            f"{len(seen)} distinct parsed sentences have {len(rows)} trees: pairs with the same tree and with different ones are "
            "needed; give more, and short, sentences"
        )
    everything = [row for group in rows.values() for row in group]
    dissimilar = []
    for first, _ in similar:
        partner = first
        while parses[partner].tree == parses[first].tree:
            partner = everything[int(random.integers(len(everything)))]
        dissimilar.append((first, partner))
    return similar, dissimilar


def semantic_against_attention(
    path: str | Path, positive: Pairs, negative: Pairs, title: str, quantity: str = "mutual information of attention (nats)"
) -> Path:
    """Semantic (cosine) against attention similarity of positive and negative pairs, each (semantic [P], attention [P]).

    Large marks are the means of the groups, and the line connects them. `quantity` labels the vertical axis.
    DataError where a group is empty, NumericsError for NaN or Inf. Source: miCSE Figs. 5 and 6.
    """

    return pair_panels(path, {"": {"positive": positive, "negative": negative}}, title, quantity)
