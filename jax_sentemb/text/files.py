"""From files of any accepted kind to numbered sentences, without holding the text in memory.

Lines end at "\\n" only (one "\\r" before it is dropped), a byte order mark at the start of a file is dropped, blank lines are no
sentences. Compressed and structured files and data sets are turned into a plain text file in the cache first, once.
"""

import bisect
import codecs
import contextlib
import csv
import glob
import gzip
import hashlib
import json
import lzma
import mmap
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from jax_sentemb.errors import DataError, ResourceError
from jax_sentemb.text.sources import dataset_rows

BLOCK = 1 << 20  # bytes looked at in one go: fits into a processor's cache
LONGEST = 1 << 16  # bytes of a line that are looked at: far more than any encoder reads
KINDS = (".txt", ".jsonl", ".csv", ".tsv")
COMPRESSED: dict[str, Callable] = {".gz": gzip.open, ".xz": lzma.open}
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
SET_COLUMN = "set data.column"
LINE_FEED = 10
SPACE = 32  # a line with nothing above it is blank: spaces and control characters


class Sentences:
    """Lines of UTF-8 text files by number, memory-mapped; 8 bytes of memory a line.

    `report`: lines, blank, bytes. `fingerprint`: SHA-256 of all bytes of the (decompressed, converted) text; for one plain file
    that is what `sha256sum` prints, for several the SHA-256 of those, one a line. Paths and times are not in it.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.report = {"lines": 0, "blank": 0, "bytes": 0}
        self._texts, self._starts, self._first, digests = [], [], [0], []
        for path in paths:
            text, starts, lines, digest = _index(path)
            self._texts.append(text)
            self._starts.append(starts)
            self._first.append(self._first[-1] + len(starts))
            self.report["lines"] += lines
            self.report["blank"] += lines - len(starts)
            self.report["bytes"] += len(text)
            digests.append(digest)
        several = "".join(f"{digest}\n" for digest in digests)
        self.fingerprint = digests[0] if len(digests) == 1 else hashlib.sha256(several.encode()).hexdigest()

    def __len__(self) -> int:
        return self._first[-1]

    def __getitem__(self, number: int) -> str:
        """Sentence `number` from 0; of a line longer than LONGEST bytes only the beginning."""
        if not 0 <= number < len(self):
            raise IndexError(f"sentence {number} of {len(self)}")
        file = bisect.bisect_right(self._first, number) - 1
        text, start = self._texts[file], int(self._starts[file][number - self._first[file]])
        end = text.find(b"\n", start, start + LONGEST)
        if end < 0 and start + LONGEST < len(text):
            return text[start : start + LONGEST].decode("utf-8", "ignore")  # the last character may be cut in two
        return text[start : end if end >= 0 else len(text)].removesuffix(b"\r").decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))


def open_corpus(files: str, column: str = "text", cache: Path | None = None) -> Sentences:
    """Sentences of comma-separated paths and globs (.txt, .jsonl, .csv, .tsv, also as .gz or .xz), hf: or tfds: data sets.

    `column` names the field of structured files and data sets, or several, comma separated, each a sentence of its own; a line
    break inside a field becomes a space. DataError for what is missing, empty, damaged or not UTF-8. `cache` holds conversions,
    default `cache_folder()`.
    """
    sentences = Sentences(_plain(source, _names(column), cache or cache_folder()) for source in sources_of(files))
    if not len(sentences):
        raise DataError(f"data.files={files}: no sentence in {sentences.report['lines']} lines, all are blank")
    return sentences


def open_text(option: str, files: str, column: str = "text") -> Sentences:
    """As `open_corpus` for an option of a command line, which errors name; "-" is standard input, lines of text."""
    try:
        if files != "-":
            return open_corpus(files, column)
        with tempfile.TemporaryDirectory() as folder:  # mapped files stay readable when their name is gone
            spooled = Path(folder) / "standard input.txt"
            with spooled.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            return Sentences([spooled])
    except DataError as error:
        raise DataError(str(error).replace("data.files=", f"{option} ").replace("data.column", "--column")) from None


def cache_folder() -> Path:
    """Where converted and tokenised text is kept: `text` in JAX_SENTEMB_CACHE, or in ~/.cache/jax_sentemb."""
    return Path(os.environ.get("JAX_SENTEMB_CACHE") or "~/.cache/jax_sentemb").expanduser() / "text"


def cached(target: Path, write: Callable[[Path], None], valid: Callable[[Path], bool] = Path.exists) -> Path:
    """`target` (a file or a folder) as `write` makes it, unless a valid one is there already.

    It is complete or absent, never half, also when several processes ask for it or one is killed. ResourceError if the cache cannot
    be written.
    """
    partial = target.with_suffix(".partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if not valid(target):
                _remove(target, partial)
                try:
                    write(partial)
                    for file in partial.iterdir() if partial.is_dir() else [partial]:
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


def sources_of(files: str) -> Iterator[str]:
    """Paths and data sets in the order named, globs sorted."""
    names = [files] if os.path.isfile(files) else [name.strip() for name in files.split(",")]  # a comma may be part of a name
    if not any(names):
        raise DataError("data.files is empty: name a text file")
    for name in filter(None, names):
        path = os.path.expanduser(name)
        if name.startswith(("hf:", "tfds:")):
            yield name
        elif os.path.isdir(path):
            raise DataError(f"data.files={name} is a directory: name its files, for instance {name.rstrip('/')}/*.txt")
        elif os.path.exists(path):
            yield path
        elif glob.has_magic(path):
            matches = [match for match in sorted(glob.glob(path, recursive=True)) if os.path.isfile(match)]
            if not matches:
                raise DataError(f"data.files={name}: no file matches")
            yield from matches
        else:
            raise DataError(f"data.files={name}: no such file")


def _names(column: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in column.split(","))))


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
        identity = f"{_digest(path)}|{kind}|{','.join(columns) if kind != '.txt' else ''}"
        if kind == ".txt":
            return _converted(cache, identity, _blocks(path, opener))
        rows = read_rows(source, columns)
    return _converted(cache, identity, _row_lines(rows, columns))


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
        raise DataError(f"data.files={source} has no columns: this method reads {', '.join(columns)} of .tsv, .csv or .jsonl files")
    if kind == ".jsonl":
        return _json_lines(path, opener, columns, remedy)
    return _table(path, opener, columns, kind, remedy)


def _kind(path: Path) -> tuple[str, Callable]:
    """The kind of a file by its name, and what opens it."""
    packing = path.suffix if path.suffix in COMPRESSED else ""
    kind = Path(path.name.removesuffix(packing)).suffix
    if kind not in KINDS:
        raise DataError(f"data.files={path}: unknown kind of file; known are {', '.join(KINDS)}, each also as .gz or .xz")
    return kind, COMPRESSED.get(packing, open)


def _converted(cache: Path, identity: str, blocks: Iterable[bytes]) -> Path:
    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            file.writelines(blocks)

    return cached(cache / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.txt", write)


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


def _digest(path: Path) -> str:
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
        for number, line in enumerate(file, 1):
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
    rows = csv.reader(lines) if kind == ".csv" else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        header = next(rows, [])
        if missing := [column for column in columns if column not in header]:
            raise DataError(f"{path} has no column {missing[0]!r}, only {', '.join(header)[:200] or 'none'}: {remedy}")
        places = [header.index(column) for column in columns]
        for row in filter(None, rows):
            if len(row) <= max(places):
                raise DataError(
                    f"{path} line {rows.line_num} has {len(row)} fields, {header[max(places)]!r} is field {max(places) + 1}"
                )
            yield f"{path} line {rows.line_num}", [row[place] for place in places]
    except csv.Error as error:
        raise DataError(f"{path} line {rows.line_num} cannot be read as a table: {error}") from error


def _index(path: Path) -> tuple[Any, np.ndarray, int, str]:
    """The memory-mapped bytes of a text file, the start of each line that is not blank, the number of lines, the SHA-256."""
    digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    starts = bytearray()  # of int64; grows in place, so that the index is in memory once
    at = lines = open_start = 0  # `open_start`: where the line began that the block before did not finish
    visible = np.zeros(1, bool)
    for block in _blocks(path):
        digest.update(block)
        _check_utf8(block, decoder, path, lines, at)
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
        starts += begin[:-1][visible[:-1]].tobytes()
        lines += len(begin) - 1
        open_start = int(begin[-1])
        at += len(block)
    _check_utf8(b"", decoder, path, lines, at)
    if open_start < at:  # no line feed at the end of the file
        lines += 1
        starts += np.array([open_start])[visible[-1:]].tobytes()
    with path.open("rb") as file:
        text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if at else b""
    return text, np.frombuffer(starts, np.int64), lines, digest.hexdigest()


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
