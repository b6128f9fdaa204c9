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


JSON_LIMIT = 1 << 24  # bytes; what describes a model has a few thousand, and a value takes 20 times its text in memory
_repr = reprlib.Repr()  # looks a few levels and entries deep into a value, however large it is
_repr.maxstring = _repr.maxother = 100
shown = _repr.repr  # a value from a file, for a message


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
    """ModelFileError for anything but a regular file; opening a pipe could block for ever."""
    if file.exists() and not file.is_file():
        raise ModelFileError(f"{file} is a folder or a pipe, expected a file")


def check_own(file: Path) -> None:
    """As `check_regular`, and for a link that leads out of the file's folder; the hub's cache links to its blobs."""
    check_regular(file)
    if file.is_symlink():
        inside(file.parent, file.name, file)


def inside(root: Path, name: Any, source: Path) -> Path:
    """root/name; ModelFileError where that is not below `root`, links followed. `source` is the file that names it."""
    limit = root.resolve()
    for folder in (limit, limit.parent):
        if folder.parent.name == "snapshots":  # the hub's cache: files in snapshots/REVISION[/MODULE] are links into blobs/
            limit = folder.parent.parent
    relative = isinstance(name, str) and not PureWindowsPath(name).anchor and ".." not in Path(name).parts
    try:
        within = relative and (root / name).resolve().is_relative_to(limit)
        if within:
            (root / name).exists()  # OSError for a name that is too long
    except (OSError, ValueError, RuntimeError):  # NUL and lone surrogates are ValueErrors, a circle of links a RuntimeError
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
    """A warning on stderr."""
    print(plain(f"warning: {text}"), file=sys.stderr, flush=True)


def fingerprint(facts: dict[str, Any]) -> str:
    """SHA-256 of a dictionary as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
