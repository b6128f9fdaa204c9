"""The command `jax-sentemb`, also `python -m jax_sentemb`: one name for all commands."""

import difflib
import importlib
import sys

from jax_sentemb import __version__
from jax_sentemb.cli.program import program
from jax_sentemb.errors import ConfigError

# Name -> module whose `main` it is, and what it does.
COMMANDS = {
    "check": ("jax_sentemb.cli.check", "what a corpus is like, and which recipe fits it"),
    "train": ("jax_sentemb.main", "train an encoder on a text file, score it, export it"),
    "plan": ("jax_sentemb.cli.plan", "whether a run fits TPUs or GPUs that are not there, and a bound of its speed"),
    "evaluate": ("jax_sentemb.cli.evaluate", "score models on similarity, transfer, probing and argument tasks"),
    "encode": ("jax_sentemb.cli.encode", "vectors of a text file of any size, in files"),
    "search": ("jax_sentemb.cli.search", "the sentences of a corpus that are most similar to queries"),
    "mine": ("jax_sentemb.cli.mine", "the most similar pairs of a corpus"),
    "cluster": ("jax_sentemb.cli.cluster", "groups of similar sentences of a corpus"),
    "report": ("jax_sentemb.cli.report", "report.html from the files of a work directory"),
    "plots": ("jax_sentemb.cli.plots", "pictures of a run, of attention, of a low-shot study"),
    "export": ("jax_sentemb.cli.export", "a checkpoint as a directory for sentence-transformers"),
}


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    name = argv[1] if len(argv) > 1 else "--help"
    if name in ("--help", "-h"):
        print("Sentence embeddings without labels.\n\nusage: jax-sentemb COMMAND [options]\n")
        print("\n".join(f"  {command:<10}{about}" for command, (_, about) in COMMANDS.items()))
        print("\njax-sentemb COMMAND --help shows options, an example and exit codes; --version the version.")
    elif name == "--version":
        print(f"jax_sentemb {__version__}")
    elif name in COMMANDS:
        return importlib.import_module(COMMANDS[name][0]).main([f"jax-sentemb {name}", *argv[2:]])
    else:
        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(COMMANDS)}"
        raise ConfigError(f"{name!r} is no command; {hint}")
    return 0


def run() -> None:
    """The console script."""
    sys.exit(program(main, sys.argv))


if __name__ == "__main__":
    run()
