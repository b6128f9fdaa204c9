"""The command `jax-sentemb`, also `python -m jax_sentemb`: one name for all commands."""

import difflib
import importlib
import os
from typing import TYPE_CHECKING

from jax_sentemb import __version__
from jax_sentemb.cli import interrupts

if TYPE_CHECKING:
    from jax_sentemb.cli.program import Parser

# Name -> module whose `main` it is, and what it does.
COMMANDS = {
    "recipes": ("jax_sentemb.cli.recipes", "what can be trained, by name"),
    "check": ("jax_sentemb.cli.check", "what a corpus is like, and which recipe fits it"),
    "train": ("jax_sentemb.cli.train", "train an encoder on a text file, score it, export it"),
    "plan": ("jax_sentemb.cli.plan", "whether a run fits TPUs or GPUs that are not there, and a bound of its speed"),
    "evaluate": ("jax_sentemb.cli.evaluate", "score models on similarity, transfer, probing and argument tasks"),
    "encode": ("jax_sentemb.cli.encode", "vectors of a text file of any size, in files"),
    "search": ("jax_sentemb.cli.search", "the sentences of a corpus that are most similar to queries"),
    "mine": ("jax_sentemb.cli.mine", "the most similar pairs of a corpus"),
    "cluster": ("jax_sentemb.cli.cluster", "groups of similar sentences of a corpus"),
    "report": ("jax_sentemb.cli.report", "report.html from the files of a work directory"),
    "plots": ("jax_sentemb.cli.plots", "pictures of a run, of attention, of a low-shot study"),
    "distill": ("jax_sentemb.cli.distill", "an encoder as a small static table, many times faster"),
    "postprocess": ("jax_sentemb.cli.postprocess", "a linear map behind the pooling, fitted on your text, in an export"),
    "export": ("jax_sentemb.cli.export", "a checkpoint as a directory for sentence-transformers"),
    "completion": ("jax_sentemb.cli.completion", "a script that completes commands and options in a shell"),
}


EPILOG = """\
jax-sentemb COMMAND --help shows the options, examples and exit codes of a command.

examples:
  jax-sentemb check corpus.txt
  jax-sentemb recipes
  jax-sentemb train --config quickstart
"""


def parser() -> "Parser":
    """The commands; each has a parser of its own, which is imported when the command is called."""
    from jax_sentemb.cli.program import Parser

    found = Parser(prog="jax-sentemb", description="Sentence embeddings without labels.", epilog=EPILOG)
    found.add_argument("--version", action="version", version=f"jax_sentemb {__version__}")
    commands = found.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, (_, about) in COMMANDS.items():
        commands.add_parser(name, help=about, add_help=False)
    return found


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    if len(argv) == 1:
        parser().print_help()
        return 0
    name = argv[1]
    if name in COMMANDS:
        return importlib.import_module(COMMANDS[name][0]).main([f"jax-sentemb {name}", *argv[2:]])
    if not name.startswith("-"):
        from jax_sentemb.errors import ConfigError

        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(COMMANDS)}"
        raise ConfigError(f"{name!r} is not a command; {hint}")
    parser().parse_args([name, *argv[2:]])
    return 0


def run() -> None:
    """The console script."""
    interrupts.end_at_once()
    from jax_sentemb.cli.program import start

    if "_ARGCOMPLETE" in os.environ:  # a shell asks how the command line goes on
        from jax_sentemb.cli.completion import complete

        complete(COMMANDS)
    start(main)


if __name__ == "__main__":
    run()
