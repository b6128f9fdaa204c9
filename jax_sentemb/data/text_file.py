"""Reads plain UTF-8 text files: line starts, encoding checks, and detection of files that change while they are read."""

import codecs
import contextlib
import hashlib
import lzma
import os
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Bool, Int, UInt8

from jax_sentemb.data.unpacking import open_unpacked
from jax_sentemb.errors import DataError

BLOCK = 1 << 20  # bytes read at once; a block fits into a processor's cache
LARGE = 64 << 20  # bytes from which on the cache keeps what was computed from a whole file: its index or its hash
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
LINE_FEED = 10
SPACE = 32  # a line without any byte above this one (spaces and control characters only) is blank


class TextFile:
    """An open file that is read by byte offset.

    It is not memory-mapped, because a mapped file that shrinks ends the process by SIGBUS.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`; DataError if the file has become shorter."""
        found = os.pread(self._file, end - start, start)
        if len(found) < end - start:
            raise changed_error([self._path])
        return found

    def state(self) -> tuple[int, ...]:
        """Return `state_of` the file as it is now."""
        return state_of(os.fstat(self._file))

    def check(self, digest: str) -> None:
        """DataError unless the content has this SHA-256."""
        found = hashlib.sha256()
        for start in range(0, self.size, BLOCK):
            found.update(self.read(start, min(start + BLOCK, self.size)))
        if found.hexdigest() != digest or os.fstat(self._file).st_size != self.size:
            raise changed_error([self._path])


def state_of(stat: os.stat_result) -> tuple[int, ...]:
    """Return size, device, inode and times of change of a file: they differ after any change, also after one that was undone."""
    return stat.st_size, stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


@contextlib.contextmanager
def open_bytes(path: Path, opener: Callable[..., Any] = open) -> Iterator[IO[bytes]]:
    """Opens a file, decompressed by `opener`, to read bytes; DataError if opening or reading fails."""
    try:
        with open_unpacked(path, opener) as file:
            yield file
    except DAMAGED as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_blocks(path: Path, opener: Callable[..., Any] = open) -> Iterator[bytes]:
    """The (decompressed) content of a file in blocks of BLOCK bytes."""
    with open_bytes(path, opener) as file:
        while block := file.read(BLOCK):
            yield block


def sha256_of(path: Path) -> str:
    """SHA-256 of the content of a file; DataError if it cannot be read."""
    digest = hashlib.sha256()
    for block in read_blocks(path):
        digest.update(block)
    return digest.hexdigest()


def identity_of(paths: Sequence[Path]) -> str:
    """SHA-256 of paths, inodes, sizes and times of files: it differs after any change, and on another machine."""
    known = []
    for path in paths:
        stat = path.stat()
        known.append((os.path.realpath(path), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return hashlib.sha256(repr(known).encode()).hexdigest()


def check_unchanged(paths: Sequence[Path], identity: str, digests: Sequence[str] = ()) -> None:
    """DataError unless the files have this `identity_of` and, where `digests` are given, these SHA-256."""
    try:
        same = identity_of(paths) == identity and all(
            sha256_of(path) == digest for path, digest in zip(paths, digests, strict=False)
        )
    except OSError:
        same = False
    if not same:
        raise changed_error(paths)


def changed_error(paths: Sequence[Path]) -> DataError:
    """The error for one of these files that changed while it was read."""
    several = " or another file" * (len(paths) > 1)
    return DataError(f"{paths[0]}{several} changed while it was read: run the command again when the file no longer changes")


def not_utf8_error(path: Path, line: int, byte: int, error: UnicodeDecodeError) -> DataError:
    """The error for a file that is not UTF-8, with the line and the byte offset of the first wrong byte."""
    return DataError(f"{path} line {line}, byte {byte}: not UTF-8 ({error.reason}); convert the file, for instance with iconv")


def scan(path: Path, keep: Callable[[bytes], Any]) -> tuple[int, int, str]:
    """Counts the lines and the non-blank lines of a text file and computes its SHA-256, in one pass.

    `keep` receives the byte offsets (int64) at which non-blank lines start, block by block. DataError for text that is not UTF-8.
    """
    digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    at = lines = sentences = open_start = returns = 0  # `open_start`: start of the line that the previous block did not finish
    visible = np.zeros(1, bool)
    for block in read_blocks(path):
        digest.update(block)
        _check_utf8(block, decoder, path, lines, at)
        if at == 0:
            _check_width(block, path)
        returns += block.count(b"\r")
        if at == 0 and block.startswith(codecs.BOM_UTF8):
            block = block[3:]
            at = open_start = 3
        content = np.frombuffer(block + b"\n", np.uint8)  # the line feed gives the last line at least one byte
        begin = np.concatenate([[0], np.flatnonzero(content[:-1] == LINE_FEED) + 1])
        started_visible = visible[-1]
        visible = np.maximum.reduceat(content, begin) > SPACE
        visible[0] |= started_visible
        begin += at
        begin[0] = open_start
        starts = begin[:-1][visible[:-1]]
        keep(starts.tobytes())
        sentences += len(starts)
        lines += len(begin) - 1
        open_start = int(begin[-1])
        at += len(block)
    _check_utf8(b"", decoder, path, lines, at)
    if not lines and returns > 1:
        raise DataError(f"{path} has {returns} carriage returns and no line feed, so it is one line: try tr '\\r' '\\n'")
    if open_start < at:  # the last line has no line feed
        lines += 1
        if visible[-1]:
            sentences += 1
            keep(np.array([open_start]).tobytes())
    return lines, sentences, digest.hexdigest()


def line_numbers(file: TextFile, starts: Int[np.ndarray, " lines"]) -> Iterator[Int[np.ndarray, " lines"]]:
    """Yield, block by block, the numbers from 0 of the lines that begin at these byte offsets (int64, ascending)."""
    line = done = 0
    for begin in range(0, file.size, BLOCK):
        block = np.frombuffer(file.read(begin, min(begin + BLOCK, file.size)), np.uint8)
        ends = begin + np.flatnonzero(block == LINE_FEED)
        last = int(np.searchsorted(starts, begin + len(block)))
        yield line + np.searchsorted(ends, starts[done:last])
        line, done = line + len(ends), last


def follows_blank_line(content: UInt8[np.ndarray, " bytes"], starts: Int[np.ndarray, " lines"]) -> Bool[np.ndarray, " lines"]:
    """Whether a blank line precedes the line at each of `starts`; undefined for the first line of a file.

    starts: byte offsets in `content`, int64.
    """
    # From the byte before the line feed, go back over invisible bytes until a visible byte or another line feed.
    at = np.maximum(starts - 2, 0)
    hidden = np.arange(len(at))
    while len(hidden := hidden[(content[at[hidden]] <= SPACE) & (content[at[hidden]] != LINE_FEED) & (at[hidden] > 0)]):
        at[hidden] -= 1
    return content[at] == LINE_FEED


def _check_width(block: bytes, path: Path) -> None:
    """DataError for UTF-16 or UTF-32: such text can be valid UTF-8, with a control character beside each letter."""
    content = np.frombuffer(block, np.uint8)
    controls = [(content[place::4] < 9).mean() for place in range(4)] if len(block) > 8 else [0]
    if max(controls) > 0.5 and min(controls) < 0.1:
        raise DataError(
            f"{path} is UTF-16 or UTF-32 without a byte order mark: convert it, for instance with iconv -f UTF-16LE -t UTF-8"
        )


def _check_utf8(block: bytes, decoder: codecs.IncrementalDecoder, path: Path, lines_before: int, at: int) -> None:
    """DataError if `block`, the next bytes after those `decoder` has seen, is not UTF-8. An empty block ends the file."""
    pending = decoder.getstate()[0]
    if block.isascii() and block and not pending:
        return
    try:
        decoder.decode(block, final=not block)
    except UnicodeDecodeError as error:
        before = (pending + block)[: error.start].count(b"\n")
        raise not_utf8_error(path, lines_before + before + 1, at - len(pending) + error.start, error) from error
