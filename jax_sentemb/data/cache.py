"""Cache converted, indexed and tokenised text. An entry is complete or absent, and is checked for damage when it is opened."""

import json
import mmap
import os
import random
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from filelock import FileLock
from jaxtyping import Shaped
from numpy.typing import DTypeLike

from jax_sentemb.errors import DataError, ResourceError
from jax_sentemb.files import cache_home, remove, staging
from jax_sentemb.provenance import KEY, FileType, difference, fingerprint, mark

ABOUT = "about.json"
BLOCK = 4 << 20  # bytes that share one checksum
MAX_CHECKED = 32  # blocks that are checked when an entry is opened
_maps: WeakKeyDictionary[mmap.mmap, Path] = WeakKeyDictionary()  # every open memory map and its file
_maps_lock = threading.Lock()  # a dictionary must not grow while another thread goes through it


def cache_folder() -> Path:
    """Return the folder for converted, indexed and tokenised text."""
    return cache_home() / "text"


def cached(folder: Path, file_type: FileType, sources: Mapping[str, Any], write: Callable[[Path], dict[str, Any]]) -> Path:
    """Return the entry of `folder` that is made from `sources`. Create it if it is missing or damaged.

    The entry is complete or absent, even if several processes create it or one of them is killed.

    Args:
        folder: The folder of the cache.
        file_type: The type of the entry.
        sources: What the entry is made from.
        write: Writes the files into an empty folder and returns the description for about.json. If it raises an error, no entry
            is created.

    Raises:
        ResourceError: The cache cannot be written.
    """
    provenance = mark(file_type, sources)
    target = folder / f"{fingerprint(file_type, sources)[:24]}.{file_type.name}"

    def is_usable() -> bool:
        return is_intact(target) and not difference(read_about(target), file_type, sources)

    try:
        if is_usable():  # without the lock, because this process may have no right to write to a shared cache
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if not is_usable():
                remove(target)
                with staging(target) as partial:
                    _write_about(partial, {**write(partial), KEY: provenance})
                    for file in partial.iterdir():
                        _flush(file)
                    partial.replace(target)
    except OSError as error:
        raise ResourceError(f"cache {target.parent}: {error.strerror or error}; set JAX_SENTEMB_CACHE to another folder") from error
    return target


def _flush(file: Path) -> None:
    """Write a file to the disk; otherwise a power failure can leave its name without its content."""
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _write_about(folder: Path, about: dict[str, Any]) -> None:
    """Write about.json: `about`, sizes and checksums of the files of the folder, and a checksum of these values."""
    files = sorted(folder.iterdir())
    sizes = {file.name: file.stat().st_size for file in files}
    checksums = {file.name: [_checksum(file, block) for block in range(-(-sizes[file.name] // BLOCK))] for file in files}
    content = json.dumps({**about, "sizes": sizes, "checksums": checksums})
    (folder / ABOUT).write_text(f"{content}\n{zlib.crc32(content.encode())}\n", encoding="utf-8")


def read_about(folder: Path) -> dict[str, Any]:
    """Return the content of about.json; raise ValueError if it is damaged."""
    content, checksum, end = (folder / ABOUT).read_text(encoding="utf-8").split("\n")
    if end or checksum != str(zlib.crc32(content.encode())):
        raise ValueError(f"{folder / ABOUT} is damaged")
    return json.loads(content)


def is_intact(folder: Path) -> bool:
    """Return whether the files of an entry have the recorded sizes, and the checked blocks the recorded checksums.

    Entries of up to MAX_CHECKED blocks are checked completely. Of larger entries, MAX_CHECKED random blocks are checked each time.
    So opening stays fast, and a damaged block is found on average after blocks / MAX_CHECKED checks.
    """
    try:
        about = read_about(folder)
        blocks = [(name, block) for name, checksums in about["checksums"].items() for block in range(len(checksums))]
        sample = blocks if len(blocks) <= MAX_CHECKED else random.SystemRandom().sample(blocks, MAX_CHECKED)
        return all((folder / name).stat().st_size == size for name, size in about["sizes"].items()) and all(
            _checksum(folder / name, block) == about["checksums"][name][block] for name, block in sample
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _checksum(file: Path, block: int) -> int:
    with file.open("rb") as stream:
        stream.seek(block * BLOCK)
        return zlib.crc32(stream.read(BLOCK))


def map_array(path: Path, dtype: DTypeLike) -> Shaped[np.ndarray, " numbers"]:
    """Return the numbers of a file as a memory-mapped plain array. NumPy's memmap class takes a microsecond at every access."""
    with path.open("rb") as stream:
        if not os.fstat(stream.fileno()).st_size:
            return np.zeros(0, dtype)
        memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    with _maps_lock:
        for older in [other for other, file in _maps.items() if file == path]:
            del _maps[older]  # the new file replaces the one that was truncated
        _maps[memory] = path
    return np.frombuffer(memory, dtype)


def check_maps() -> None:
    """Raise DataError if a memory-mapped file has shrunk, because reading beyond its end kills the process by SIGBUS.

    It is called before each batch. It cannot protect against a file that shrinks while the batch is read. A deleted file stays
    mapped.
    """
    with _maps_lock:
        maps = list(_maps.items())
    for memory, path in maps:
        if memory.size() < len(memory):  # the size of the file
            raise DataError(f"{path} was truncated while it was read: run the command again, which restores the file")
