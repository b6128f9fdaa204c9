"""Define the errors that a user can cause, and the exit codes of the command line for them (listed in docs/commands.md)."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, Self, TypeAlias

LONGEST = 2000  # characters of a message

# What a user can do about a file that nobody writes by hand; such messages end with one of these.
REPLACE_FILE = "restore it from a copy, or run again the command that wrote it"
REPLACE_MODEL = "download or export the model again"
OTHER_MODEL = "choose another model"
CORRECT = "correct the file, or choose another model"
REPLACE_SET = "copy or download the files of the set again"
UNPAIRED_SURROGATE = "contains an unpaired surrogate, which is not valid Unicode text; remove it"
RETRAIN = "train again with a lower learning rate, or choose another model"  # for embeddings that cannot be scored

# Control sequences of a terminal: whole escape sequences, and single control characters except the line feed.
_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)|"
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]"
)


def plain(text: str) -> str:
    """Return `text` without escape sequences; single control characters, tabs included, become spaces."""
    return text if text.isprintable() else _CONTROL.sub(lambda match: " " if len(match[0]) == 1 else "", text)


ARGUMENT = "the argument"  # name of the Setting for the argument of a command, which is spelled as its value alone


class Setting(NamedTuple):
    """A setting that a message names: `Setting("data.batch_size", 1)`, or an option of a command: `Setting("--workdir", path)`.

    The shell, Python and YAML each spell a setting in their own way: see `flag`, `keyword`, `yaml_key` and `dotted`.
    """

    name: str
    value: Any = ...  # ...: the message names the setting without a value

    @property
    def is_option(self) -> bool:
        """Return whether this is an option of a command, such as "--workdir", or its argument."""
        return self.name.startswith("--") or self.name == ARGUMENT


# Settings whose arguments of jax_sentemb.train have other names.
KEYWORDS = {
    "encoder.weights": "model", "encoder.layers": "layers", "method.teacher": "teacher", "eval.teacher": "teacher",
    "data.files": "sentences", "--config": "recipe",
}  # fmt: skip


def dotted(setting: Setting) -> str:
    """Spell a setting as in a sweep and in a Config: data.batch_size=1."""
    if setting.is_option:
        return flag(setting)
    return setting.name if setting.value is ... else f"{setting.name}={_value_text(setting.value)}"


def flag(setting: Setting) -> str:
    """Spell a setting as in the shell: --config.data.batch_size=1. An option of a command has a space: --workdir PATH."""
    if setting.is_option:
        value = "" if setting.value is ... else _value_text(setting.value)
        is_named = setting.name != ARGUMENT or not value
        return f"{setting.name} {value}".rstrip() if is_named else value
    return f"--config.{dotted(setting)}"


def keyword(setting: Setting) -> str:
    """Spell a setting as a keyword of jax_sentemb.train: data__batch_size=1, model="path/to/bert"."""
    name = KEYWORDS.get(setting.name, setting.name.removeprefix("--").replace(".", "__").replace("-", "_"))
    if setting.value is ...:
        return name
    text = isinstance(setting.value, str | os.PathLike)
    return f"{name}={json.dumps(os.fspath(setting.value), ensure_ascii=False) if text else repr(setting.value)}"


def yaml_key(setting: Setting) -> str:
    """Spell a setting as in a .yaml file: data.batch_size: 1."""
    if setting.is_option or setting.value is ...:
        return dotted(setting)
    return f"{setting.name}: {_value_text(setting.value)}"


def _value_text(value: Any) -> str:
    """Return the text of a value; that of a tuple is its items with commas."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def first_line(error: BaseException, longest: int = 300) -> str:
    """Return the first line of another library's error, at most `longest` characters; its type if it has no message."""
    lines = (line for line in str(error).splitlines() if line.strip())
    return next(lines, type(error).__name__)[:longest]


Message: TypeAlias = tuple[str | Setting, ...]  # texts and settings in the order of the sentence


class UserError(Exception):
    """A message of one line that says what is wrong, where, and what to do; `main` prints it without a traceback.

    The message is given in parts, texts and Settings: `DataError(Setting("data.files", name), ": no such file")`. `text` spells the
    settings for the shell, Python or YAML. Names and values from files may be in it: characters that are not printable are escaped,
    and long messages are cut.
    """

    exit_code = 2

    def __init__(self, *message: str | Setting) -> None:
        self.message: Message = message
        super().__init__(self.text())

    @property
    def setting(self) -> str | None:
        """Return the name of the first setting in the message, None if it has none."""
        return next((part.name for part in self.message if isinstance(part, Setting)), None)

    @property
    def value(self) -> Any:
        """Return the value of that setting, None if the message has none."""
        value = next((part.value for part in self.message if isinstance(part, Setting)), None)
        return None if value is ... else value

    def text(self, spell: Callable[[Setting], str] = dotted) -> str:
        """Return the message with its settings spelled by `spell`."""
        message = "".join(part if isinstance(part, str) else spell(part) for part in self.message)[: LONGEST + 1]
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
        return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."

    def change(self, message: Iterable[str | Setting]) -> Self:
        """Replace the parts of the message and return the same error, which is raised again."""
        self.message = tuple(message)
        self.args = (self.text(),)
        return self

    def at(self, *prefix: str | Setting) -> Self:
        """Put `prefix`, for instance "variant A: ", before the message."""
        return self.change((*prefix, *self.message))

    def rename(self, names: Mapping[str, str]) -> Self:
        """Change names of settings, for instance to those of the options of a command: {"data.files": "--input"}."""
        return self.change(
            part if isinstance(part, str) else part._replace(name=names.get(part.name, part.name)) for part in self.message
        )

    def within(self, part: str) -> Self:
        """Put the part of the config before the names of the settings: "data.files" within "pretrain" is "pretrain.data.files"."""
        return self.rename({setting.name: f"{part}.{setting.name}" for setting in self.message if isinstance(setting, Setting)})

    def spell(self, spell: Callable[[Setting], str]) -> Self:
        """Change the text of this exception: `spell` then spells its settings."""
        self.args = (self.text(spell),)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(error_type: type[UserError], arguments: tuple[Any, ...], state: dict[str, Any]) -> UserError:
    """Return the error that another process has sent."""
    error = error_type.__new__(error_type, *arguments)
    error.args = arguments
    error.__dict__.update(state)  # not the dictionary itself, which belongs to the original of a copy
    return error


_SPELLING: ContextVar[Callable[[Setting], str]] = ContextVar("spelling", default=flag)


def note_text(*message: str | Setting) -> str:
    """Return the text of a note or warning, with its settings spelled as its user gives them (`spelled`)."""
    return "".join(part if isinstance(part, str) else _SPELLING.get()(part) for part in message)


def stored_text(*message: str | Setting) -> str:
    """Return the text of a note for a file, which is read from the shell, from Python and in a browser: its settings are dotted."""
    return "".join(part if isinstance(part, str) else dotted(part) for part in message)


def in_python() -> bool:
    """Return whether the user of this block called a function of Python rather than a command (`spelled`)."""
    return _SPELLING.get() is keyword


@contextlib.contextmanager
def spelled(spell: Callable[[Setting], str]) -> Iterator[None]:
    """Spell the settings in the errors and notes of a block as their user gives them.

    A command uses `with spelled(flag):`.
    """
    previous = _SPELLING.set(spell)
    try:
        yield
    except UserError as error:
        error.spell(spell)
        raise
    finally:
        _SPELLING.reset(previous)


class ConfigError(UserError):
    """A flag or a configuration value that cannot be used (exit 2)."""


class DataError(UserError):
    """A corpus or evaluation file that is missing, empty or malformed (exit 3)."""

    exit_code = 3


class ModelFileError(UserError):
    """A weight file, tokenizer, checkpoint or export that is damaged or does not fit (exit 4)."""

    exit_code = 4


class NumericsError(UserError):
    """NaN, Inf or collapsed embeddings (exit 5)."""

    exit_code = 5


class NotFinite(NumericsError):
    """Loss, gradient or weights of a step that are NaN or Inf; `step` counts from 1."""

    def __init__(self, step: int, problem: str, *advice: str | Setting) -> None:
        super().__init__(f"step {step}: {problem}", *advice)
        self.step, self.problem = step, problem


class BusyError(UserError):
    """Another process writes the same output (exit 6)."""

    exit_code = 6


class ResourceError(UserError):
    """Disk full, memory exhausted, or a process lost (exit 7)."""

    exit_code = 7


LOST_PROCESS = "another process of this run was lost ({}): run the same command again, it continues"
PREEMPTED = 75  # EX_TEMPFAIL: the run is saved, and the same command continues it
