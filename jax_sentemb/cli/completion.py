"""jax-sentemb completion SHELL: a script with which bash, zsh or fish complete commands, options and recipes."""

import argparse
import importlib
import os
from itertools import pairwise

from jax_sentemb.cli.program import EXIT_CODES, Parser, start

EPILOG = f"""\
examples:
  jax-sentemb completion bash >> ~/.bashrc
  jax-sentemb completion fish > ~/.config/fish/completions/jax-sentemb.fish

{EXIT_CODES}"""


def parser() -> Parser:
    """The options."""
    found = Parser(
        prog="jax-sentemb completion", description="Print the script that completes jax-sentemb in a shell.", epilog=EPILOG
    )
    found.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    return found


def main(argv: list[str]) -> int:
    """Exit code of the command line `argv` (program name first)."""
    from argcomplete.shell_integration import shellcode

    shell = parser().parse_args(argv[1:]).shell
    print(shellcode(["jax-sentemb"], shell=shell))
    return 0


def complete(commands: dict[str, tuple[str, str]]) -> None:
    """Answers a shell that asks how the command line in COMP_LINE goes on, and ends the process.

    Only the module of the command that stands there is imported.
    """
    import argcomplete

    from jax_sentemb import recipes

    top = argparse.ArgumentParser(prog="jax-sentemb")
    found = top.add_subparsers()
    words = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))].split()
    for name, (module, about) in commands.items():
        options = [importlib.import_module(module).parser()] if name in words[1:2] else []
        added = found.add_parser(name, help=about, parents=options, conflict_handler="resolve")
        for action in added._actions:
            if {"--config", "name"} & {*action.option_strings, action.dest}:
                action.completer = lambda **_: recipes.names()  # pyright: ignore[reportAttributeAccessIssue]
        if options and name in ("train", "plan") and words[-1].startswith("--config."):
            for setting in _settings(words):
                added.add_argument(f"--config.{setting}")
    argcomplete.autocomplete(top)


def _settings(words: list[str]) -> list[str]:
    """The names of the settings of the recipe of a command line; of simcse where it has none."""
    from jax_sentemb.errors import ConfigError
    from jax_sentemb.recipes import read_config
    from jax_sentemb.settings import flatten

    named = [after for word, after in pairwise(words) if word == "--config"]
    named += [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    try:
        return list(flatten(read_config(named[0] if named else "simcse")))
    except ConfigError:
        return []


if __name__ == "__main__":
    start(main)
