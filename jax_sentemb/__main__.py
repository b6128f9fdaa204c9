"""Run the command `jax-sentemb`, also as `python -m jax_sentemb`: one name for all commands."""

import difflib
import importlib
import os
from typing import TYPE_CHECKING

from jax_sentemb import __version__
from jax_sentemb.cli import interrupts

if TYPE_CHECKING:
    from jax_sentemb.cli.program import Parser

# Name -> module with its `main`, and what it does.
COMMANDS = {
    "recipes": ("jax_sentemb.cli.recipes", "list what can be trained"),
    "check": ("jax_sentemb.cli.check", "inspect a corpus and recommend a recipe for it"),
    "train": ("jax_sentemb.cli.train", "train an encoder on a text file, score it, export it"),
    "plan": ("jax_sentemb.cli.plan", "estimate whether a run fits TPUs or GPUs that you do not have, and how fast it can be"),
    "compare": ("jax_sentemb.cli.compare", "compare recipes on one corpus: baselines, seeds, intervals"),
    "evaluate": ("jax_sentemb.cli.evaluate", "score models on similarity, transfer, probing and argument tasks"),
    "encode": ("jax_sentemb.cli.encode", "write the vectors of a text file of any size"),
    "search": ("jax_sentemb.cli.search", "find the sentences of a corpus that are most similar to queries"),
    "mine": ("jax_sentemb.cli.mine", "find the most similar pairs of a corpus"),
    "cluster": ("jax_sentemb.cli.cluster", "group the similar sentences of a corpus"),
    "dedup": ("jax_sentemb.cli.dedup", "write a corpus without exact and near duplicates"),
    "map": ("jax_sentemb.cli.map", "draw a map of a corpus under one model or two, as a page"),
    "report": ("jax_sentemb.cli.report", "write report.html from the files of a work directory"),
    "plots": ("jax_sentemb.cli.plots", "draw pictures of a run or of a low-shot study"),
    "distill": ("jax_sentemb.cli.distill", "turn an encoder into a small static table that is many times faster"),
    "postprocess": ("jax_sentemb.cli.postprocess", "fit a linear map after the pooling on your text and add it to an export"),
    "export": ("jax_sentemb.cli.export", "export a checkpoint as a directory for sentence-transformers"),
    "completion": ("jax_sentemb.cli.completion", "print a script that completes commands and options in a shell"),
}


EPILOG = """\
jax-sentemb COMMAND --help shows the options, examples and exit codes of a command.

examples:
  jax-sentemb check corpus.txt
  jax-sentemb recipes
  jax-sentemb train --config quickstart
"""


def parser() -> "Parser":
    """Return the parser of the commands; each command has its own parser, which is imported when it is called."""
    from jax_sentemb.cli.program import Parser

    parser = Parser(prog="jax-sentemb", description="Sentence embeddings without labels.", epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"jax_sentemb {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, (_, about) in COMMANDS.items():
        commands.add_parser(name, help=about, add_help=False)
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return its exit code."""
    if len(argv) == 1:
        parser().print_help()
        return 0
    name = argv[1]
    if name in COMMANDS:
        with interrupts.ending_at_once():
            module = importlib.import_module(COMMANDS[name][0])
        return module.main([f"jax-sentemb {name}", *argv[2:]])
    if not name.startswith("-"):
        from jax_sentemb.errors import ConfigError

        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(COMMANDS)}"
        raise ConfigError(f"{name!r} is not a command; {hint}")
    if name.startswith("--config"):
        from jax_sentemb.errors import ConfigError

        raise ConfigError(f"{name.partition('=')[0]} needs a command before it, such as jax-sentemb train {name}")
    parser().parse_args([name, *argv[2:]])
    return 0


def run() -> None:
    """Run the console script."""
    interrupts.end_at_once()
    from jax_sentemb.cli.program import start

    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        from jax_sentemb.cli.completion import complete

        complete(COMMANDS)
    start(main)


if __name__ == "__main__":
    run()
