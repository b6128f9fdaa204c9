"""Paths as users write them, and files that are the old or the new one at any time."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax_sentemb.errors import ConfigError


def user_path(path: str | Path) -> Path:
    """The path with ~ as the home folder. One that still begins with ~, as ./~x does, comes out whole: ~ means home only once.

    ConfigError where it is not UTF-8: JSON, HTML and Orbax could not write it, at the end of a run.
    """
    found = Path(os.path.expanduser(path))
    check_name(found)
    return found.absolute() if str(found).startswith("~") else found


def check_name(path: str | Path) -> None:
    """ConfigError where the bytes of a path, or of the place where it leads by links or from the current folder, are not UTF-8."""
    try:
        for name in (path, os.path.realpath(path)):
            os.fsencode(name).decode("utf-8")
    except ValueError:  # also half a surrogate pair, and NUL
        raise ConfigError(f"{path}: the name, or that of a folder on the way to it, is not UTF-8: rename it") from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to; it becomes `path`, whole and on the disk, when the block ends well."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        _flush(partial, os.O_RDWR)
        partial.replace(path)
        with contextlib.suppress(OSError):  # not every file system flushes folders
            _flush(path.parent, os.O_RDONLY)
    finally:
        partial.unlink(missing_ok=True)


def _flush(path: Path, mode: int) -> None:
    """A file or a folder to the disk: else a power failure can leave a name without its content."""
    opened = os.open(path, mode)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_json(path: Path, content: Any) -> None:
    """Replace a file by `content` as JSON."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
