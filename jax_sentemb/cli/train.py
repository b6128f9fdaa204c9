"""Run `jax-sentemb train`: read `--config RECIPE --config.section.field=value` as a Config, and run it."""

import functools
import os
import re
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_sentemb.cli import interrupts
from jax_sentemb.cli.program import Parser, start
from jax_sentemb.errors import ConfigError, Setting, flag, plain, spelled
from jax_sentemb.files import user_path
from jax_sentemb.recipes import change, description, names, read_config, suggestion
from jax_sentemb.settings import BOOLEANS, possible
from jax_sentemb.system.allocator import keep_freed_memory

if TYPE_CHECKING:
    from jax_sentemb.config import Config, Variant

DESCRIPTION = "Train a sentence encoder without labels, score it, and export it for sentence-transformers."
EPILOG = """\
--config.SECTION.FIELD=VALUE changes a setting. --config RECIPE --help explains all settings of a recipe with their values.
A .yaml file names a recipe and the settings that differ: `recipe: simcse`, and under `data:` for instance `batch_size: 128`.

examples:
  jax-sentemb train --config quickstart
  jax-sentemb train --config micse --workdir runs/micse \\
      --config.data.files=corpus.txt --config.encoder.weights=path/to/bert

Exit codes: 0 done, 2 usage or configuration, 3 data, 4 model file or checkpoint, 5 numerics (NaN, collapse),
6 work directory busy, 7 disk or memory full, 75 stopped by a signal after saving: run the command again.
"""


def parser() -> Parser:
    """Return the parser of the options other than the settings."""
    parser = Parser(
        prog="jax-sentemb train",
        usage="jax-sentemb train --config RECIPE [--workdir DIR] [--config.SECTION.FIELD=VALUE ...]",
        description=DESCRIPTION, epilog=EPILOG, add_help=False, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("-h", "--help", action="store_true", help="print this text and, with --config, the settings of the recipe")
    parser.add_argument(
        "--config", metavar="RECIPE", nargs="?", const="", default="",
        help="name of a recipe (jax-sentemb recipes lists them) or its file (.py, .yaml); RECIPE:tiny is a test of a few seconds",
    )  # fmt: skip
    parser.add_argument(
        "--workdir", type=user_path, metavar="DIR",
        help="folder of checkpoints, log, scores and export (default: runs/NAME of the recipe); the same command resumes the run",
    )  # fmt: skip
    parser.add_argument(
        "--distributed", action="store_true", help="run as one of several processes that find each other: TPU pods, SLURM, MPI"
    )
    parser.add_argument("--coordinator", default="", metavar="HOST:PORT", help="without --distributed: address of process 0")
    parser.add_argument("--processes", type=int, default=0, metavar="N", help="number of processes")
    parser.add_argument("--process", type=int, default=-1, metavar="I", help="number of this process, from 0")
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    return parser


def parse(argv: list[str]) -> tuple[Any, Path, dict[str, Any]]:
    """Parse a command line. With --help, print the help and exit with 0.

    Returns:
        The Config with its overrides, the work directory, and the arguments of `parallel.Join`.
    """
    spelled = [re.sub(r"^-(?=[a-z][a-z.])", "--", argument).replace("--helpfull", "--help") for argument in argv[1:]]
    command_parser = parser()
    options, rest = command_parser.parse_known_args(spelled)
    if options.help and not options.config:
        command_parser.print_help()
        raise SystemExit(0)
    if not options.config:
        given = next((argument for argument in rest if not argument.startswith("-")), "a recipe")
        problem = f"no --config: give --config {given}" if given in names() else "no --config: name a recipe, as --config adapt"
        raise ConfigError(f"{problem} (jax-sentemb recipes lists them)")
    from jax_sentemb.config import check

    config = read_config(options.config)
    change(config, config_settings(rest, config, command_parser))
    if options.help:
        command_parser.print_help()
        about = f"\n{options.config}:\n\n{text}\n" if (text := description(options.config)) else ""
        print(plain(f"{about}\nSettings of {options.config}, with their values:\n\n{settings_text(config)}"))
        raise SystemExit(0)
    check(config)
    join = {
        "automatic": options.distributed,
        "coordinator": options.coordinator,
        "processes": options.processes,
        "process": options.process,
    }
    stem = user_path(options.config.partition(":")[0]).stem
    return config, options.workdir or user_path(f"runs/{stem}"), join


def config_settings(arguments: list[str], config: "Config", options: Parser) -> list[tuple[str, Any]]:
    """Return the settings in the arguments --config.NAME=VALUE, --config.NAME VALUE, and --config.NAME for True."""
    known, settings, rest = possible(config), [], list(arguments)
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if not option.startswith("--"):
            raise ConfigError(f"unexpected argument {option + equals + value!r}: write a setting as --config.SECTION.FIELD=VALUE")
        if not option.startswith("--config."):
            advice = ConfigError(*suggestion(option.removeprefix("--").replace("-", "_"), known)).text(flag)
            options.refuse(option, advice)
        name = option.removeprefix("--config.")
        if not equals and isinstance(known.get(name), bool) and (not rest or rest[0].lower() not in BOOLEANS):
            value = "true"
        elif not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        elif not equals and name in known:
            raise ConfigError(Setting(name), " has no value: write for instance ", Setting(name, known[name]))
        settings.append((name, value))
    return settings


def settings_text(config: "Config") -> str:
    """Return a text about every setting by section: name, value, meaning, limits, and the default if the value differs from it.

    A study has the names of its variants instead of the settings of the method. Settings that a sweep changes are marked.
    """
    from jax_sentemb.config import setting_lines, swept

    width = min(shutil.get_terminal_size((100, 24)).columns if "COLUMNS" in os.environ or os.isatty(1) else 100, 132)
    blocks: dict[str, list[str]] = {}
    fill = functools.partial(textwrap.fill, width=width, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
    decided = {name: "  (some variants set it)" for variant in config.variants.values() for name in _variant_settings(variant)}
    decided |= {name: "  (the sweep sets it)" for name in swept(config.sweep)}
    for line in setting_lines(config):
        if config.variants and line.section.partition(".")[0] == "method":
            continue
        block = blocks.setdefault(line.section, [f"{line.section or 'run'}: {line.about}"])
        if line.name == "variants" and config.variants:
            block.append(f"  variants, each with its own settings:\n{fill(', '.join(config.variants))}")
        else:
            block.append(f"  --config.{line.name}={line.value!r}{decided.get(line.name, '')}")
        if line.text:
            block.append(fill(line.text))
    return "\n\n".join("\n".join(block) for block in blocks.values())


def _variant_settings(variant: "Variant") -> set[str]:
    return {*variant.settings, *(name for settings in variant.by_subset.values() for name in settings)}


def main(argv: list[str]) -> int:
    """Run the command line `argv` (program name first) and return the exit code."""
    with spelled(flag):
        config, workdir, join = parse(argv)
        keep_freed_memory()
        from jax_sentemb import parallel  # after parsing: --help and mistakes answer without loading JAX's compiler

        parallel.join(parallel.Join(**join))
        parallel.use_compilation_cache()
        from jax_sentemb.training.run import run

        with interrupts.ending_at_once():
            return run(config, workdir)


if __name__ == "__main__":
    start(main)
