"""Paths as users write them, and files that are the old or the new one at any time."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from jax_sentemb.errors import BusyError, ConfigError


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
    """A name to write to; it becomes `path`, whole and on the disk, when the block ends well. An OSError names `path`."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        _flush(partial, os.O_RDWR)
        partial.replace(path)
        with contextlib.suppress(OSError):  # not every file system flushes folders
            _flush(path.parent, os.O_RDONLY)
    except OSError as error:
        if error.filename is None:  # a disk that is full while an open file is written
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def sole_writer(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, of this process alone; BusyError while another one writes `path`.

    What a killed writer left is deleted.
    """
    beside = path.parent / f".{path.name[:100]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{beside}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"{path} is being written by another process: wait for it, or give another name") from None
    stage = Path(f"{beside}.{os.getpid()}.partial")
    try:
        for left in path.parent.iterdir():
            if left.name.startswith(f"{beside.name}.") and left.suffix == ".partial":
                remove(left)
        yield stage
    finally:
        with contextlib.suppress(OSError):
            remove(stage)
            os.unlink(lock.lock_file)
        lock.release()


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_full(error: OSError) -> bool:
    """Whether a disk, a quota or a limit on sizes kept a file from being written."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
