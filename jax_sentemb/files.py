"""File helpers: paths as users write them, atomic replacement of files, and limited reads of untrusted files."""

import contextlib
import errno
import hashlib
import json
import os
import reprlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

from filelock import FileLock, Timeout

from jax_sentemb.errors import BusyError, ConfigError, ModelFileError, plain


def user_path(path: str | Path) -> Path:
    """The path with ~ replaced by the home folder. A path that still begins with ~, as ./~x does, is returned as absolute path.

    ConfigError if it is not UTF-8: JSON, HTML and Orbax cannot write it, and would fail only at the end of a run.
    """
    found = Path(os.path.expanduser(path))
    check_name(found)
    return found.absolute() if str(found).startswith("~") else found


def check_name(path: str | Path) -> None:
    """Raises ConfigError if a path, or what it resolves to, is not UTF-8."""
    try:
        for name in (path, os.path.realpath(path)):
            os.fsencode(name).decode("utf-8")
    except ValueError:  # also a lone surrogate or NUL
        raise ConfigError(f"{path}: the name, or that of a folder on the way to it, is not UTF-8: rename it") from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a name to write to, which replaces `path`, flushed to the disk, if the block succeeds. An OSError names `path`."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        _flush(partial, os.O_RDWR)
        partial.replace(path)
        with contextlib.suppress(OSError):  # not every file system flushes folders
            _flush(path.parent, os.O_RDONLY)
    except OSError as error:
        if error.filename is None:  # the disk became full during a write
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def sole_writer(path: Path) -> Iterator[Path]:
    """Yields a name beside `path` that only this process writes to; BusyError while another process writes `path`.

    Files that a killed process left behind are deleted.
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
    """Deletes a file or a folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_full(error: OSError) -> bool:
    """Whether a write failed because of a full disk, a quota or a limit on file sizes."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _flush(path: Path, mode: int) -> None:
    """Flushes a file or a folder to the disk; without it, a power failure can leave a name without content."""
    opened = os.open(path, mode)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_json(path: Path, content: Any) -> None:
    """Replaces a file by `content` as JSON."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


JSON_LIMIT = 1 << 24  # bytes; descriptions of models have a few thousand, and a value needs 20 times its text in memory
_repr = reprlib.Repr()  # shows only a few levels and entries of a large value
_repr.maxstring = _repr.maxother = 100
shown = _repr.repr  # formats a value from a file for a message


def read_json(path: Path, kind: type = dict) -> Any:
    """The content of a JSON file whose outermost value is a `kind`."""
    try:
        check_own(path)
        if path.stat().st_size > JSON_LIMIT:
            raise ModelFileError(f"{path} has {path.stat().st_size:,} bytes, more than a description of a model needs")
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON: {str(error)[:100]}") from None
    if not isinstance(value, kind):
        raise ModelFileError(f"{path} holds a {type(value).__name__}, expected a {kind.__name__}")
    return value


def check_regular(file: Path) -> None:
    """Raises ModelFileError for anything but a regular file; opening a pipe could block forever."""
    if file.exists() and not file.is_file():
        raise ModelFileError(f"{file} is a folder or a pipe, expected a file")


def check_own(file: Path) -> None:
    """As `check_regular`; also raises for a link that leads out of the file's folder, except in the hub's cache."""
    check_regular(file)
    if file.is_symlink():
        inside(file.parent, file.name, file)


def inside(root: Path, name: Any, source: Path) -> Path:
    """The path root/name; ModelFileError if it resolves to a place outside `root`. `source` is the file that names it."""
    limit = root.resolve()
    for folder in (limit, limit.parent):
        if folder.parent.name == "snapshots":  # the hub's cache: files in snapshots/REVISION[/MODULE] are links into blobs/
            limit = folder.parent.parent
    relative = isinstance(name, str) and not PureWindowsPath(name).anchor and ".." not in Path(name).parts
    try:
        within = relative and (root / name).resolve().is_relative_to(limit)
        if within:
            (root / name).exists()  # OSError for a name that is too long
    except (OSError, ValueError, RuntimeError):  # ValueError for NUL and lone surrogates, RuntimeError for a cycle of links
        within = False
    if not within:
        raise ModelFileError(f"{source}: path {shown(name)} leads out of {root} or nowhere")
    return root / name


def sha256(file: Path) -> str:
    """Hex digest of a file's content."""
    try:
        check_regular(file)
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"{file}: {error.strerror}") from None


def say(text: str) -> None:
    """Prints a warning on stderr."""
    print(plain(f"warning: {text}"), file=sys.stderr, flush=True)


def fingerprint(facts: dict[str, Any]) -> str:
    """SHA-256 of a dictionary as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
