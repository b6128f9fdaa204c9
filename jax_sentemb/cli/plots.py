"""jax-sentemb plots KIND: pictures of a run, of attention, or of a low-shot study."""

import argparse
from collections.abc import Callable
from pathlib import Path

from jax_sentemb.cli.program import EXIT_CODES, Parser, finite, positive, start
from jax_sentemb.errors import ConfigError, plain
from jax_sentemb.files import user_path
from jax_sentemb.reporting.plot_data import ALIKE, UNLIKE, SentencePairs, gold_pairs, read_low_shot, read_metrics, sample_sentences
from jax_sentemb.reporting.plots import (
    FIGURE_8,
    alignment_uniformity,
    attention_histograms,
    low_shot_curves,
    picture_path,
    require_matplotlib,
    table_path,
)


def plot_attention(options: argparse.Namespace) -> list[Path]:
    """The pictures of `attention` on the command line: Figs. 5, 6 and 8 of miCSE for one encoder directory, or for two."""
    from jax_sentemb.reporting.attention import attention_values, comparison, slice_names, view_seeds
    from jax_sentemb.reporting.pair_plots import PairModel, model_names, pair_panels

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
    from jax_sentemb.parallel import use_compilation_cache

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


def _pairs_of(options: argparse.Namespace) -> tuple[dict[str, SentencePairs], str]:
    """Positive and negative pairs of sentences, and what they are in words."""
    if options.views == "gold":
        positive, negative = (list(zip(*sides, strict=True)) for sides in gold_pairs(options.data, options.pairs))
        kind = f"STS-B dev, positive: gold >= {ALIKE:g}, negative: gold <= {UNLIKE:g}\n(pairs of equal sentences left out)"
        return {"positive": positive, "negative": negative}, kind
    views = sample_sentences(options.data, options.pairs)
    kind = f"views by dropout {options.dropout:g} of one sentence (positive) and of two (negative)"
    others = views[1:] + views[:1]
    return {"positive": list(zip(views, views, strict=True)), "negative": list(zip(views, others, strict=True))}, kind


def _pairs_by_syntax(options: argparse.Namespace) -> dict[str, SentencePairs]:
    """Pairs with the same and with different dependency trees of --parses; none without that."""
    from jax_sentemb.data.conllu import read_conllu
    from jax_sentemb.reporting.pair_plots import syntax_pairs

    if not options.parses:
        return {}
    parses = read_conllu(options.parses)
    same, different = syntax_pairs(parses, options.pairs)
    texts = [[(parses[first].text, parses[second].text) for first, second in pairs] for pairs in (same, different)]
    return dict(zip(("same tree", "different trees"), texts, strict=True))


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first); prints the files written."""
    options = parser().parse_args(argv[1:])
    require_matplotlib()  # before anything that takes time
    for picture in options.draw(options):
        print(plain(f"written: {picture} and {picture.with_suffix('.csv').name}"))
    return 0


def _plot_run(options: argparse.Namespace) -> list[Path]:
    workdir = options.workdir
    output = options.output or workdir / "plots" / "alignment_uniformity.png"
    return [alignment_uniformity(output, read_metrics(workdir), f"{workdir.resolve().name}: alignment and uniformity")]


def _plot_low_shot(options: argparse.Namespace) -> list[Path]:
    if table_path(picture_path(options.output)).resolve() == options.results.resolve():
        raise ConfigError(f"--output {options.output}: its CSV file would replace --results: give another name")
    curves = read_low_shot(options.results, options.column)
    what = "average of the sets" if options.column == "average" else options.column
    return [low_shot_curves(options.output, curves, options.title, f"Spearman x 100, {what}")]


def parser() -> Parser:
    """The options."""
    found = Parser(
        prog="jax-sentemb plots",
        description="Draw what a run, an encoder or a study shows.",
        epilog=f"example:\n  jax-sentemb plots run --help\n\n{EXIT_CODES}",
    )
    kinds = found.add_subparsers(dest="kind", required=True, metavar="KIND")

    def kind(name: str, draw: Callable[[argparse.Namespace], list[Path]], says: str) -> argparse.ArgumentParser:
        added = kinds.add_parser(name, help=says, description=says)
        added.set_defaults(draw=draw)
        return added

    run = kind("run", _plot_run, "alignment, uniformity and spread over the steps of a run")
    run.add_argument("--workdir", type=user_path, required=True, help="work directory of the run")
    run.add_argument("--output", type=user_path, help="PNG file; otherwise WORKDIR/plots/alignment_uniformity.png")
    attention = kind("attention", plot_attention, "attention of two views, and attention against semantic similarity of pairs")
    attention.add_argument(
        "--model", type=user_path, required=True, nargs="+", metavar="DIR",
        help="work directory, export, or another BERT directory; two are drawn side by side, with the same pairs and ranges",
    )  # fmt: skip
    attention.add_argument(
        "--parses", type=user_path, metavar="FILE",
        help="CoNLL-U file: its sentences as pairs with the same and with different dependency trees, in another picture",
    )  # fmt: skip
    attention.add_argument("--data", type=user_path, required=True, help="SentEval folder, or (for --views dropout) a text file")
    attention.add_argument("--output", type=user_path, required=True, help="folder for the pictures")
    attention.add_argument(
        "--views", choices=("dropout", "gold"), default="dropout",
        help="dropout (default), as in the paper: positives are two dropout views of a sentence, negatives views of two sentences; "
        "gold: STS-B dev pairs that people call alike or unlike, without dropout",
    )  # fmt: skip
    attention.add_argument("--pairs", type=positive, default=500, help="most pairs of a kind (500)")
    attention.add_argument("--dropout", type=finite, default=0.1, help="rate of the views (0.1)")
    attention.add_argument("--sentence", default=FIGURE_8, help="whose attention is drawn (that of the paper's figure)")
    low_shot = kind("low-shot", _plot_low_shot, "score against the number of training sentences")
    low_shot.add_argument("--results", type=user_path, required=True, help="CSV file, a row a run: method, sentences, scores")
    low_shot.add_argument("--column", default="average", help="the score to draw (average)")
    low_shot.add_argument("--title", default="Training on few sentences", help="what is written above")
    low_shot.add_argument("--output", type=user_path, required=True, help="PNG file")
    return found


if __name__ == "__main__":
    start(main)
