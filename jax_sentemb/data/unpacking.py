"""Open compressed files and limit their unpacked size: bytes that are read, bytes in the cache, and space on its disk."""

import gzip
import io
import lzma
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from jax_sentemb.errors import ConfigError, DataError, ResourceError, UserError

XZ_MEMORY = 256 << 20  # bytes for the decompressor of an .xz file; xz -9 needs 65 MiB, and a header may ask for 4 GiB
RATIO = 200  # a file may unpack to RATIO times its size, far more than text does, or to LIMIT bytes
LIMIT = 1 << 30
VARIABLE = "JAX_SENTEMB_UNPACKED_GB"  # the environment variable that raises LIMIT
RESERVE = 256 << 20  # bytes that stay free on the disk, or a twentieth of a small disk
CHECK_INTERVAL = 16 << 20  # bytes between two checks of the free space


def unpacked_limit(size: int) -> int:
    """Return the number of bytes to which a file of `size` bytes may unpack.

    Raises:
        ConfigError: The value of VARIABLE is not a number.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        gigabytes = float(text or 0)
    except ValueError:
        gigabytes = math.nan
    if not 0 <= gigabytes < math.inf:
        raise ConfigError(f"{VARIABLE}={text}: not a number of gigabytes; give a number such as 20")
    return max(LIMIT, RATIO * size, round(gigabytes * 1e9))


def too_large(path: str | Path, limit: int, error: type[UserError] = DataError) -> UserError:
    """Return the error for a file that unpacks to more than `limit` bytes."""
    remedy = f"if you trust it, set {VARIABLE} to more than {limit / 1e9:.1f}"
    return error(f"{path} unpacks to more than {limit:,} bytes, as decompression bombs do; {remedy}")


class _XzFile(io.RawIOBase):
    """The content of an .xz file with one or several streams. Unlike lzma.open, it limits the memory of the decompressor."""

    def __init__(self, path: Path, mode: str = "rb") -> None:
        assert mode == "rb"  # the interface of gzip.open
        self._file, self._packed = path.open("rb"), b""
        self._decoder = lzma.LZMADecompressor(memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        block = b""
        while not block:
            if self._decoder.eof and not self._start_stream():
                return 0
            if self._decoder.needs_input and not self._packed:
                self._packed = self._file.read(1 << 20)
                if not self._packed:
                    raise EOFError("the file ends within its compressed data")
            block, self._packed = self._decoder.decompress(self._packed, len(buffer)), b""
        buffer[: len(block)] = block
        return len(block)

    def _start_stream(self) -> bool:
        """Start the stream after the one that has ended, and return whether there is one. Zeros may lie between them."""
        self._packed = self._decoder.unused_data.lstrip(b"\0")
        while not self._packed and (block := self._file.read(1 << 20)):
            self._packed = block.lstrip(b"\0")
        if self._packed:
            self._decoder = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
        return bool(self._packed)

    def close(self) -> None:
        self._file.close()
        super().close()


COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": _XzFile}
TEXT_SUFFIXES = (".txt", *(f".txt{packing}" for packing in COMPRESSED))


def has_columns(files: str) -> bool:
    """Return whether any of the files, comma separated, has columns; standard input (-) and text files have lines."""
    return files != "-" and not all(name.strip().endswith(TEXT_SUFFIXES) for name in files.split(","))


class _Unpacked(io.RawIOBase):
    """A decompressed file that may be read up to a limit."""

    def __init__(self, file: IO[bytes], path: Path, error: type[UserError]) -> None:
        self._file, self._path, self._error = file, path, error
        self._remaining = self._limit = unpacked_limit(path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        block = self._file.read(len(buffer))
        self._remaining -= len(block)
        if self._remaining < 0:
            raise too_large(self._path, self._limit, self._error)
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_unpacked(path: Path, opener: Callable[..., Any] = open, error: type[UserError] = DataError) -> Any:
    """Open a file to read bytes, decompressed by `opener`. Reading beyond `unpacked_limit` raises `error`."""
    file = opener(path, "rb")
    return file if opener is open else io.BufferedReader(_Unpacked(file, path, error), 1 << 20)


class LimitedFile:
    """A new file of the cache that has at most `limit` bytes and leaves space on its disk."""

    def __init__(self, path: Path, source: str | Path, limit: int | None) -> None:
        """Open `path` for the content of `source`. The limit is None if the source has no size, as a data set."""
        self._file, self._folder, self._source, self._limit = path.open("wb"), path.parent, source, limit
        self._size = self._next_check = 0

    def __enter__(self) -> "LimitedFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, block: bytes) -> None:
        """Write some bytes.

        Raises:
            DataError: The file exceeds its limit.
            ResourceError: The disk is nearly full.
        """
        self._size += len(block)
        if self._limit is not None and self._size > self._limit:
            raise too_large(self._source, self._limit)
        if self._size > self._next_check:
            check_space(self._folder, len(block))
            self._next_check = self._size + CHECK_INTERVAL
        self._file.write(block)


def check_space(folder: Path, size: int) -> None:
    """Raise ResourceError if `size` more bytes do not leave RESERVE free on the disk of a folder."""
    disk = shutil.disk_usage(folder)
    needed = size + min(RESERVE, disk.total // 20)
    if disk.free < needed:
        raise ResourceError(
            f"{folder}: {disk.free:,} bytes are free, {needed:,} are needed; free space, or use another disk "
            "(JAX_SENTEMB_CACHE, TMPDIR)"
        )
