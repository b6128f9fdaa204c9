"""Handle files: paths as users write them, atomic replacement of files, and limited reads of untrusted files."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import reprlib
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

from filelock import FileLock, Timeout

from jax_sentemb.errors import OTHER_MODEL, REPLACE_FILE, BusyError, ConfigError, ModelFileError, UserError, plain
from jax_sentemb.system.streams import print_line

PARTIAL = ".partial"  # suffix of the names of temporary files and folders


def split_name(text: str) -> tuple[str, str]:
    """Return the parts of NAME=PATH; of a path alone, "" and the path, which may contain =."""
    if user_path(text).exists():
        return "", text
    name, equals, path = text.partition("=")
    return (name, path) if equals and "/" not in name else ("", text)


def user_path(path: str | Path) -> Path:
    """Return the path with ~ replaced by the home folder. A path such as ./~x, which still begins with ~, becomes absolute.

    Raises:
        ConfigError: The path is not UTF-8. JSON, HTML and Orbax cannot write such a path, but would fail only at the end of a run.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"path {quote(path)}: must be a str or a pathlib.Path")
    expanded = Path(os.path.expanduser(path))
    check_name(expanded)
    return expanded.absolute() if str(expanded).startswith("~") else expanded


def cache_home() -> Path:
    """Return the folder of all caches: JAX_SENTEMB_CACHE or, if that is empty or not set, ~/.cache/jax_sentemb."""
    return user_path(os.environ.get("JAX_SENTEMB_CACHE", "").strip() or "~/.cache/jax_sentemb").absolute()


def check_name(path: str | Path) -> None:
    """Raise ConfigError if a path, or what it resolves to, is not UTF-8."""
    try:
        for name in (path, os.path.realpath(path)):
            os.fsencode(name).decode("utf-8")
    except ValueError:  # also a lone surrogate or NUL
        raise ConfigError(f"{path}: the name, or that of a folder on the way to it, is not UTF-8: rename it") from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new, empty file. If the block succeeds, the file replaces `path` and is flushed to the disk.

    The name of the file is unpredictable and it is created exclusively, so a link that an attacker planted is never followed.
    Temporary files of killed writers of `path` are deleted.

    Raises:
        OSError: A write failed, even if a library raises another exception for it. The error names `path`.
    """
    with path_in_errors(path), _temporary(path, folder=False) as (partial, descriptor):
        yield partial
        if not _is_at(descriptor, partial):
            raise OSError(errno.ESTALE, "another process replaced the temporary file", str(path))
        os.fsync(descriptor)  # without it, a power failure can leave a name without content
        partial.replace(path)
        with contextlib.suppress(OSError):  # not every file system flushes folders
            _flush_folder(path.parent)


@contextlib.contextmanager
def staging(path: Path) -> Iterator[Path]:
    """Yield a new, empty folder next to `path`, which is deleted at the end unless it was renamed; else like `replacing`."""
    with _temporary(path, folder=True) as (folder, _):
        yield folder


@contextlib.contextmanager
def path_in_errors(path: Path) -> Iterator[None]:
    """Turn a failed write into an OSError that names `path`, even if a library raises another exception for it."""
    try:
        yield
    except Exception as error:
        os_error = system_error(error)
        if os_error is None:
            raise
        if not os_error.filename or any(name.endswith(PARTIAL) for name in Path(os.fsdecode(os_error.filename)).parts):
            os_error.filename, os_error.filename2 = str(path), None
        if os_error is error:
            raise
        raise os_error from error


def open_in_place(path: Path, flags: int) -> int:
    """Open a file that is written in place and return its descriptor; never through a link that somebody planted.

    Raises:
        ConfigError: The path is a link, a folder, a pipe or a device.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        descriptor = -1
    if descriptor >= 0 and stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    if descriptor >= 0:
        os.close(descriptor)
    raise ConfigError(f"{path} is a link, a folder or a pipe, expected a file; delete it")


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes to a descriptor."""
    while content:
        content = content[os.write(descriptor, content) :]


@contextlib.contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Keep other processes from writing `path` in the block.

    Raises:
        BusyError: Another process is writing `path`.
        OSError: The folder accepts no new files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{_hidden(path)}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        # If the folder accepts no new files, this raises the reason, which FileLock hides.
        with path_in_errors(path), _temporary(path, folder=False):
            pass
        raise BusyError(f"{path} is being written by another process: wait for it, or give another name") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # FileLock does not accept a lock file that was deleted before it was locked
            os.unlink(lock.lock_file)
        lock.release()


@contextlib.contextmanager
def _temporary(path: Path, folder: bool) -> Iterator[tuple[Path, int]]:
    """Yield a new file or folder next to `path` and its descriptor, whose lock tells other processes that it is in use."""
    _delete_abandoned(path)
    flags = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
    while True:
        partial = path.with_name(f"{_hidden(path)}.{secrets.token_hex(8)}{PARTIAL}")
        if folder:
            partial.mkdir()
        try:
            descriptor = os.open(partial, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            if not folder:
                raise
            continue  # another process deleted the folder as that of a killed writer
        if _lock(descriptor) is not False and _is_at(descriptor, partial):
            break
        os.close(descriptor)
    try:
        yield partial, descriptor
    finally:
        remove(partial)
        os.close(descriptor)


def _delete_abandoned(path: Path) -> None:
    """Delete the temporary files and folders of writers of `path` that were killed: nobody holds their locks."""
    pattern = re.compile(f"{re.escape(_hidden(path))}\\.[0-9a-f]{{16}}{re.escape(PARTIAL)}")
    for name in os.listdir(path.parent):
        if pattern.fullmatch(name):
            abandoned = path.with_name(name)
            with contextlib.suppress(OSError):
                descriptor = os.open(abandoned, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    if _lock(descriptor):
                        remove(abandoned)
                finally:
                    os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether a path leads to the file or folder of a descriptor, and not through a link."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _lock(descriptor: int) -> bool | None:
    """Lock a file or folder without waiting; return False if it is locked, None if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _hidden(path: Path) -> str:
    """Return the prefix of the names of lock and temporary files of `path`: at most 100 bytes, since names have at most 255."""
    return "." + os.fsencode(path.name)[:100].decode("utf-8", "ignore")


def remove(path: Path) -> None:
    """Delete a file or a folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_full(error: OSError) -> bool:
    """Return whether a write failed because of a full disk, a quota or a limit on file sizes."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def system_error(error: Exception) -> OSError | None:
    """Return the OSError that caused an exception, or None.

    It is the exception itself, or what a library reports in the text of another exception: tokenizers, safetensors, TensorStore,
    faiss and Arrow raise Exception, ValueError or RuntimeError for a full disk.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error
    if isinstance(error, UserError):
        return None
    text = str(error)
    if match := re.search(r"\(os error (\d+)\)", text):  # of Rust
        number = int(match[1])
    else:
        number = next((number for number in REPORTED_ERRNOS if os.strerror(number).lower() in text.lower()), 0)
    if number:
        return OSError(number, os.strerror(number))
    return error if isinstance(error, OSError) else None


REPORTED_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENAMETOOLONG)


def _flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace a file by `text` in UTF-8, without changing line breaks."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, content: Any) -> None:
    """Replace a file by `content` as JSON."""
    write_text(path, json.dumps(content, indent=2) + "\n")


JSON_LIMIT = 1 << 24  # bytes; descriptions of models have a few thousand, and a value needs 20 times its text in memory
DATA_LIMIT = 1 << 28  # bytes; of other files that are read at once: labelled data, logs, trees
_repr = reprlib.Repr()  # prints only a few levels and entries of a large value
_repr.maxstring = _repr.maxother = 100
quote = _repr.repr  # returns the shortened text of a value from a file, for a message


def read_limited(path: Path, limit: int = JSON_LIMIT) -> bytes:
    """Return the content of a file. OSError for a file of more than `limit` bytes, before anything is read."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, f"the file has more than {limit:,} bytes", str(path))
        return file.read(limit)


def read_json(path: Path, expected_type: type = dict) -> Any:
    """Return the content of a JSON file.

    Raises:
        ModelFileError: The file is missing, too large or not JSON, or its outermost value is not an `expected_type`.
    """
    try:
        check_untrusted(path)
        if path.stat().st_size > JSON_LIMIT:
            raise ModelFileError(f"{path} has {path.stat().st_size:,} bytes, more than such a file needs; {REPLACE_FILE}")
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file; name another directory, or {REPLACE_FILE}") from None
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON ({str(error)[:100]}); {REPLACE_FILE}") from None
    if not isinstance(value, expected_type):
        raise ModelFileError(f"{path} holds a {type(value).__name__}, expected a {expected_type.__name__}; {REPLACE_FILE}")
    return value


def check_regular(file: Path) -> None:
    """Raise ModelFileError for anything but a regular file; opening a pipe could block forever."""
    if file.exists() and not file.is_file():
        raise ModelFileError(f"{file} is a folder or a pipe, expected a file; remove it, or give another name")


def check_untrusted(file: Path) -> None:
    """Raise ModelFileError for anything but a regular file, and for a link that leads out of its folder.

    Links in the cache of the hub are allowed.
    """
    check_regular(file)
    if file.is_symlink():
        join_inside(file.parent, file.name, file)


def join_inside(root: Path, name: Any, source: Path) -> Path:
    """Return the path root/name.

    Args:
        root: The folder that the path must not leave.
        name: A path from a file.
        source: The file that names it, for the message.

    Raises:
        ModelFileError: The path resolves to a file outside `root`.
    """
    limit = root.resolve()
    for folder in (limit, limit.parent):
        if folder.parent.name == "snapshots":  # the hub's cache: files in snapshots/REVISION[/MODULE] are links into blobs/
            limit = folder.parent.parent
    relative = isinstance(name, str) and not PureWindowsPath(name).anchor and ".." not in Path(name).parts
    try:
        is_inside = relative and (root / name).resolve().is_relative_to(limit)
        if is_inside:
            (root / name).exists()  # OSError for a name that is too long
    except (OSError, ValueError, RuntimeError):  # ValueError for NUL and lone surrogates, RuntimeError for a cycle of links
        is_inside = False
    if not is_inside:
        raise ModelFileError(f"{source}: path {quote(name)} leads out of {root}, or cannot be resolved; {OTHER_MODEL}")
    return root / name


def sha256(file: Path) -> str:
    """Return the hex digest of a file's content."""
    try:
        check_regular(file)
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"{file}: {error.strerror}") from None


def print_warning(text: str) -> None:
    """Print a warning on stderr."""
    print_line(plain(f"warning: {text}"), "stderr")


def fingerprint(facts: dict[str, Any]) -> str:
    """Return the SHA-256 of a dictionary as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
