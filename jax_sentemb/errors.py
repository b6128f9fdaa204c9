"""Errors that a user can cause, and the exit codes of the command line for them (listed in docs/errors.md)."""

import re

LONGEST = 2000  # characters of a message


# Control sequences of a terminal: whole escape sequences, and single control characters except the line feed.
_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)|"
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f]"
)


def plain(text: str) -> str:
    """`text` without escape sequences; single control characters, tabs included, become spaces."""
    return text if text.isprintable() else _CONTROL.sub(lambda found: " " if len(found[0]) == 1 else "", text)


class UserError(Exception):
    """A message of one line that says what is wrong, where, and what to do; `main` prints it without a traceback.

    Names and values from files may be in it: characters that are not printable are escaped, and long messages are cut.
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message[: LONGEST + 1])
        super().__init__(line if len(line) <= LONGEST else f"{line[:LONGEST]}...")


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

    def __init__(self, step: int, problem: str) -> None:
        super().__init__(f"step {step}: {problem}")
        self.step = step


class BusyError(UserError):
    """Another run holds the work directory (exit 6)."""

    exit_code = 6


class ResourceError(UserError):
    """Disk full or memory exhausted (exit 7)."""

    exit_code = 7


LOST_PROCESS = "another process of this run was lost ({}): run the same command again, it continues"
PREEMPTED = 75  # EX_TEMPFAIL: the run is saved, and the same command continues it
