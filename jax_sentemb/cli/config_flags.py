"""From `--config FILE:SIZE --config.section.field=value` to a Config."""

import difflib
import re
import runpy
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from jax_sentemb.errors import ConfigError, UserError
from jax_sentemb.files import user_path


def parse(argv: list[str], usage: str) -> tuple[Any, Path, dict[str, Any]]:
    """The Config with its overrides, the work directory, and how to join other processes. Prints help and exits 0 when asked to."""
    wants_help = {"--help", "-h", "-help", "--helpfull"} & set(argv[1:])
    config_path = _value(argv, "config")
    if wants_help and not config_path:
        print(usage, end="")
        raise SystemExit(0)
    if not config_path:
        raise ConfigError("no --config: name a recipe, for instance --config configs/micse.py (--help lists all options)")
    argv = _with_current_names(argv)
    _refuse_twice(argv)
    config, values = _load([argument for argument in argv if argument not in (wants_help or ())], config_path)
    if wants_help:
        from jax_sentemb.config import flatten

        print(usage + f"\nSettings of {config_path}:")
        settings = flatten(config)
        names = settings.pop("variants")
        for name, value in settings.items():
            print(f"  --config.{name}={value!r}")
        if names:
            print(f'Variants, all of them run; some: --config.sweep="variant=A,B ...": {", ".join(names)}')
        raise SystemExit(0)
    how = {
        "automatic": values.distributed,
        "coordinator": values.coordinator,
        "processes": values.processes,
        "process": values.process,
    }
    return config, user_path(values.workdir or f"runs/{_file_and_size(config_path)[0].stem}"), how


def _with_current_names(argv: list[str]) -> list[str]:
    """The arguments with --config.SETTING by the name that it has now."""
    from jax_sentemb.config import current_name

    return [re.sub(r"(?<=^--config\.)[^=]+", lambda match: current_name(match[0]), argument) for argument in argv]


def _refuse_twice(argv: list[str]) -> None:
    """ConfigError for an option that is given twice: which of the two is meant?"""
    if twice := [name for name, count in Counter(filter(None, map(_name, argv[1:]))).items() if count > 1]:
        raise ConfigError(f"--{twice[0]} is given twice: leave one of them out")


def _load(argv: list[str], config_path: str) -> tuple[Any, Any]:
    from absl import flags
    from ml_collections import config_flags

    from jax_sentemb.config import check

    config = read_config(config_path)
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", "", "Where everything of the run goes.", flag_values=values)
    flags.DEFINE_bool("distributed", False, "One of several processes that find each other.", flag_values=values)
    flags.DEFINE_string("coordinator", "", "HOST:PORT of process 0.", flag_values=values)
    flags.DEFINE_integer("processes", 0, "How many processes there are.", flag_values=values)
    flags.DEFINE_integer("process", -1, "Which of them this is.", flag_values=values)
    config_flags.DEFINE_config_dataclass("config", config, flag_values=values, sys_argv=argv, parse_fn=lambda path: config)
    try:
        stray = values(argv)[1:]
    except (flags.Error, KeyError, TypeError, ValueError) as error:  # a dozen kinds from the library, for the same mistakes
        raise ConfigError(_why_not(argv, config) or str(error).splitlines()[0]) from error
    if stray:
        raise ConfigError(f"unexpected argument {stray[0]!r}: settings are written --config.section.field=value")
    check(values.config)
    return values.config, values


def _file_and_size(config_path: str) -> tuple[Path, list[str]]:
    """The file of FILE or FILE:SIZE, and what its get_config is called with."""
    file, *size = config_path.split(":", 1)
    return user_path(file), size


def read_config(config_path: str) -> Any:
    """The Config that FILE:SIZE makes; ConfigError, with the line of the file, for whatever it does instead."""
    from jax_sentemb.config import Config

    file, size = _file_and_size(config_path)
    if not file.is_file():
        problem = "is a directory: name a file in it" if file.is_dir() else f"no such file{_suggest(file)}"
        raise ConfigError(f"--config {file}: {problem}")
    try:
        get_config = runpy.run_path(str(file)).get("get_config")
        config = get_config(*size) if get_config else None
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # whatever the file raised
        raise ConfigError(f"--config {config_path}: {_where(error, file)}") from error
    if get_config is None:
        raise ConfigError(f"--config {file}: defines no get_config()")
    if not isinstance(config, Config):
        raise ConfigError(f"--config {config_path}: get_config returned {type(config).__name__}, not a jax_sentemb Config")
    return config


def _name(argument: str) -> str:
    """The name in --NAME and --NAME=VALUE, "" for what is no option."""
    found = re.match("--?([a-z][^=]*)", argument)
    return found[1] if found else ""


def _value(argv: list[str], name: str) -> str:
    """The value of --name VALUE or --name=VALUE, "" without one."""
    for argument, following in zip(argv, [*argv[1:], ""], strict=True):
        if _name(argument) == name:
            return argument.partition("=")[2] if "=" in argument else following
    return ""


def _suggest(file: Path) -> str:
    names = [path.name for path in file.parent.glob("*.py")] if file.parent.is_dir() else []
    close = difflib.get_close_matches(file.name, names, 1)
    return f"; did you mean {file.parent / close[0]}?" if close else ""


def _why_not(argv: list[str], config: Any) -> str:
    """What is wrong with the first --config.NAME that is no setting of `config`: unknown, with the nearest one, or a part of it."""
    from jax_sentemb.config import flatten

    settings = flatten(config)
    for name in (_name(argument) for argument in argv if _name(argument).startswith("config.")):
        path = name.removeprefix("config.")
        if empty := [key for key in settings if settings[key] is None and f"{path}.".startswith(f"{key}.")]:
            return f"--{name}: {empty[0]} is None in this config: write one into the file"
        if inside := [key for key in settings if key.startswith(f"{path}.")]:
            return f"--{name} is a part of the config, not a setting: set what is in it, for instance --config.{inside[0]}"
        if path not in settings:
            close = difflib.get_close_matches(path, settings, 1)
            hint = f"did you mean --config.{close[0]}?" if close else "--help beside --config lists all settings"
            return f"--{name} is unknown; {hint}"
    return ""


def _where(error: BaseException, file: Path) -> str:
    """Line of the config file, and message, of what it raised."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return (f"line {lines[-1]}: " if lines else "") + f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
