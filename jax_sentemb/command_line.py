"""From a command line to a Config, and from an error to one line and an exit code."""

import argparse
import difflib
import logging
import os
import re
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from jax_sentemb.errors import ConfigError, ResourceError, UserError
from jax_sentemb.paths import is_full, user_path
from jax_sentemb.streams import protect, refused_output

OUT_OF_MEMORY = "out of memory: lower the batch size; in training, set train.grad_cache_chunk"
PREEMPTED = 75  # EX_TEMPFAIL: saved, run the same command again
EXIT_CODES = """\
Exit codes: 0 done, 2 usage, 3 data, 4 model file, 5 numerics (NaN), 6 output in use by another process, 7 disk or memory full.
"""


class _Once(argparse.Action):
    """An option with one value: which of two would be meant?"""

    _given = False

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if self._given:
            parser.error(f"{option_string} is given twice: leave one of them out")
        self._given = option_string is not None
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """Options of a command; texts are shown with their own line breaks, and a mistake is a ConfigError."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})
        self.register("action", None, _Once)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (--help lists the options)")


def positive(text: str) -> int:
    """An option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def program(main: Callable[[list[str]], int], argv: list[str]) -> int:
    """Run `main`; a user's mistake becomes one line on stderr and its exit code, a traceback only with --debug."""
    protect()
    debug = "--debug" in argv
    if not debug:
        for name in ("absl", "asyncio"):  # Orbax remarks on its own defaults; its errors are raised, too
            logging.getLogger(name).setLevel(logging.CRITICAL)
        sys.unraisablehook = _without_late_answers
    try:
        code = main([argument for argument in argv if argument != "--debug"])
        if not (error := refused_output()):
            return code
        problem, code = f"standard output: {error.strerror}: its end is lost", code or ResourceError.exit_code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        problem, code = str(error), error.exit_code
    except MemoryError:
        problem, code = OUT_OF_MEMORY, ResourceError.exit_code
    except OSError as error:
        problem, code = f"{error.filename or 'a file'}: {error.strerror or error}", ResourceError.exit_code
        code = code if is_full(error) else ConfigError.exit_code
    except (RuntimeError, AssertionError) as error:
        problem, code = _runtime_problem(error), ResourceError.exit_code
        if traceback.extract_tb(error.__traceback__)[-1].filename.endswith("xla_bridge.py"):
            problem, code = _no_device(), ConfigError.exit_code
        if not problem:
            raise
    if debug:
        traceback.print_exc()
    print(f"error: {problem}", file=sys.stderr, flush=True)
    if _several_processes():
        os._exit(code)  # at once: at its exit JAX waits for the others, and they wait for this one
    return code


def _without_late_answers(found: Any) -> None:
    """sys.unraisablehook, without what TensorStore's threads say when a write that failed has ended the event loop they answer to.

    Orbax raises the failure itself. There may be dozens of these, in the middle of the line that says so.
    """
    if not (isinstance(found.exc_value, RuntimeError) and str(found.exc_value) == "Event loop is closed"):
        sys.__unraisablehook__(found)


def _no_device() -> str:
    """What JAX, which found no device, may mean."""
    wanted = os.environ.get("JAX_PLATFORMS", "")
    advice = "leave the variable out, or install JAX for that device" if wanted else "JAX finds none; see its installation guide"
    return f"JAX_PLATFORMS={wanted}: no such device can be used here: {advice}"


def _runtime_problem(error: Exception) -> str:
    """What an error of JAX's runtime says to a user; "" where it is a defect of the program."""
    if type(error).__name__ != "JaxRuntimeError":
        return ""
    first = str(error).splitlines()[0]
    if "RESOURCE_EXHAUSTED" in first or "out of memory" in first.lower():
        return OUT_OF_MEMORY
    if _several_processes():
        return f"another process of this run was lost ({first[:200]}): run the same command again, it continues"
    return ""


def _several_processes() -> bool:
    jax = sys.modules.get("jax")  # without it there is one
    return jax is not None and jax.distributed.is_initialized()


def use_compilation_cache() -> None:
    """What is compiled is kept between processes, unless the user has a cache: a second start takes a fraction of the first."""
    import jax

    if not jax.config.jax_compilation_cache_dir:
        home = os.environ.get("JAX_SENTEMB_CACHE", "~/.cache/jax_sentemb")
        jax.config.update("jax_compilation_cache_dir", str(user_path(home) / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def parse(argv: list[str], usage: str) -> tuple[Any, Path, dict[str, Any]]:
    """The Config with its overrides, the work directory, and how to join other processes. Prints help and exits 0 when asked to."""
    wants_help = {"--help", "-h", "-help", "--helpfull"} & set(argv[1:])
    config_path = _value(argv, "config")
    if wants_help and not config_path:
        print(usage, end="")
        raise SystemExit(0)
    if not config_path:
        raise ConfigError("no --config: name a recipe, for instance --config configs/micse.py (--help lists all options)")
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
            print(f'Variants, all of them run; some: --config.vary="variant=A,B ...": {", ".join(names)}')
        raise SystemExit(0)
    how = {
        "automatic": values.distributed,
        "coordinator": values.coordinator,
        "processes": values.processes,
        "process": values.process,
    }
    return config, user_path(values.workdir or f"runs/{_file_and_size(config_path)[0].stem}"), how


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
