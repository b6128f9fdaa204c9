"""Opens a corpus: files of any supported kind as numbered sentences, without holding the text in memory.

Compressed files, structured files and data sets are first converted to a plain text file in the cache, once.
"""

import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jax_sentemb.data import tables, text_file
from jax_sentemb.data.cache import cache_folder, cached
from jax_sentemb.data.digest import file_digest
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tables import dataset_rows, file_kind, read_rows
from jax_sentemb.data.text_file import check_unchanged, identity_of
from jax_sentemb.errors import ConfigError, DataError, Setting
from jax_sentemb.files import check_name, naming
from jax_sentemb.provenance import CONVERTED_TEXT, Source

TEXT = "text.txt"  # the file of a conversion in the cache
RATIO = 200  # a compressed file that unpacks to more than RATIO times its size, and more than tables.UNPACKED bytes, is refused


def open_corpus(files: str, column: str = "text", cache: Path | None = None) -> Sentences:
    """Sentences of comma-separated paths and globs (.txt, .jsonl, .csv, .tsv, also .gz or .xz; .parquet), hf: or tfds: data sets.

    `column` names the field of structured files and data sets, or several fields (comma-separated), each a sentence of its own; a
    line break inside a field becomes a space. `cache` (default: `cache_folder()`) holds conversions and indexes. DataError for
    files that are missing, empty, damaged or not UTF-8.
    """
    folder = cache or cache_folder()
    sentences = Sentences((_plain_text(source, _names(column), folder) for source in sources_of(files)), folder)
    if not len(sentences):
        raise DataError(Setting("data.files", files), f" contains no sentence ({sentences.report['lines']} lines, all blank)")
    return sentences


def open_text(option: str, files: str, column: str = "text") -> Sentences:
    """Same as `open_corpus`, for an option of a command line that error messages name; "-" reads lines from standard input."""
    try:
        if files != "-":
            return open_corpus(files, column)
        with tempfile.TemporaryDirectory() as folder:  # an open file stays readable after it is deleted
            spooled = Path(folder) / "standard input.txt"
            with naming(spooled), spooled.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            sentences = Sentences([spooled], Path(folder), own=True)
        if not len(sentences):
            raise DataError(Setting("data.files", "-"), f": no sentence in {sentences.report['lines']} lines, all are blank")
        return sentences
    except (ConfigError, DataError) as error:
        error.rename({"data.files": option, "data.column": "--column"})
        raise


def corpus_name(files: str) -> str:
    """Return `files` without folders, to name a corpus in messages and published files."""
    return "standard input" if files == "-" else ", ".join(Path(name.strip()).name for name in files.split(","))


def sources_of(files: str) -> Iterator[str]:
    """Paths and data sets in the order in which they are named, globs sorted.

    DataError for a name without a file, ConfigError for a name that is not UTF-8.
    """
    for source in _sources_of(files):
        check_name(source)
        yield source


def _sources_of(files: str) -> Iterator[str]:
    names = [files] if os.path.isfile(files) else [name.strip() for name in files.split(",")]  # a file name may contain a comma
    if not any(names):
        raise DataError(Setting("data.files"), " is empty: name a text file")
    for name in filter(None, names):
        path = os.path.expanduser(name)
        if name.startswith(("hf:", "tfds:")):
            yield name
        elif os.path.isdir(path):
            raise DataError(Setting("data.files", name), f" is a directory: name its files, for instance {name.rstrip('/')}/*.txt")
        elif os.path.isfile(path):
            yield path
        elif os.path.exists(path):  # a pipe or a device: endless, or readable only once
            raise DataError(Setting("data.files", name), " is not a regular file: copy its content into a file")
        elif glob.has_magic(path):
            matches = [match for match in sorted(_matches(path)) if os.path.isfile(match)]
            if not matches:
                raise DataError(Setting("data.files", name), ": no file matches")
            yield from matches
        else:
            raise DataError(Setting("data.files", name), ": no such file")


def _matches(pattern: str) -> set[str]:
    """The files of `glob.glob(pattern, recursive=True)`; ** enters each folder once, also where links form a cycle."""
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
        raise ConfigError(Setting("data.column", column), " names no column")
    return names


def _plain_text(source: str, columns: tuple[str, ...], cache: Path) -> Path:
    """A plain text file with the sentences of `source`: the file itself, or its conversion in the cache."""
    if source.startswith(("hf:", "tfds:")):
        rows, identity = dataset_rows(source, columns)
        return _converted(cache, {"data set": identity, "columns": list(columns)}, _row_lines(rows, columns), lambda: None)
    path = Path(source)
    kind, opener = file_kind(path)
    if kind == ".txt" and opener is open:
        return path
    # A conversion is found by the file's content, not its path and time: a copy is not converted again, an edited file is.
    before, digest = identity_of([path]), file_digest(path, cache)
    sources = {"file": Source(path.name, digest), "reader": kind, "columns": list(columns) if kind != ".txt" else []}
    if kind == ".txt":
        lines = _limited(path, text_file.read_blocks(path, opener))
    else:
        lines = _row_lines(read_rows(source, columns), columns)
    return _converted(cache, sources, lines, lambda: check_unchanged([path], before, [digest]))


def _limited(path: Path, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks of a decompressed file; DataError, before the disk is full, if they exceed what text can compress to."""
    size, limit = 0, max(tables.UNPACKED, RATIO * path.stat().st_size)
    for block in blocks:
        size += len(block)
        if size > limit:
            raise DataError(
                f"{path} unpacks to more than {RATIO} times its size, far more than text does: if it is text, unpack it yourself"
            )
        yield block


def _row_lines(rows: Iterable[tuple[str, Sequence[Any]]], columns: tuple[str, ...]) -> Iterator[bytes]:
    for where, texts in rows:
        for column, text in zip(columns, texts, strict=True):
            yield _one_line(text, f"{where}: {column}")


def _one_line(text: Any, where: str) -> bytes:
    if not isinstance(text, str):
        raise DataError(f"{where} is {type(text).__name__}, not text: fill in the value or drop the row")
    try:
        return text.replace("\r\n", " ").replace("\n", " ").encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        raise DataError(f"{where} contains an unpaired surrogate, which is not valid Unicode text") from None


def _converted(cache: Path, sources: dict[str, Any], blocks: Iterable[bytes], check: Callable[[], None]) -> Path:
    """The text file of these blocks in the cache, stored as made from `sources` unless `check` raises after they are read."""

    def write(folder: Path) -> dict[str, Any]:
        with (folder / TEXT).open("wb") as file:
            file.writelines(blocks)
        check()
        return {}

    return cached(cache, CONVERTED_TEXT, sources, write) / TEXT
