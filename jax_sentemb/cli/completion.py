"""Run `jax-sentemb completion SHELL`: print a script with which bash, zsh or fish complete commands, options and recipes."""

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
    """Return the parser of the options."""
    parser = Parser(
        prog="jax-sentemb completion", description="Print the script that completes jax-sentemb in a shell.", epilog=EPILOG
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    return parser


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    from argcomplete.shell_integration import shellcode

    shell = parser().parse_args(argv[1:]).shell
    print(shellcode(["jax-sentemb"], shell=shell))
    return 0


def complete(commands: dict[str, tuple[str, str]]) -> None:
    """Print the completions of the command line in COMP_LINE for a shell, and end the process.

    Only the module of the command in that line is imported.
    """
    import argcomplete

    from jax_sentemb import recipes

    top = argparse.ArgumentParser(prog="jax-sentemb")
    subparsers = top.add_subparsers()
    words = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))].split()
    for name, (module, about) in commands.items():
        options = [importlib.import_module(module).parser()] if name in words[1:2] else []
        added = subparsers.add_parser(name, help=about, parents=options, conflict_handler="resolve")
        for action in added._actions:
            if {"--config", "name"} & {*action.option_strings, action.dest}:
                action.completer = lambda **_: recipes.names()  # pyright: ignore[reportAttributeAccessIssue]
        if options and name in ("train", "plan") and words[-1].startswith("--config."):
            for setting in _settings(words):
                added.add_argument(f"--config.{setting}")
    argcomplete.autocomplete(top)


def _settings(words: list[str]) -> list[str]:
    """Return the names of the settings of the recipe in a command line, or those of simcse if it names none."""
    from jax_sentemb.errors import ConfigError
    from jax_sentemb.recipes import read_config
    from jax_sentemb.settings import flatten

    names = [value for word, value in pairwise(words) if word == "--config"]
    names += [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    try:
        return list(flatten(read_config(names[0] if names else "simcse")))
    except ConfigError:
        return []


if __name__ == "__main__":
    start(main)
