"""Open a corpus: files of any supported format as numbered sentences, without holding the text in memory.

Compressed files, structured files and data sets are first converted to a plain text file in the cache, once.
"""

import glob
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jax_sentemb.data.cache import cache_folder
from jax_sentemb.data.conversion import Columns, PlainText, no_column_of_ids, plain_text
from jax_sentemb.data.records import Records
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.unpacking import LimitedFile, has_columns
from jax_sentemb.errors import ConfigError, DataError, Setting
from jax_sentemb.files import check_name, path_in_errors

TEXT_COLUMN = "text"  # that is read unless another is named
BLOCK = 1 << 20  # bytes of standard input that are copied at once


def open_corpus(files: str, column: str = TEXT_COLUMN, join: str = "", cache: Path | None = None) -> Sentences:
    """Open the text of files and data sets, without holding it in memory.

    Args:
        files: Comma-separated paths and globs (.txt, .jsonl, .csv, .tsv, also .gz or .xz; .parquet), and hf: or tfds: data sets.
        column: The field of structured files and data sets, or several fields, comma separated. A line break inside a field becomes
            a space.
        join: Text between several fields, which then are one sentence; "": each field is a separate sentence.
        cache: The folder of conversions and indexes, by default `cache_folder()`.

    Raises:
        DataError: A file is missing, empty, damaged or not UTF-8.
    """
    folder = cache or cache_folder()
    return _sentences(files, _plain_texts(files, _columns(column, join), folder), folder)


def open_records(files: str, columns: Columns) -> Records:
    """Open files and data sets as `open_corpus` does, with the numbers and ids of the records."""
    folder = cache_folder()
    texts = _plain_texts(files, columns, folder)
    return Records(_sentences(files, texts, folder), texts, columns, folder)


def _plain_texts(files: str, columns: Columns, cache: Path) -> list[PlainText]:
    return [plain_text(source, columns, cache) for source in sources_of(files)]


def _sentences(files: str, texts: list[PlainText], cache: Path) -> Sentences:
    sentences = Sentences([text.file for text in texts], cache, per_record=[text.per_record for text in texts])
    if not len(sentences):
        raise DataError(
            Setting("data.files", files), f" contains no sentence ({sentences.report['lines']} lines, all blank); give text"
        )
    return sentences


def open_text(
    option: str, files: str, column: str = TEXT_COLUMN, join: str = "", id_column: str = "", optional: tuple[str, ...] = ()
) -> Records:
    """Open records for an option of a command, which error messages name. The name "-" reads lines from standard input.

    Raises:
        ConfigError: An option about columns has no effect on these files.
        DataError: As `open_corpus`.
    """
    try:
        columns = _columns(column, join, id_column)._replace(optional=optional)
        if column != TEXT_COLUMN and not has_columns(files):
            raise ConfigError(Setting("data.column", column), ": text files have lines but no columns; leave it out")
        if join and len(columns.names) == 1:
            raise ConfigError(Setting("data.join", join), ": there is one column; name those to join with ", Setting("data.column"))
        if files != "-":
            return open_records(files, columns)
        if id_column:
            raise no_column_of_ids(columns, "standard input")
        with tempfile.TemporaryDirectory() as folder:  # an open file stays readable after it is deleted
            spooled = Path(folder) / "standard input.txt"
            with path_in_errors(spooled), LimitedFile(spooled, "standard input", None) as file:
                while block := sys.stdin.buffer.read(BLOCK):
                    file.write(block)
            sentences = Sentences([spooled], Path(folder), temporary=True)
            _ = sentences.lines  # computed now, since for large text it is a file in the folder
        if not len(sentences):
            raise DataError(
                Setting("data.files", "-"), f": no sentence in {sentences.report['lines']} lines, all are blank; give text"
            )
        return Records(sentences, [PlainText(spooled)], columns, cache_folder())
    except (ConfigError, DataError) as error:
        error.rename({"data.files": option, "data.column": "--column", "data.join": "--join"})
        raise


def sources_of_option(option: str, files: str) -> list[str]:
    """Return the paths and data sets that an option names, ["-"] for standard input; an error names the option."""
    try:
        return list(sources_of(files)) if files != "-" else ["-"]
    except (ConfigError, DataError) as error:
        error.rename({"data.files": option})
        raise


def text_settings(column: str, join: str) -> dict[str, str]:
    """Return the settings about the columns of a text by their names, without those that have their defaults."""
    settings = {"data.column": column, "data.join": join}
    return {name: value for name, value in settings.items() if value not in (TEXT_COLUMN, "")}


def text_options(column: str, join: str) -> list[str]:
    """Return the options about the columns of a text of every command, without those that have their defaults."""
    return [word for name, value in text_settings(column, join).items() for word in (f"--{name.removeprefix('data.')}", value)]


def corpus_name(files: str) -> str:
    """Return `files` without folders, to name a corpus in messages and published files."""
    return "standard input" if files == "-" else ", ".join(Path(name.strip()).name for name in files.split(","))


def _columns(column: str, join: str, id_column: str = "") -> Columns:
    names = tuple(filter(None, (name.strip() for name in column.split(","))))
    if not names:
        raise ConfigError(Setting("data.column", column), " is empty: give the name of a column")
    return Columns(names, join, id_column.strip())


def sources_of(files: str) -> Iterator[str]:
    """Yield paths and data sets in the order in which they are named. The files of a glob are sorted.

    Raises:
        ConfigError: A name is not UTF-8.
        DataError: No file has the name.
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
    """Return the files of `glob.glob(pattern, recursive=True)`. ** enters each folder once, even if links form a cycle."""
    head, recursive, tail = (f"{pattern}/*" if f"/{pattern}".endswith("/**") else pattern).partition("**/")
    if not recursive or (head and not head.endswith("/")):
        return set(glob.glob(pattern))
    matches: set[str] = set()
    entered: set[str] = set()
    for start in glob.glob(head) if head else [""]:
        for folder, below, _ in os.walk(start or ".", followlinks=True):
            real = os.path.realpath(folder)
            below[:] = sorted(name for name in below if not name.startswith(".")) if real not in entered else []
            if real not in entered:
                entered.add(real)
                prefix = os.path.join(glob.escape(folder), "") if start else glob.escape(folder).removeprefix(".").removeprefix("/")
                matches |= _matches(os.path.join(prefix, tail))
    return matches
