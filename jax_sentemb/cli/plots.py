"""Run `jax-sentemb plots PLOT`: draw pictures of a run or of a low-shot study."""

import argparse
from collections.abc import Callable
from pathlib import Path

from jax_sentemb.cli.program import EXIT_CODES, Parser, start
from jax_sentemb.errors import ConfigError, plain
from jax_sentemb.files import user_path
from jax_sentemb.reporting.plot_data import read_low_shot, read_metrics
from jax_sentemb.reporting.plots import (
    alignment_uniformity,
    low_shot_curves,
    picture_path,
    require_matplotlib,
    table_path,
)


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first), print the names of the files, and return the exit code."""
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
    score = "average of the sets" if options.column == "average" else options.column
    return [low_shot_curves(options.output, curves, options.title, f"Spearman x 100, {score}")]


def parser() -> Parser:
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb plots",
        description="Draw the results of a run or a study.",
        epilog=f"example:\n  jax-sentemb plots run --help\n\n{EXIT_CODES}",
    )
    plots = parser.add_subparsers(dest="plot", required=True, metavar="PLOT")

    def add_plot(name: str, draw: Callable[[argparse.Namespace], list[Path]], text: str) -> argparse.ArgumentParser:
        added = plots.add_parser(name, help=text, description=text)
        added.set_defaults(draw=draw)
        return added

    run = add_plot("run", _plot_run, "alignment, uniformity and spread over the steps of a run")
    run.add_argument("--workdir", type=user_path, required=True, help="work directory of the run")
    run.add_argument("--output", type=user_path, help="PNG file (default: WORKDIR/plots/alignment_uniformity.png)")
    low_shot = add_plot("low-shot", _plot_low_shot, "score against the number of training sentences")
    low_shot.add_argument("--results", type=user_path, required=True, help="CSV file, one row per run: method, sentences, scores")
    low_shot.add_argument("--column", default="average", help="the score to draw (default: average)")
    low_shot.add_argument("--title", default="Training on few sentences", help="the title of the picture")
    low_shot.add_argument("--output", type=user_path, required=True, help="PNG file")
    return parser


if __name__ == "__main__":
    start(main)
