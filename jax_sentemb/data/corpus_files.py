"""From files of any accepted kind to numbered sentences, without holding the text in memory.

Lines end at "\\n" only (one "\\r" before it is dropped), a byte order mark at the start of a file is dropped, blank lines are no
sentences. Compressed and structured files and data sets are turned into a plain text file in the cache first, once.
"""

import bisect
import codecs
import contextlib
import csv
import functools
import glob
import gzip
import hashlib
import itertools
import json
import lzma
import os
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jax_sentemb.data.cache import cache_folder, cached, mapped, read_about
from jax_sentemb.data.tables import dataset_rows, parquet_rows
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.files import check_name

BLOCK = 1 << 20  # bytes looked at in one go: fits into a processor's cache
LARGE = 64 << 20  # bytes of a corpus from which on its index is kept in the cache
LONGEST = 1 << 16  # bytes of a line that are looked at: far more than any encoder reads
KINDS = (".txt", ".jsonl", ".csv", ".tsv")
TEXT = "text.txt"  # of a conversion in the cache
PARQUET = ".parquet"  # packed inside, so never as .gz
COMPRESSED: dict[str, Callable] = {".gz": gzip.open, ".xz": lzma.open}
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
SET_COLUMN = "set data.column"
LINE_FEED = 10
PACKING, UNPACKED = 200, 1 << 30  # a packed text has at most so many times its size, or bytes; that is also the longest row
Read = TypeVar("Read")
SPACE = 32  # a line with nothing above it is blank: spaces and control characters


class Sentences:
    """Lines of UTF-8 text files by number, read when asked for; 8 bytes a line in memory, from LARGE bytes on in a file of `cache`.

    `report`: lines, blank, bytes. `fingerprint`: SHA-256 of all bytes of the (decompressed, converted) text; for one plain file
    that is what `sha256sum` prints, for several the SHA-256 of those, one a line. Paths and times are not in it.

    A pickled copy, for another process, has to `open` the files again.
    """

    def __init__(self, paths: Iterable[Path], cache: Path, own: bool = False) -> None:
        """`own`: files that nobody else knows, and that may be gone once they are mapped."""
        self._paths, self._own = list(paths), own
        self._identity = _identity(self._paths)
        if sum(path.stat().st_size for path in self._paths) < LARGE:
            self._index, starts = None, bytearray()  # of int64; grows in place, so that the index is in memory once
            scanned = [_scan(path, starts.extend) for path in self._paths]
        else:
            # The content identifies a text, but to read 100 GB at every start would cost minutes. So its index is found by what the
            # file system says of the files. No program can set a file's time of change (ctime), so an edit does not go unnoticed,
            # unless it comes within one tick of the file system's clock, some milliseconds, of the change before it.
            self._index = cached(cache / f"{self._identity[:24]}.index", self._write_index)
            scanned, starts = read_about(self._index)["files"], b""
        self._digests = [digest for _, _, digest in scanned]
        self.open(starts)
        self._first = [0, *itertools.accumulate(sentences for _, sentences, _ in scanned)]
        lines, digests = sum(lines for lines, _, _ in scanned), self._digests
        self.report = {"lines": lines, "blank": lines - len(self), "bytes": sum(text.size for text in self._texts)}
        several = "".join(f"{digest}\n" for digest in digests)
        self.fingerprint = digests[0] if len(digests) == 1 else hashlib.sha256(several.encode()).hexdigest()

    def _write_index(self, folder: Path) -> dict[str, Any]:
        """starts.bin; of each file the numbers of lines and of sentences and the SHA-256."""
        with (folder / "starts.bin").open("wb") as file:
            scanned = [_scan(path, file.write) for path in self._paths]
        _check_unchanged(self._paths, self._identity)
        return {"files": scanned}

    @property
    def indexed(self) -> bool:
        """Whether the index is in a file, so that another process can open a pickled copy."""
        return self._index is not None

    @property
    def opened(self) -> bool:
        """Whether the files are open; not so in a copy that came out of a pickle."""
        return "_texts" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_texts", "_starts", "_states")}

    def open(self, starts: bytes | bytearray = b"") -> None:
        """Open the files, which a pickled copy has not done; DataError if they are not what was indexed any more."""
        self._texts = [_Text(path) for path in self._paths]
        self._starts = mapped(self._index / "starts.bin", np.int64) if self._index else np.frombuffer(starts, np.int64)
        self._states = [text.state() for text in self._texts]
        _check_unchanged(self._paths, self._identity)

    def settled(self, read: Callable[[], Read]) -> Read:
        """What `read` returns of files that did not change meanwhile; DataError if their content is not what was indexed.

        It costs a microsecond a file. Files that were only touched or moved are hashed again, and `read` is called again.
        """
        while True:
            found, states = read(), [text.state() for text in self._texts]
            if states == self._states:
                return found
            for text, digest in zip(self._texts, self._digests, strict=True):
                text.check(digest)
            self._states = states

    def check_unchanged(self, content: bool = False) -> None:
        """DataError if the files are not what was indexed any more: before what was read of them gets their fingerprint.

        `content`: their bytes are compared, too. What the file system says finds also a change that was undone meanwhile.
        """
        if not self._own:
            _check_unchanged(self._paths, self._identity, self._digests if content else [])

    def __len__(self) -> int:
        return self._first[-1]

    def __getitem__(self, number: int) -> str:
        """Sentence `number` from 0; of a line longer than LONGEST bytes only the beginning. DataError if the file changed."""
        if not 0 <= number < len(self):
            raise IndexError(f"sentence {number} of {len(self)}")
        file = bisect.bisect_right(self._first, number) - 1
        text, start = self._texts[file], int(self._starts[number])
        limit = int(self._starts[number + 1]) if number + 1 < self._first[file + 1] else text.size
        found = text.read(start, min(start + LONGEST, limit))
        end = found.find(b"\n")
        if end < 0 and start + LONGEST < text.size:
            return found.decode("utf-8", "ignore")  # the last character may be cut in two
        try:
            return (found if end < 0 else found[:end]).removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:  # it was UTF-8 when it was indexed
            raise _changed(self._paths[file]) from None

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def begin_document(self, first: int, last: int) -> np.ndarray:
        """Bool [last - first]: whether a sentence is the first of a file, or stands behind a blank line."""
        found = np.zeros(last - first, bool)
        for text, *ends in zip(self._texts, self._first[:-1], self._first[1:], strict=True):
            start, end = (min(max(number, first), last) for number in ends)
            if start < end:
                seen = int(self._starts[start - 1]) if start > ends[0] else 0  # from there on the text before them is looked at
                content = np.frombuffer(text.read(seen, int(self._starts[end - 1]) + 1), np.uint8)
                found[start - first : end - first] = _behind_blank(content, self._starts[start:end] - seen)
                if start == ends[0]:
                    found[start - first] = True
        return found

    def place(self, number: int) -> tuple[int, int]:
        """Where sentence `number` is: which of the files, from 0, and which line of it, from 1."""
        file = bisect.bisect_right(self._first, number) - 1
        text, end = self._texts[file], int(self._starts[number])
        return file, 1 + sum(text.read(start, min(start + BLOCK, end)).count(b"\n") for start in range(0, end, BLOCK))


def open_corpus(files: str, column: str = "text", cache: Path | None = None) -> Sentences:
    """Sentences of comma-separated paths and globs (.txt, .jsonl, .csv, .tsv, also .gz or .xz; .parquet), hf: or tfds: data sets.

    `column` names the field of structured files and data sets, or several, comma separated, each a sentence of its own; a line
    break inside a field becomes a space. DataError for what is missing, empty, damaged or not UTF-8. `cache` holds conversions and
    the index of a LARGE corpus, default `cache_folder()`.
    """
    folder = cache or cache_folder()
    sentences = Sentences((_plain(source, _names(column), folder) for source in sources_of(files)), folder)
    if not len(sentences):
        raise DataError(f"data.files={files}: no sentence in {sentences.report['lines']} lines, all are blank")
    return sentences


def open_text(option: str, files: str, column: str = "text") -> Sentences:
    """As `open_corpus` for an option of a command line, which errors name; "-" is standard input, lines of text."""
    try:
        if files != "-":
            return open_corpus(files, column)
        with tempfile.TemporaryDirectory() as folder:  # open files stay readable when their name is gone
            spooled = Path(folder) / "standard input.txt"
            with spooled.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            sentences = Sentences([spooled], Path(folder), own=True)
        if not len(sentences):
            raise DataError(f"data.files=-: no sentence in {sentences.report['lines']} lines, all are blank")
        return sentences
    except (ConfigError, DataError) as error:
        raise type(error)(
            str(error).replace("data.files=", f"{option} ").replace("data.column=", "--column ").replace("data.column", "--column")
        ) from None


def sources_of(files: str) -> Iterator[str]:
    """Paths and data sets in the order named, globs sorted; DataError for what is none, ConfigError for a name in no UTF-8."""
    for source in _sources_of(files):
        check_name(source)
        yield source


def _sources_of(files: str) -> Iterator[str]:
    names = [files] if os.path.isfile(files) else [name.strip() for name in files.split(",")]  # a comma may be part of a name
    if not any(names):
        raise DataError("data.files is empty: name a text file")
    for name in filter(None, names):
        path = os.path.expanduser(name)
        if name.startswith(("hf:", "tfds:")):
            yield name
        elif os.path.isdir(path):
            raise DataError(f"data.files={name} is a directory: name its files, for instance {name.rstrip('/')}/*.txt")
        elif os.path.isfile(path):
            yield path
        elif os.path.exists(path):  # a pipe or a device: it has no end, or none that can be read twice
            raise DataError(f"data.files={name} is no regular file: copy what it gives into one")
        elif glob.has_magic(path):
            matches = [match for match in sorted(_matches(path)) if os.path.isfile(match)]
            if not matches:
                raise DataError(f"data.files={name}: no file matches")
            yield from matches
        else:
            raise DataError(f"data.files={name}: no such file")


def _matches(pattern: str) -> set[str]:
    """The files of `glob.glob(pattern, recursive=True)`, but ** enters each folder once, however many links lead back to it."""
    head, recursive, tail = (f"{pattern}/*" if f"/{pattern}".endswith("/**") else pattern).partition("**/")
    if not recursive or (head and not head.endswith("/")):
        return set(glob.glob(pattern))
    found: set[str] = set()
    entered: set[str] = set()
    for start in glob.glob(head) if head else [""]:
        for folder, below, _ in os.walk(start or ".", followlinks=True):
            real = os.path.realpath(folder)
            below[:] = sorted(name for name in below if not name.startswith(".")) if real not in entered else []
            if real not in entered:
                entered.add(real)
                inside = os.path.join(glob.escape(folder), "") if start else glob.escape(folder).removeprefix(".").removeprefix("/")
                found |= _matches(os.path.join(inside, tail))
    return found


def _names(column: str) -> tuple[str, ...]:
    names = tuple(filter(None, (name.strip() for name in column.split(","))))
    if not names:
        raise ConfigError(f"data.column={column!r} names no column")
    return names


def _plain(source: str, columns: tuple[str, ...], cache: Path) -> Path:
    """A plain text file with the sentences of `source`: itself, or a conversion in the cache."""
    if source.startswith(("hf:", "tfds:")):
        rows, identity = dataset_rows(source, columns)
    else:
        path = Path(source)
        kind, opener = _kind(path)
        if kind == ".txt" and opener is open:
            return path
        # The content, not path and time, identifies a file: a copy is not converted again, an edit never goes unnoticed.
        before, digest = _identity([path]), _digest(path, cache)
        name = f"{digest}|{kind}|{','.join(columns) if kind != '.txt' else ''}"
        lines = _no_bomb(path, _blocks(path, opener)) if kind == ".txt" else _row_lines(read_rows(source, columns), columns)
        return _converted(cache, name, lines, lambda: _check_unchanged([path], before, [digest]))
    return _converted(cache, identity, _row_lines(rows, columns), lambda: None)


def _no_bomb(path: Path, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks of a packed file; DataError, before the disk is full, for one that unpacks to more than any text does."""
    size, limit = 0, max(UNPACKED, PACKING * path.stat().st_size)
    for block in blocks:
        size += len(block)
        if size > limit:
            raise DataError(
                f"{path} unpacks to more than {PACKING} times its size, as no text does: unpack it yourself if it is one"
            )
        yield block


def _row_lines(rows: Iterable[tuple[str, Sequence[Any]]], columns: tuple[str, ...]) -> Iterator[bytes]:
    for where, texts in rows:
        for column, text in zip(columns, texts, strict=True):
            yield _one_line(text, f"{where}: {column}")


def read_rows(source: str, columns: tuple[str, ...], remedy: str = SET_COLUMN) -> Iterator[tuple[str, Sequence[Any]]]:
    """Where a row is and what it has in `columns`, for each row of a structured file or a data set; DataError as `open_corpus`.

    `remedy` is what the error about a missing column advises.
    """
    if source.startswith(("hf:", "tfds:")):
        return dataset_rows(source, columns)[0]
    path = Path(source)
    kind, opener = _kind(path)
    if kind == ".txt":
        raise DataError(
            f"data.files={source} has no columns: this method reads {', '.join(columns)} of .tsv, .csv, .jsonl or .parquet files"
        )
    if kind == PARQUET:
        return parquet_rows(path, columns, remedy)
    if kind == ".jsonl":
        return _json_lines(path, opener, columns, remedy)
    return _table(path, opener, columns, kind, remedy)


def _kind(path: Path) -> tuple[str, Callable]:
    """The kind of a file by its name, and what opens it."""
    packing = path.suffix if path.suffix in COMPRESSED else ""
    kind = Path(path.name.removesuffix(packing)).suffix
    if kind not in KINDS and path.suffix != PARQUET:
        known = f"{', '.join(KINDS)}, each also as .gz or .xz, and {PARQUET}"
        raise DataError(f"data.files={path}: unknown kind of file; known are {known}")
    return kind, COMPRESSED.get(packing, open)


def _converted(cache: Path, identity: str, blocks: Iterable[bytes], check: Callable[[], None]) -> Path:
    """The text file of these blocks in the cache, under their `identity` unless `check` raises after they were read."""

    def write(folder: Path) -> dict[str, Any]:
        with (folder / TEXT).open("wb") as file:
            file.writelines(blocks)
        check()
        return {}

    return cached(cache / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.text", write) / TEXT


@contextlib.contextmanager
def _opened(path: Path, opener: Callable = open) -> Iterator[Any]:
    """The file's (decompressed) bytes to read; DataError if that fails now or later."""
    try:
        with opener(path, "rb") as file:
            yield file
    except DAMAGED as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _blocks(path: Path, opener: Callable = open) -> Iterator[bytes]:
    with _opened(path, opener) as file:
        while block := file.read(BLOCK):
            yield block


def _digest(path: Path, cache: Path) -> str:
    """SHA-256 of the file; that of a LARGE one is kept in the cache."""
    if path.stat().st_size < LARGE:
        return _sha256(path)
    identity = _identity([path])

    def write(folder: Path) -> dict[str, Any]:
        digest = _sha256(path)
        _check_unchanged([path], identity)
        return {"sha256": digest}

    return read_about(cached(cache / f"{identity[:24]}.sha256", write))["sha256"]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    for block in _blocks(path):
        digest.update(block)
    return digest.hexdigest()


def _one_line(text: Any, where: str) -> bytes:
    if not isinstance(text, str):
        raise DataError(f"{where} is {type(text).__name__}, not text: fill or drop it")
    try:
        return text.replace("\r\n", " ").replace("\n", " ").encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        raise DataError(f"{where} holds half a surrogate pair, which is no Unicode text") from None


def _text_lines(path: Path, opener: Callable) -> Iterator[str]:
    """Lines with their ends, checked UTF-8, without a byte order mark."""
    at = 0
    with _opened(path, opener) as file:
        for number, line in enumerate(iter(functools.partial(file.readline, UNPACKED), b""), 1):
            if len(line) == UNPACKED:
                raise DataError(f"{path} line {number} has {UNPACKED:,} bytes or more: no row of text has so many")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise _not_utf8(path, number, at + error.start, error) from error
            yield text.removeprefix("\ufeff") if at == 0 else text
            at += len(line)


def _json_lines(path: Path, opener: Callable, columns: tuple[str, ...], remedy: str) -> Iterator[tuple[str, list[Any]]]:
    for number, line in enumerate(_text_lines(path, opener), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} line {number}: not JSON ({error})") from error
        if missing := [column for column in columns if not isinstance(row, dict) or column not in row]:
            raise DataError(f"{path} line {number} has no key {missing[0]!r}: {remedy}")
        yield f"{path} line {number}", [row[column] for column in columns]


def _table(path: Path, opener: Callable, columns: tuple[str, ...], kind: str, remedy: str) -> Iterator[tuple[str, list[str]]]:
    csv.field_size_limit(1 << 30)
    lines = _text_lines(path, opener)
    # A TSV is split at tabs, its quotes are text.
    rows = csv.reader(lines, strict=True) if kind == ".csv" else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    good = 0  # lines up to the end of the last row: a quote that is not closed swallows all that follow
    try:
        header = next(rows, [])
        if missing := [column for column in columns if column not in header]:
            there = " ".join(", ".join(header).split())[:200]  # a quoted name may hold line breaks
            raise DataError(f"{path} has no column {missing[0]!r}, only {there or 'none'}: {remedy}")
        places = [header.index(column) for column in columns]
        for row in filter(None, rows):
            if len(row) <= max(places):
                raise DataError(
                    f"{path} line {rows.line_num} has {len(row)} fields, {header[max(places)]!r} is field {max(places) + 1}"
                )
            yield f"{path} line {rows.line_num}", [row[place] for place in places]
            good = rows.line_num
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as a table from line {good + 1} on: {error}; is a quote not closed?") from error


def _identity(paths: Sequence[Path]) -> str:
    """SHA-256 of what the file system says of the files: another one after any change, and on another machine."""
    known = []
    for path in paths:
        stat = path.stat()
        known.append((os.path.realpath(path), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _check_unchanged(paths: Sequence[Path], identity: str, digests: Sequence[str] = ()) -> None:
    """DataError unless the files have this `_identity` and, where they are given, these SHA-256."""
    try:
        same = _identity(paths) == identity and all(_sha256(path) == digest for path, digest in zip(paths, digests, strict=False))
    except OSError:
        same = False
    if not same:
        raise _changed(paths[0], *paths[1:])


class _Text:
    """The bytes of an open file by place. Not memory-mapped: a mapped file that shrinks ends the process by SIGBUS."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`; DataError if they are not there any more."""
        found = os.pread(self._file, end - start, start)
        if len(found) < end - start:
            raise _changed(self._path)
        return found

    def state(self) -> tuple[int, int, int]:
        """What the file system says of the content; it differs after any change, also one that was undone."""
        stat = os.fstat(self._file)
        return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

    def check(self, digest: str) -> None:
        """DataError unless the content has this SHA-256."""
        found = hashlib.sha256()
        for start in range(0, self.size, BLOCK):
            found.update(self.read(start, min(start + BLOCK, self.size)))
        if found.hexdigest() != digest or os.fstat(self._file).st_size != self.size:
            raise _changed(self._path)


def _changed(path: Path, *others: Path) -> DataError:
    several = " or another file" * bool(others)
    return DataError(f"{path}{several} changed while it was read: start again when it stays as it is")


def _scan(path: Path, keep: Callable[[bytes], Any]) -> tuple[int, int, str]:
    """The number of lines of a text file, the number of those that are not blank, the SHA-256.

    `keep` gets the starts of those that are not blank, int64, block by block.
    """
    digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    at = lines = sentences = open_start = returns = 0  # `open_start`: where the line began that the block before did not finish
    visible = np.zeros(1, bool)
    for block in _blocks(path):
        digest.update(block)
        _check_utf8(block, decoder, path, lines, at)
        if at == 0:
            _check_width(block, path)
        returns += block.count(b"\r")
        if at == 0 and block.startswith(codecs.BOM_UTF8):
            block = block[3:]
            at = open_start = 3
        content = np.frombuffer(block + b"\n", np.uint8)  # one more, so that the last line has a byte to look at
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
    if open_start < at:  # no line feed at the end of the file
        lines += 1
        if visible[-1]:
            sentences += 1
            keep(np.array([open_start]).tobytes())
    return lines, sentences, digest.hexdigest()


def _behind_blank(content: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Bool: whether the line before each of these starts is blank; of the first line of a file it says nothing."""
    at = np.maximum(starts - 2, 0)  # the last byte before the line feed: back over what cannot be seen, to a letter or a line feed
    hidden = np.arange(len(at))
    while len(hidden := hidden[(content[at[hidden]] <= SPACE) & (content[at[hidden]] != LINE_FEED) & (at[hidden] > 0)]):
        at[hidden] -= 1
    return content[at] == LINE_FEED


def _check_width(block: bytes, path: Path) -> None:
    """DataError for text in two or four bytes a character: as UTF-8 it is letters with control characters between them."""
    content = np.frombuffer(block, np.uint8)
    controls = [(content[place::4] < 9).mean() for place in range(4)] if len(block) > 8 else [0]
    if max(controls) > 0.5 and min(controls) < 0.1:
        raise DataError(f"{path} is UTF-16 or UTF-32 without a mark: convert it, for instance with iconv -f UTF-16LE -t UTF-8")


def _check_utf8(block: bytes, decoder: codecs.IncrementalDecoder, path: Path, lines_before: int, at: int) -> None:
    """DataError if `block` (empty: the end) does not go on as UTF-8."""
    pending = decoder.getstate()[0]
    if block.isascii() and block and not pending:
        return
    try:
        decoder.decode(block, final=not block)
    except UnicodeDecodeError as error:
        before = (pending + block)[: error.start].count(b"\n")
        raise _not_utf8(path, lines_before + before + 1, at - len(pending) + error.start, error) from error


def _not_utf8(path: Path, line: int, byte: int, error: UnicodeDecodeError) -> DataError:
    return DataError(f"{path} line {line}, byte {byte}: not UTF-8 ({error.reason}); convert the file, for instance with iconv")
