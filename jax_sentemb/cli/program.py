"""Define the options, exit codes and error lines that all commands share."""

import argparse
import difflib
import gc
import logging
import math
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from jax_sentemb.cli import cut_files, interrupts
from jax_sentemb.errors import LOST_PROCESS, ConfigError, ResourceError, UserError, first_line, plain
from jax_sentemb.files import is_full, system_error
from jax_sentemb.system.streams import protect, refused_output

GC_THRESHOLD = 100_000  # new objects between two garbage collections; importing and tracing create many objects that stay
OUT_OF_MEMORY = "out of memory: lower the batch size; in training, set train.grad_cache_chunk"
EXIT_CODES = """\
Exit codes: 0 done, 2 usage, 3 data, 4 model file, 5 numerics (NaN), 6 output in use by another process, 7 disk or memory full.
"""


class _Once(argparse.Action):
    """Reject an option that is given twice, and note in the namespace which options are given, for `is_given`."""

    _was_given = False

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if self._was_given:
            parser.error(f"{option_string} is given twice: leave one of them out")
        self._was_given = option_string is not None
        if self._was_given:
            namespace.given = {*getattr(namespace, "given", ()), self.dest}
        setattr(namespace, self.dest, values)


class _Format(argparse.RawDescriptionHelpFormatter):
    """Print texts with their own line breaks, and options in one column."""

    def __init__(self, prog: str, **options: Any) -> None:
        width = min(shutil.get_terminal_size((120, 24)).columns, 120)
        super().__init__(prog, **{"max_help_position": 30, "width": width, **options})
        self._action_max_length = 16  # the minimum; otherwise the longest name of a command would take a separate line


class Parser(argparse.ArgumentParser):
    """The options of a command. Texts are printed with their own line breaks, and a mistake is a ConfigError."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Format, **options})
        self.register("action", None, _Once)
        self._arguments: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parse the arguments as argparse does, and remember them for `error`."""
        self._arguments = [*(sys.argv[1:] if args is None else args)]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with a message of argparse, or for the misspelled option that caused it."""
        if message.startswith("unrecognized arguments: -"):
            self.refuse(message.split()[2].partition("=")[0])
        if "arguments are required" in message:  # report a misspelled option rather than the option that is missing because of it
            for option in (argument.partition("=")[0] for argument in self._arguments if argument.startswith("--")):
                known = [name.startswith(option) for name in self._option_string_actions]
                if not any(known) and difflib.get_close_matches(option, self._option_string_actions, 1, 0.6):
                    self.refuse(option)
        raise ConfigError(f"{message} (--help lists the options)")

    def refuse(self, option: str, advice: str = "") -> NoReturn:
        """Raise ConfigError for an unknown option. The message names a similar option or, if there is none, ends with `advice`."""
        close = difflib.get_close_matches(option, self._option_string_actions, 1, 0.75 if advice else 0.6)
        hint = f"; did you mean {close[0]}?" if close else advice
        raise ConfigError(f"option {option} is unknown{hint}" + " (--help lists the options)" * ("--help" not in hint))


def is_given(options: argparse.Namespace, name: str) -> bool:
    """Return whether the command line has this option: one with a value, even its default, a flag, or one that adds to a list."""
    value = getattr(options, name, None)
    return name in getattr(options, "given", ()) or value is True or (isinstance(value, list) and bool(value))


def leave_out(options: argparse.Namespace, names: Iterable[str], problem: str) -> None:
    """Raise ConfigError for the first of these options that is given, since it has no effect. `problem` says why."""
    for name in names:
        if is_given(options, name):
            raise ConfigError(f"--{name.replace('_', '-')} is not used: {problem}")


def positive(text: str) -> int:
    """Return the value of an option that is a whole number from 1 on."""
    return count(text, 1)


def count(text: str, minimum: int = 0) -> int:
    """Return the value of an option that is a whole number and fits into 31 bits."""
    if not text.isdecimal() or len(text) > 10 or not minimum <= int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a whole number from {minimum} to {(1 << 31) - 1}")
    return int(text)


def finite(text: str) -> float:
    """Return the value of an option that is a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a finite number")
    return value


def cosine(text: str) -> float:
    """Return the value of an option that is a cosine."""
    value = finite(text)
    if abs(value) > 1:
        raise argparse.ArgumentTypeError(f"{text[:100]!r} is not a cosine, from -1 to 1")
    return value


def start(main: Callable[[list[str]], int]) -> NoReturn:
    """Run the command `main` with the arguments of this process, and end the process with its exit code."""
    try:
        interrupts.clean_up_first()
        code = program(main, sys.argv)
        interrupts.end_at_once()  # work of libraries at the exit, such as joining threads, would raise KeyboardInterrupt
    except KeyboardInterrupt:
        code = interrupts.EXIT_CODE
    sys.exit(code)


def program(main: Callable[[list[str]], int], argv: list[str]) -> int:
    """Run `main` and return its exit code. A user's mistake becomes one line on stderr; with --debug, a traceback as well."""
    protect()
    cut_files.install()
    gc.set_threshold(GC_THRESHOLD)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # otherwise the library warns in each process that is forked
    debug = "--debug" in argv
    if not debug:
        for name in ("absl", "asyncio"):  # Orbax logs remarks on its defaults, and errors that it raises as well
            logging.getLogger(name).setLevel(logging.CRITICAL)
        sys.unraisablehook = interrupts.show_unraisable
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)  # from Orbax, after a failed save
    try:
        code = main([argument for argument in argv if argument != "--debug"])
        if not (error := refused_output()):
            return code
        problem = f"standard output: {error.strerror}; the end of the output is lost"
        code = code or ResourceError.exit_code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0
    except KeyboardInterrupt:
        return interrupts.EXIT_CODE
    except Exception as error:
        if interrupts.came():
            return interrupts.EXIT_CODE
        problem, code = _problem(error)
        if not problem:
            raise
        if debug:
            traceback.print_exc()
    print(plain(f"error: {problem}"), file=sys.stderr, flush=True)
    if _several_processes():
        os._exit(code)  # at once, since at its exit JAX waits for the other processes, and they wait for this one
    return code


def _problem(error: Exception) -> tuple[str, int]:
    """Return the error line of an exception and its exit code. The line is "" for a defect of the program."""
    if isinstance(error, UserError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY, ResourceError.exit_code
    if cause := system_error(error):
        name = cause.filename if cause.filename is not None else "a temporary file"
        problem = f"{os.fsdecode(name)}: {cause.strerror or cause}" if cause is error else " ".join(str(error).split())
        return problem, ResourceError.exit_code if is_full(cause) else ConfigError.exit_code
    if not isinstance(error, RuntimeError | AssertionError):
        return "", 0
    if traceback.extract_tb(error.__traceback__)[-1].filename.endswith("xla_bridge.py"):
        return _no_device(), ConfigError.exit_code
    return _runtime_problem(error), ResourceError.exit_code


def _no_device() -> str:
    """Return the error line if JAX finds no device of the requested platform."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    advice = "unset the variable, or install JAX for that device" if platforms else "see the installation guide of JAX"
    return f"JAX_PLATFORMS={platforms}: no such device can be used here; {advice}"


def _runtime_problem(error: Exception) -> str:
    """Return the error line for an error of JAX's runtime; "" for a defect of the program."""
    if type(error).__name__ != "JaxRuntimeError":
        return ""
    first = first_line(error)
    if "RESOURCE_EXHAUSTED" in first or "out of memory" in first.lower():
        return OUT_OF_MEMORY
    if _several_processes():
        return LOST_PROCESS.format(first[:200])
    return ""


def _several_processes() -> bool:
    jax = sys.modules.get("jax")  # a run of several processes has imported it
    return jax is not None and jax.distributed.is_initialized()
