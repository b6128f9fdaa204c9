"""From files of any accepted kind to numbered sentences, without holding the text in memory.

Lines end at "\\n" only (one "\\r" before it is dropped), a byte order mark at the start of a file is dropped, blank lines are no
sentences. Compressed and structured files are turned into a plain text file in the cache first, once.
"""

import csv
import glob
import gzip
import hashlib
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from filelock import FileLock

from jax_sentemb.errors import DataError

BLOCK = 1 << 24  # bytes indexed at once
LONGEST = 1 << 16  # bytes of a line that are looked at: far more than any encoder reads
KINDS = (".txt", ".txt.gz", ".txt.xz", ".jsonl", ".csv", ".tsv")
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)


class Sentences:
    """Lines of UTF-8 text files by number, memory-mapped. `report`: lines, blank, bytes. `fingerprint`: SHA-256 of all bytes."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._texts, self._starts, self._ends, first = [], [], [], [0]
        digest = hashlib.sha256()
        self.report = {"lines": 0, "blank": 0, "bytes": 0}
        for path in paths:
            text, starts, ends, lines = _index(path, digest)
            self._texts.append(text)
            self._starts.append(starts)
            self._ends.append(ends)
            first.append(first[-1] + len(starts))
            self.report["lines"] += lines
            self.report["blank"] += lines - len(starts)
            self.report["bytes"] += len(text)
        self._first = np.array(first)
        self.fingerprint = digest.hexdigest()

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, number: int) -> str:
        """Sentence `number` from 0; of a line longer than LONGEST bytes only the beginning."""
        if not 0 <= number < len(self):
            raise IndexError(f"sentence {number} of {len(self)}")
        file = int(np.searchsorted(self._first, number, side="right")) - 1
        row = number - self._first[file]
        start, end = self._starts[file][row], self._ends[file][row]
        cut = end - start > LONGEST
        return self._texts[file][start : start + LONGEST if cut else end].tobytes().decode("utf-8", "ignore" if cut else "strict")

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))


def open_corpus(files: str, column: str = "text") -> Sentences:
    """Sentences of comma-separated paths and globs (.txt, .txt.gz, .txt.xz, .jsonl, .csv, .tsv), hf: or tfds: data sets.

    `column` names the field of structured files and data sets. DataError for what is missing, empty, damaged or not UTF-8.
    """
    paths = [_plain(source, column) for source in _sources(files)]
    sentences = Sentences(paths)
    if not len(sentences):
        raise DataError(f"data.files={files}: no sentence in {sentences.report['lines']} lines, all are blank")
    return sentences


def cache_folder() -> Path:
    """Where converted and tokenised text is kept: JAX_SENTEMB_CACHE, or ~/.cache/jax_sentemb."""
    folder = Path(os.environ.get("JAX_SENTEMB_CACHE", "~/.cache/jax_sentemb")).expanduser() / "text"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _sources(files: str) -> list[str]:
    found: list[str] = []
    for name in filter(None, (part.strip() for part in files.split(","))):
        if name.startswith(("hf:", "tfds:")):
            found.append(name)
            continue
        path = os.path.expanduser(name)
        if glob.has_magic(path) and not os.path.exists(path):
            matches = sorted(glob.glob(path, recursive=True))
            if not matches:
                raise DataError(f"data.files={name}: no file matches")
            found.extend(matches)
        elif os.path.isdir(path):
            raise DataError(f"data.files={name} is a directory: name its files, for instance {name.rstrip('/')}/*.txt")
        elif not os.path.exists(path):
            raise DataError(f"data.files={name}: no such file")
        else:
            found.append(path)
    if not found:
        raise DataError("data.files is empty: name a text file")
    return found


def _plain(source: str, column: str) -> Path:
    """A plain text file with the sentences of `source`: itself, or a conversion in the cache."""
    from jax_sentemb.text.sources import dataset_texts

    if source.startswith(("hf:", "tfds:")):
        texts, identity = dataset_texts(source, column)
        return _converted(identity, texts)
    path = Path(source)
    if path.name.endswith(".txt"):
        return path
    about = path.stat()
    identity = f"{path.resolve()}|{about.st_size}|{about.st_mtime_ns}|{column}"
    if path.name.endswith(".txt.gz"):
        return _converted(identity, lambda: _decompressed(path, gzip.open))
    if path.name.endswith(".txt.xz"):
        return _converted(identity, lambda: _decompressed(path, lzma.open))
    if path.suffix == ".jsonl":
        return _converted(identity, lambda: _json_lines(path, column))
    if path.suffix in (".csv", ".tsv"):
        return _converted(identity, lambda: _table(path, column))
    raise DataError(f"data.files={source}: unknown kind of file; known are {', '.join(KINDS)}")


def _converted(identity: str, lines: Callable[[], Iterable[bytes]]) -> Path:
    """The file in the cache for `identity`, written by `lines` if it is not there; complete or absent, never half."""
    target = cache_folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.txt"
    with FileLock(f"{target}.lock"):
        if not target.exists():
            partial = target.with_suffix(".partial")
            with partial.open("wb") as file:
                file.writelines(lines())
            partial.replace(target)
    return target


def _decompressed(path: Path, opener: Callable) -> Iterator[bytes]:
    try:
        with opener(path, "rb") as file:
            while block := file.read(BLOCK):
                yield block
    except DAMAGED as error:
        raise DataError(f"{path} cannot be decompressed: {error}") from error


def _one_line(text: object, where: str) -> bytes:
    if not isinstance(text, str):
        raise DataError(f"{where} is {type(text).__name__}, not text")
    line = text.replace("\r\n", " ").replace("\n", " ")
    try:
        return line.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        raise DataError(f"{where} holds half a surrogate pair, which is no Unicode text") from None


def _json_lines(path: Path, column: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path} line {number}: not JSON ({str(error).splitlines()[0]})") from error
            if not isinstance(row, dict) or column not in row:
                raise DataError(f"{path} line {number} has no key {column!r}: set data.column")
            yield _one_line(row[column], f"{path} line {number}: {column}")


def _table(path: Path, column: str) -> Iterator[bytes]:
    csv.field_size_limit(1 << 30)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            # A TSV is split at tabs, its quotes are text.
            rows = csv.reader(file) if path.suffix == ".csv" else csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            header = next(rows, [])
            if column not in header:
                raise DataError(f"{path} has no column {column!r}, only {', '.join(header) or 'none'}: set data.column")
            place = header.index(column)
            for row in rows:
                if row:
                    if len(row) <= place:
                        raise DataError(f"{path} line {rows.line_num} has {len(row)} fields, {column!r} is field {place + 1}")
                    yield _one_line(row[place], f"{path} line {rows.line_num}")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: byte {error.start} of a block ({error.reason}); convert it first") from error
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as a table: {error}") from error


def _index(path: Path, digest: "hashlib._Hash") -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """The bytes of a text file (memory-mapped), start and end of each line with a sentence, and the number of lines."""
    try:
        size = path.stat().st_size
        text = np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    starts, ends, lines = [], [], 0
    at = 3 if text[:3].tobytes() == b"\xef\xbb\xbf" else 0
    digest.update(text[:at].tobytes())
    while at < size:
        stop = min(at + BLOCK, size)
        breaks = np.flatnonzero(text[at:stop] == 10)
        while not len(breaks) and stop < size:  # a line longer than a block
            breaks = stop - at + np.flatnonzero(text[stop : stop + BLOCK] == 10)
            stop = min(stop + BLOCK, size)
        if (len(breaks) and stop < size) or (len(breaks) and at + breaks[-1] + 1 == size):
            stop = at + int(breaks[-1]) + 1
        block = text[at:stop]
        _check_utf8(block, path, lines, at)
        digest.update(block.data)
        begin = np.concatenate([[0], breaks + 1])
        end = np.concatenate([breaks, [len(block)]])
        if begin[-1] == len(block):
            begin, end = begin[:-1], end[:-1]
        lines += len(begin)
        visible = np.concatenate([[0], np.cumsum(block > 32)])  # control characters and spaces alone are blank
        kept = visible[end] > visible[begin]
        begin, end = begin[kept], end[kept]
        end = end - (block[end - 1] == 13)
        starts.append(begin + at)
        ends.append(end + at)
        at = stop
    empty = np.zeros(0, np.int64)
    return text, np.concatenate([empty, *starts]), np.concatenate([empty, *ends]), lines


def _check_utf8(block: np.ndarray, path: Path, lines_before: int, at: int) -> None:
    try:
        block.tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = lines_before + int((block[: error.start] == 10).sum()) + 1
        raise DataError(
            f"{path} line {line}, byte {at + error.start}: not UTF-8 ({error.reason}); convert the file, for instance with iconv"
        ) from error
