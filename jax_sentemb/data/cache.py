"""The cache of converted, indexed and tokenised text: entries that are complete or absent, checked for damage."""

import json
import os
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from jax_sentemb.errors import DataError, ResourceError
from jax_sentemb.files import user_path

ABOUT = "about.json"
BLOCK = 4 << 20  # bytes with a checksum of their own
CHECKED = 32  # blocks that are read when an entry is opened
_sizes: dict[Path, int] = {}  # bytes of the files that this process has memory-mapped


def cache_folder() -> Path:
    """Where converted, indexed and tokenised text is kept: `text` in JAX_SENTEMB_CACHE, or in ~/.cache/jax_sentemb."""
    return user_path(os.environ.get("JAX_SENTEMB_CACHE") or "~/.cache/jax_sentemb") / "text"


def cached(target: Path, write: Callable[[Path], dict[str, Any]]) -> Path:
    """`target`: a folder with the files that `write` puts into an empty one, and about.json; as it is where it is `undamaged`.

    It is complete or absent, never half, also when several processes ask for it or one is killed; what `write` raises leaves none.
    ResourceError if the cache cannot be written.
    """
    partial = Path(f"{target}.partial")
    try:
        if undamaged(target):  # without the lock: a cache that is shared may be one that this process cannot write
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if not undamaged(target):
                _remove(target, partial)
                try:
                    partial.mkdir()
                    _write_about(partial, write(partial))
                    for file in partial.iterdir():
                        _flush(file)
                    partial.replace(target)
                finally:
                    _remove(partial)
    except OSError as error:
        raise ResourceError(f"cache {target.parent}: {error.strerror or error}; JAX_SENTEMB_CACHE names another folder") from error
    return target


def _remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _flush(file: Path) -> None:
    """To the disk: else a power failure can leave the name without the content."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def _write_about(folder: Path, about: dict[str, Any]) -> None:
    """about.json: `about`, sizes and checksums of the files of the folder, and a checksum of all that."""
    files = sorted(folder.iterdir())
    sizes = {file.name: file.stat().st_size for file in files}
    checksums = {file.name: [_checksum(file, block) for block in range(-(-sizes[file.name] // BLOCK))] for file in files}
    content = json.dumps({**about, "sizes": sizes, "checksums": checksums})
    (folder / ABOUT).write_text(f"{content}\n{zlib.crc32(content.encode())}\n", encoding="utf-8")


def read_about(folder: Path) -> dict[str, Any]:
    """What about.json tells; ValueError where it is damaged."""
    content, checksum, end = (folder / ABOUT).read_text(encoding="utf-8").split("\n")
    if end or checksum != str(zlib.crc32(content.encode())):
        raise ValueError(f"{folder / ABOUT} is damaged")
    return json.loads(content)


def undamaged(folder: Path) -> bool:
    """Whether the files have their sizes and what is read of them has its checksum.

    Entries of up to CHECKED blocks are read whole. Of larger ones so many blocks are drawn anew each time: a start stays quick, and
    a damaged block is not found by every start but by one of (blocks / CHECKED) on average.
    """
    try:
        about = read_about(folder)
        blocks = [(name, block) for name, checksums in about["checksums"].items() for block in range(len(checksums))]
        drawn = blocks if len(blocks) <= CHECKED else random.SystemRandom().sample(blocks, CHECKED)
        return all((folder / name).stat().st_size == size for name, size in about["sizes"].items()) and all(
            _checksum(folder / name, block) == about["checksums"][name][block] for name, block in drawn
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _checksum(file: Path, block: int) -> int:
    with file.open("rb") as opened:
        opened.seek(block * BLOCK)
        return zlib.crc32(opened.read(BLOCK))


def mapped(path: Path, kind: Any) -> np.ndarray:
    """The numbers of a file, memory-mapped; a plain array: NumPy's memmap class costs a microsecond with every access."""
    _sizes[path] = path.stat().st_size
    return np.asarray(np.memmap(path, kind, "r")) if _sizes[path] else np.zeros(0, kind)


def check_mapped() -> None:
    """DataError if a memory-mapped file has shrunk: reading beyond its end would kill the process by SIGBUS.

    Called before each batch; it does not help if a file shrinks while the batch is read. A deleted file stays mapped.
    """
    for path, size in list(_sizes.items()):
        try:
            if path.stat().st_size < size:
                raise DataError(f"{path} was cut while it was read: start again, and it is made anew")
        except OSError:
            _sizes.pop(path, None)
