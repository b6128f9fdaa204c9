"""Figures 5, 6 and 8 of miCSE: the attention of two views, and attention against semantic similarity of pairs.

    python experiments/attention_figures/run.py --model path/to/bert runs/micse/export --data corpus.txt --output plots
    python experiments/attention_figures/run.py --model runs/simcse runs/micse --data corpus.txt --parses parses.conllu \\
        --output plots

A CSV file beside each picture has its numbers.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attention_pairs import attention_values, comparison, slice_names, view_seeds
from conllu import read_conllu, syntax_pairs
from pair_plots import PairModel, attention_histograms, model_names, pair_panels

from jax_sentemb.cli.program import finite, positive
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.errors import ConfigError, DataError, UserError, plain
from jax_sentemb.evaluation.catalog import load_sts_task
from jax_sentemb.evaluation.sts_data import senteval_root
from jax_sentemb.files import user_path
from jax_sentemb.parallel import use_compilation_cache
from jax_sentemb.reporting.plots import require_matplotlib

FIGURE_8 = "the best thing you can do is to know your stuff."  # the sentence of miCSE's figure
ALIKE, UNLIKE = 4.0, 1.0  # gold scores of STS-B (0 to 5): positive pairs have at least the first, negative ones at most the second


def draw(options: argparse.Namespace) -> list[Path]:
    """Draw the pictures for one encoder directory, or for two; return their paths."""
    if not 0 < options.dropout < 1:
        raise ConfigError(f"--dropout {options.dropout}: must lie between 0 and 1")
    if options.pairs < 2:
        raise ConfigError(f"--pairs {options.pairs}: at least 2 are needed")
    if len(options.model) > 2:
        raise ConfigError(f"--model: {len(options.model)} models: one, or two side by side")
    names = model_names(options.model)
    models = dict(zip(names, [PairModel(model, options.dropout) for model in options.model], strict=True))
    groups, kind = _pairs_of(options)
    by_syntax = _pairs_by_syntax(options)
    use_compilation_cache()
    dropout = options.views == "dropout"
    panels = {name: {group: model.compare(pairs, dropout) for group, pairs in groups.items()} for name, model in models.items()}
    one = len(models) == 1
    title = f"{names[0]}: {kind}" if one else kind
    files = [pair_panels(options.output / "semantic_against_attention.png", {"": panels[names[0]]} if one else panels, title)]
    if by_syntax:
        panels = {
            name: {group: model.compare(pairs, dropout) for group, pairs in by_syntax.items()} for name, model in models.items()
        }
        files.append(
            pair_panels(options.output / "same_and_different_trees.png", panels, "pairs of different sentences, by syntax")
        )
    for number, (name, model) in enumerate(models.items(), 1):
        row = model.encode([options.sentence])[0]
        compared = comparison(model.config, dropout=options.dropout)
        first, second = attention_values(compared, model.params, row, row, view_seeds(1)[0])
        heading = f"{name}: attention of two views by dropout {options.dropout:g}\n“{options.sentence}”"
        file = options.output / f"attention_histograms{'' if one else f'_{number}'}.png"
        files.append(attention_histograms(file, first, second, heading, slice_names(compared)))
    return files


def _pairs_of(options: argparse.Namespace) -> tuple[dict[str, list[tuple[str, str]]], str]:
    """Return positive and negative pairs of sentences, and what they are in words."""
    if options.views == "gold":
        positive, negative = (list(zip(*sides, strict=True)) for sides in gold_pairs(options.data, options.pairs))
        kind = f"STS-B dev, positive: gold >= {ALIKE:g}, negative: gold <= {UNLIKE:g}\n(pairs of equal sentences left out)"
        return {"positive": positive, "negative": negative}, kind
    views = sample_sentences(options.data, options.pairs)
    kind = f"views by dropout {options.dropout:g} of one sentence (positive) and of two (negative)"
    others = views[1:] + views[:1]
    return {"positive": list(zip(views, views, strict=True)), "negative": list(zip(views, others, strict=True))}, kind


def _pairs_by_syntax(options: argparse.Namespace) -> dict[str, list[tuple[str, str]]]:
    """Return pairs with the same and with different dependency trees of --parses; none without that."""
    if not options.parses:
        return {}
    parses = read_conllu(options.parses)
    same, different = syntax_pairs(parses, options.pairs)
    texts = [[(parses[first].text, parses[second].text) for first, second in pairs] for pairs in (same, different)]
    return dict(zip(("same tree", "different trees"), texts, strict=True))


def gold_pairs(folder: str | Path, count: int) -> tuple[tuple[list[str], list[str]], tuple[list[str], list[str]]]:
    """Return (first, second) sentences of up to `count` STS-B dev pairs with a high gold score, and of as many with a low one.

    Pairs that differ only in case are left out, because their attention is the same without dropout.
    """
    pairs = load_sts_task("STSBenchmark-dev", senteval_root(folder)).subsets["dev"]
    differ = np.array([one.lower() != other.lower() for one, other in zip(pairs.first, pairs.second, strict=True)])

    def chosen(wanted: np.ndarray) -> tuple[list[str], list[str]]:
        rows = np.flatnonzero(wanted & differ)[:count]
        return [pairs.first[row] for row in rows], [pairs.second[row] for row in rows]

    return chosen(pairs.gold >= ALIKE), chosen(pairs.gold <= UNLIKE)


def sample_sentences(source: str | Path, count: int, seed: int = 0) -> list[str]:
    """Return up to `count` distinct sentences, drawn by `seed`, of STS-B dev in a SentEval folder or of a text file.

    DataError where there are fewer than two.
    """
    random = np.random.default_rng(seed)
    if user_path(source).is_dir():
        pairs = load_sts_task("STSBenchmark-dev", senteval_root(source)).subsets["dev"]
        everything: Sequence[str] | Any = [*pairs.first, *pairs.second]
    else:
        everything = open_corpus(str(source))
    drawn = random.permutation(len(everything))[: 2 * count]  # twice as many, for the duplicates
    sentences = list(dict.fromkeys(everything[int(row)] for row in drawn))[:count]
    if len(sentences) < 2:
        raise DataError(f"{source}: {len(sentences)} distinct sentences: negative pairs need two")
    return sentences


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument(
        "--model", type=user_path, required=True, nargs="+", metavar="DIR",
        help="work directory, export, or another BERT directory; two are drawn side by side, with the same pairs and ranges",
    )  # fmt: skip
    found.add_argument(
        "--parses", type=user_path, metavar="FILE",
        help="CoNLL-U file: its sentences as pairs with the same and with different dependency trees, in another picture",
    )  # fmt: skip
    found.add_argument("--data", type=user_path, required=True, help="SentEval folder, or (for --views dropout) a text file")
    found.add_argument("--output", type=user_path, required=True, help="folder for the pictures")
    found.add_argument(
        "--views", choices=("dropout", "gold"), default="dropout",
        help="dropout (default), as in the paper: positives are two dropout views of a sentence, negatives views of two sentences; "
        "gold: STS-B dev pairs that people call alike or unlike, without dropout",
    )  # fmt: skip
    found.add_argument("--pairs", type=positive, default=500, help="most pairs of a kind (500)")
    found.add_argument("--dropout", type=finite, default=0.1, help="rate of the views (0.1)")
    found.add_argument("--sentence", default=FIGURE_8, help="whose attention is drawn (that of the paper's figure)")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; print the files written, or a line on what is wrong."""
    options = parser().parse_args(arguments)
    try:
        require_matplotlib()
        pictures = draw(options)
    except UserError as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return error.exit_code
    for picture in pictures:
        print(plain(f"written: {picture} and {picture.with_suffix('.csv').name}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
