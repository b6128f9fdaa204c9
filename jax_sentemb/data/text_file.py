"""Read plain UTF-8 text files: find line starts, check the encoding, and detect files that change while they are read."""

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

BLOCK = 1 << 20  # bytes that are read at once; a block fits into a processor's cache
LARGE = 64 << 20  # bytes; the cache keeps the index and the hash of files of this size or more
READ_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError)
LINE_FEED = 10
SPACE = 32  # the bytes of spaces and control characters are no larger
# White space above SPACE, of which some scripts make blank lines, and the bytes of all white space and control characters.
WHITE = "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
OF_SPACES = np.isin(np.arange(256), [*range(SPACE + 1), *WHITE.encode()])


class TextFile:
    """An open file that is read by byte offset.

    It is not memory-mapped, because a mapped file that shrinks ends the process by SIGBUS.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`; raise DataError if the file has become shorter."""
        content = os.pread(self._file, end - start, start)
        if len(content) < end - start:
            raise changed_error([self._path])
        return content

    def state(self) -> tuple[int, ...]:
        """Return `state_of` the file as it is now."""
        return state_of(os.fstat(self._file))

    def check(self, digest: str) -> None:
        """Raise DataError unless the content has this SHA-256."""
        current = hashlib.sha256()
        for start in range(0, self.size, BLOCK):
            current.update(self.read(start, min(start + BLOCK, self.size)))
        if current.hexdigest() != digest or os.fstat(self._file).st_size != self.size:
            raise changed_error([self._path])


def state_of(stat: os.stat_result) -> tuple[int, ...]:
    """Return size, device, inode and times of change of a file. They differ after any change, even if it was undone."""
    return stat.st_size, stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


@contextlib.contextmanager
def open_bytes(path: Path, opener: Callable[..., Any] = open) -> Iterator[IO[bytes]]:
    """Open a file, decompressed by `opener`, to read bytes; raise DataError if opening or reading fails."""
    try:
        with open_unpacked(path, opener) as file:
            yield file
    except READ_ERRORS as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_blocks(path: Path, opener: Callable[..., Any] = open) -> Iterator[bytes]:
    """Yield the (decompressed) content of a file in blocks of BLOCK bytes."""
    with open_bytes(path, opener) as file:
        while block := file.read(BLOCK):
            yield block


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the content of a file; raise DataError if it cannot be read."""
    digest = hashlib.sha256()
    for block in read_blocks(path):
        digest.update(block)
    return digest.hexdigest()


def identity_of(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of paths, inodes, sizes and times of files. It differs after any change, and on another machine."""
    states = []
    for path in paths:
        stat = path.stat()
        states.append((os.path.realpath(path), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return hashlib.sha256(repr(states).encode()).hexdigest()


def check_unchanged(paths: Sequence[Path], identity: str, digests: Sequence[str] = ()) -> None:
    """Raise DataError unless the files have this `identity_of` and, if `digests` are given, these SHA-256."""
    try:
        is_unchanged = identity_of(paths) == identity and all(
            sha256_of(path) == digest for path, digest in zip(paths, digests, strict=False)
        )
    except OSError:
        is_unchanged = False
    if not is_unchanged:
        raise changed_error(paths)


def changed_error(paths: Sequence[Path]) -> DataError:
    """Return the error for one of these files that changed while it was read."""
    several = " or another file" * (len(paths) > 1)
    return DataError(f"{paths[0]}{several} changed while it was read: run the command again when the file no longer changes")


def not_utf8_error(path: Path, line: int, byte: int, error: UnicodeDecodeError) -> DataError:
    """Return the error for a file that is not UTF-8, with the line and the byte offset of the first wrong byte."""
    return DataError(f"{path} line {line}, byte {byte}: not UTF-8 ({error.reason}); convert the file, for instance with iconv")


class Utf8Check:
    """Check the blocks of a file, one after the other; errors name `path`."""

    def __init__(self, path: Path) -> None:
        self._path, self._decoder = path, codecs.getincrementaldecoder("utf-8")()
        self._lines = self._bytes = 0  # in the blocks so far

    def __call__(self, block: bytes) -> None:
        """Raise DataError if the next block is not UTF-8, or the first one is UTF-16 or UTF-32. An empty block ends the file."""
        pending = self._decoder.getstate()[0]
        if not (block.isascii() and block) or pending:
            try:
                self._decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line = self._lines + (pending + block)[: error.start].count(b"\n") + 1
                raise not_utf8_error(self._path, line, self._bytes - len(pending) + error.start, error) from error
        if not self._bytes:
            _check_width(block, self._path)
        self._lines += block.count(b"\n")
        self._bytes += len(block)

    @property
    def unfinished(self) -> bytes:
        """Return the bytes of a character that the next block continues."""
        return self._decoder.getstate()[0]


def scan(path: Path, write_starts: Callable[[bytes], Any]) -> tuple[int, int, str]:
    """Index a text file in one pass.

    Args:
        path: The file.
        write_starts: Receives the byte offsets (int64) at which non-blank lines start, block by block.

    Returns:
        The number of lines, the number of non-blank lines, and the SHA-256.

    Raises:
        DataError: The text is not UTF-8, or its line ends are carriage returns.
    """
    digest, check = hashlib.sha256(), Utf8Check(path)
    offset = lines = sentences = open_start = returns = 0  # `open_start`: start of the line that the previous block did not finish
    visible, unfinished = np.zeros(1, bool), b""
    for block in read_blocks(path):
        digest.update(block)
        check(block)
        block, unfinished = unfinished + block, check.unfinished  # from here on, blocks end where characters do
        block = block[: len(block) - len(unfinished)]
        returns += block.count(b"\r")
        if offset == 0 and block.startswith(codecs.BOM_UTF8):
            block = block[3:]
            offset = open_start = 3
        content = np.frombuffer(block + b"\n", np.uint8)  # the line feed gives the last line at least one byte
        line_starts = np.concatenate([[0], np.flatnonzero(content[:-1] == LINE_FEED) + 1])
        open_is_visible = visible[-1]
        visible = np.maximum.reduceat(content, line_starts) > SPACE
        if not block.isascii():
            ends = np.append(line_starts[1:], len(content))
            for number in np.flatnonzero(visible & OF_SPACES[content[line_starts]]):
                visible[number] = not _is_blank(content[line_starts[number] : ends[number]])
        visible[0] |= open_is_visible
        line_starts += offset
        line_starts[0] = open_start
        starts = line_starts[:-1][visible[:-1]]
        write_starts(starts.tobytes())
        sentences += len(starts)
        lines += len(line_starts) - 1
        open_start = int(line_starts[-1])
        offset += len(block)
    check(b"")
    if not lines and returns > 1:
        raise DataError(f"{path} has {returns} carriage returns and no line feed, so it is one line: try tr '\\r' '\\n'")
    if open_start < offset:  # the last line has no line feed
        lines += 1
        if visible[-1]:
            sentences += 1
            write_starts(np.array([open_start]).tobytes())
    return lines, sentences, digest.hexdigest()


def line_numbers(file: TextFile, starts: Int[np.ndarray, " lines"]) -> Iterator[Int[np.ndarray, " lines"]]:
    """Yield, block by block, the numbers of the lines that start at these byte offsets, counted from 0 (int64, ascending)."""
    line = done = 0
    for block_start in range(0, file.size, BLOCK):
        block = np.frombuffer(file.read(block_start, min(block_start + BLOCK, file.size)), np.uint8)
        ends = block_start + np.flatnonzero(block == LINE_FEED)
        last = int(np.searchsorted(starts, block_start + len(block)))
        yield line + np.searchsorted(ends, starts[done:last])
        line, done = line + len(ends), last


def follows_blank_line(content: UInt8[np.ndarray, " bytes"], starts: Int[np.ndarray, " lines"]) -> Bool[np.ndarray, " lines"]:
    """Return whether a blank line precedes the line at each of `starts`. The result for the first line of a file is undefined.

    Args:
        content: The bytes of the text.
        starts: Byte offsets of lines in `content`, int64.
    """
    # From the byte before the line feed, go back over bytes of white space to another byte or another line feed.
    offsets = np.maximum(starts - 2, 0)
    moving = np.arange(len(offsets))  # the lines whose search has not ended
    while len(
        moving := moving[OF_SPACES[content[offsets[moving]]] & (content[offsets[moving]] != LINE_FEED) & (offsets[moving] > 0)]
    ):
        offsets[moving] -= 1
    follows = content[offsets] == LINE_FEED
    for line in np.flatnonzero(follows & (offsets < starts - 2)):
        follows[line] = _is_blank(content[offsets[line] + 1 : starts[line] - 1])
    return follows


def _is_blank(line: UInt8[np.ndarray, " bytes"]) -> bool:
    """Return whether a line has only white space and control characters."""
    if line.max() <= SPACE:
        return True
    return all(character <= chr(SPACE) or character in WHITE for character in line.tobytes().decode())


def _check_width(block: bytes, path: Path) -> None:
    """Raise DataError for UTF-16 or UTF-32: such text can be valid UTF-8, with a control character next to each letter."""
    content = np.frombuffer(block, np.uint8)
    controls = [(content[first::4] < 9).mean() for first in range(4)] if len(block) > 8 else [0]
    if max(controls) > 0.5 and min(controls) < 0.1:
        raise DataError(
            f"{path} is UTF-16 or UTF-32 without a byte order mark: convert it, for instance with iconv -f UTF-16LE -t UTF-8"
        )
