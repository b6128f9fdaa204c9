"""Paths as users write them, and files that are the old or the new one at any time."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def user_path(path: str | Path) -> Path:
    """The path with ~ as the home folder. One that still begins with ~, as ./~x does, comes out whole: ~ means home only once."""
    found = Path(os.path.expanduser(path))
    return found.absolute() if str(found).startswith("~") else found


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
