"""Prepare text of users for files that others see: escaped for Markdown and spreadsheets, without folders of this machine."""

import hashlib
import html
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jax_sentemb.errors import Setting, flag, plain

_SPECIAL = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])|^\s*[#+=-]")
_FOLDERS = re.compile(r"(?:file://|(?<![\w.~/]))/(?=[^\s/])(?:[^/\n,'\"]*(?<!\s)/)*|\b[A-Za-z]:\\(?:[^\\\n,'\"]*\\)*|~[\w.-]+/")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also in full width


def markdown(text: object) -> str:
    """Return `text` as one line that Markdown and its HTML show unchanged."""
    line = " ".join(plain(str(text)).split())
    return html.escape(_SPECIAL.sub(lambda match: match[0][:-1] + "\\" + match[0][-1], line), quote=False)


def spreadsheet_cell(value: Any) -> Any:
    """Return the value of a cell of a CSV file, with a "'" before text that a spreadsheet would run as a formula.

    A carriage return becomes a space: the module csv does not quote it if rows end with a line feed, but readers end a row there.
    """
    if not isinstance(value, str):
        return value
    value = value.replace("\r", " ")
    if not value.lstrip(" ").startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value  # a negative number


def public_value(value: str) -> str:
    """Return the value of a setting without folders, with a part of its SHA-256 at the end if it had some, so it stays unique."""
    short = without_folders(value)
    return value if short == value else f"{short}~{hashlib.sha256(value.encode()).hexdigest()[:6]}"


def shell_command(words: Iterable[str]) -> str:
    """Return a command line for a shell."""
    return " ".join(map(shell_word, words))


def shell_word(word: str) -> str:
    """Return a word quoted for a POSIX shell; one with control characters as $'...', which bash and zsh read."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (
        character if character.isprintable() and character not in "\\'" else f"\\U{ord(character):08x}" for character in word
    )
    return f"$'{''.join(escaped)}'"


def model_name(path: str | Path) -> str:
    """Return the name by which a model is published: that of its directory, or of the one above `export` or `model`."""
    name = Path(path).name
    folder, at, pooling = name.partition("@")
    directory = Path(os.path.expanduser(path)).with_name(folder) if name else Path()
    if folder not in ("export", "model") or not directory.is_dir():  # such as USER/model on the hub
        return name
    above = directory.resolve().parent
    return f"{above.name}{at}{pooling}" if above.name and above != Path.home() else name


def public_argument(argument: str, start: str | None) -> str:
    """Return an argument of a run without folders, and with the published name of its start: many folders are called "model"."""
    setting = Setting("encoder.weights", start)
    return flag(setting) if start and argument.startswith(f"{flag(Setting(setting.name))}=") else without_folders(argument)


def without_folders(text: str) -> str:
    """Return `text` with absolute paths reduced to their last part, and without the host name in the message of a lock."""
    return re.sub(r"(process \d+) on \S+ since", r"\1 since", _FOLDERS.sub("", text))
