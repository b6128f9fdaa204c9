"""From `--config RECIPE --config.section.field=value` to a Config."""

import functools
import os
import re
import shutil
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_sentemb.cli.program import Parser
from jax_sentemb.errors import ConfigError
from jax_sentemb.files import user_path
from jax_sentemb.recipes import description, missing_part, suggestion
from jax_sentemb.recipes import read_config as read_config

if TYPE_CHECKING:
    from jax_sentemb.config import Config, Variant

DESCRIPTION = "Train a sentence encoder without labels, score it, and export it for sentence-transformers."
EPILOG = """\
--config.SECTION.FIELD=VALUE changes a setting; --config RECIPE --help explains all settings of a recipe with their values.
A .yaml file names a recipe and what differs from it: `recipe: simcse`, and under `data:` for instance `batch_size: 128`.

examples:
  jax-sentemb train --config quickstart
  jax-sentemb train --config micse --workdir runs/micse \\
      --config.data.files=corpus.txt --config.encoder.weights=path/to/bert

Exit codes: 0 done, 2 usage or configuration, 3 data, 4 model file or checkpoint, 5 numerics (NaN, collapse),
6 work directory busy, 7 disk or memory full, 75 stopped by a signal after saving: run the command again.
"""


def parser() -> Parser:
    """The options of `train` beside the settings."""
    found = Parser(
        prog="jax-sentemb train",
        usage="jax-sentemb train --config RECIPE [--workdir DIR] [--config.SECTION.FIELD=VALUE ...]",
        description=DESCRIPTION, epilog=EPILOG, add_help=False, allow_abbrev=False,
    )  # fmt: skip
    found.add_argument("-h", "--help", action="store_true", help="this text; beside --config also the settings of the recipe")
    found.add_argument(
        "--config", metavar="RECIPE", nargs="?", const="", default="",
        help="a recipe by name (jax-sentemb recipes lists them) or by file (.py, .yaml); RECIPE:tiny is a run of seconds",
    )  # fmt: skip
    found.add_argument(
        "--workdir", type=user_path, metavar="DIR",
        help="checkpoints, log, scores and export go here (default: runs/NAME of the recipe); the same command again continues",
    )  # fmt: skip
    found.add_argument(
        "--distributed", action="store_true", help="one of several processes that find each other: TPU pods, SLURM, MPI"
    )
    found.add_argument("--coordinator", default="", metavar="HOST:PORT", help="elsewhere: address of process 0")
    found.add_argument("--processes", type=int, default=0, metavar="N", help="how many processes there are")
    found.add_argument("--process", type=int, default=-1, metavar="I", help="which of them this is, from 0")
    found.add_argument("--debug", action="store_true", help="show a traceback with an error")
    return found


def parse(argv: list[str]) -> tuple[Any, Path, dict[str, Any]]:
    """The Config with its overrides, the work directory, and how to join other processes. Prints help and exits 0 when asked to."""
    spelled = [re.sub(r"^-(?=[a-z][a-z.])", "--", argument).replace("--helpfull", "--help") for argument in argv[1:]]
    found = parser()
    options, rest = found.parse_known_args(spelled)
    if options.help and not options.config:
        found.print_help()
        raise SystemExit(0)
    if not options.config:
        raise ConfigError("no --config: name a recipe, for instance --config micse (jax-sentemb recipes lists them)")
    from jax_sentemb.config import check

    config = _overridden(options.config, [argv[0], *rest], found)
    if options.help:
        found.print_help()
        about = f"\n{options.config}:\n\n{text}\n" if (text := description(options.config)) else ""
        print(f"{about}\nSettings of {options.config}, with their values:\n\n{settings_text(config)}")
        raise SystemExit(0)
    check(config)
    how = {
        "automatic": options.distributed,
        "coordinator": options.coordinator,
        "processes": options.processes,
        "process": options.process,
    }
    stem = user_path(options.config.partition(":")[0]).stem
    return config, options.workdir or user_path(f"runs/{stem}"), how


def _overridden(recipe: str, argv: list[str], options: Parser) -> Any:
    """The Config of a recipe with the settings of a command line."""
    from absl import flags
    from ml_collections import config_flags

    from jax_sentemb.config import flatten

    if twice := [name for name, count in Counter(filter(None, map(_name, argv[1:]))).items() if count > 1]:
        raise ConfigError(f"--{twice[0]} is given twice: leave one of them out")
    config = read_config(recipe)
    for name in filter(None, map(_name, argv[1:])):
        if not re.match(r"(no)?config\.", name):
            options.refuse(f"--{name}", suggestion(name.replace("-", "_"), flatten(config), "--config."))
    argv = [argv[0], f"--config={recipe}", *argv[1:]]
    values = flags.FlagValues()
    config_flags.DEFINE_config_dataclass("config", config, flag_values=values, sys_argv=argv, parse_fn=lambda path: config)
    try:
        stray = values(argv)[1:]
    except (flags.Error, LookupError, TypeError, ValueError) as error:  # a dozen kinds from the library, for the same mistakes
        raise ConfigError(_why_not(argv, config, str(error))) from error
    if stray:
        raise ConfigError(f"unexpected argument {stray[0]!r}: settings are written --config.section.field=value")
    return values.config


def settings_text(config: "Config") -> str:
    """Every setting of a config by section: name, value, meaning, limits, and the default where the recipe has another value.

    Of a study the names of its variants, which have their own settings of the method; the sweep decides some others.
    """
    from jax_sentemb.config import setting_lines, swept

    width = min(shutil.get_terminal_size((100, 24)).columns if "COLUMNS" in os.environ or os.isatty(1) else 100, 132)
    blocks: dict[str, list[str]] = {}
    fill = functools.partial(textwrap.fill, width=width, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
    decided = {name: "  (some variants set it)" for one in config.variants.values() for name in _own_settings(one)}
    decided |= {name: "  (the sweep sets it)" for name in swept(config.sweep)}
    for line in setting_lines(config):
        if config.variants and line.section.partition(".")[0] == "method":
            continue
        block = blocks.setdefault(line.section, [f"{line.section or 'run'}: {line.about}"])
        if line.name == "variants" and config.variants:
            block.append(f"  variants, with settings of their own:\n{fill(', '.join(config.variants))}")
        else:
            block.append(f"  --config.{line.name}={line.value!r}{decided.get(line.name, '')}")
        if line.text:
            block.append(fill(line.text))
    return "\n\n".join("\n".join(block) for block in blocks.values())


def _own_settings(variant: "Variant") -> set[str]:
    return {*variant.settings, *(name for settings in variant.by_subset.values() for name in settings)}


def _name(argument: str) -> str:
    """The name in --NAME and --NAME=VALUE, "" for an argument that is not an option."""
    found = re.match("--([a-z][^=]*)", argument)
    return found[1] if found else ""


def _why_not(argv: list[str], config: Any, error: str) -> str:
    """What to say of the `error` of the flags' library: of the first --config.NAME that is not a setting, or of a wrong value.

    A name is unknown (the nearest one is proposed), or it is a part of the config.
    """
    from jax_sentemb.config import NAMES, flatten

    settings = flatten(config)
    for name in (_name(argument) for argument in argv if _name(argument).startswith("config.")):
        path = name.removeprefix("config.")
        if problem := missing_part(path, settings):
            return f"--config.{problem}"
        if inside := [key for key in settings if key.startswith(f"{path}.")]:
            return f"--{name} is a part of the config, not a setting: set what is in it, for instance --config.{inside[0]}"
        if path not in settings:
            return f"--{name} is unknown{suggestion(path, settings, '--config.')}"
        if isinstance(settings[path], dict):
            return f"--{name} is not a number, text, or True or False: write it into a .py recipe"
    wrong = re.match(r"flag --config\.([\w.]+)=(.*?): ", error)
    if wrong and (kind := NAMES.get(type(settings.get(wrong[1])))):
        return f"--config.{wrong[1]}={wrong[2]} is not {kind}"
    return error.splitlines()[0]
