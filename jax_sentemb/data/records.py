"""Read the records of a corpus by number: lines of text files, and rows of tables and data sets, with their ids.

Row numbers begin at 0 and count all records of all files, even those without text. A blank line between two rows of a table is not
a record.
"""

import bisect
import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.conversion import Columns, PlainText
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.files import fingerprint
from jax_sentemb.provenance import Source

MAX_LISTED = 5  # rows without text that a note names
CHUNK = 1 << 20  # lines that are searched at once
KEEP_CHOICES = ("first", "longest")  # which record of several similar ones is kept


class Record(NamedTuple):
    """The record that a text belongs to."""

    row: int
    column: str | None = None  # set if a record has several texts
    id: Any = None  # None if the record has no id
    start: int | None = None  # the first character of a chunk of the text; None for a whole text
    end: int | None = None  # the number after the last character of the chunk


class Records:
    """The records of a corpus. `sentences` are its texts that are not blank.

    Texts are numbered in the order of the records. A record has one text, or one for each of `columns`.
    """

    def __init__(self, sentences: Sentences, files: Sequence[PlainText], columns: Columns, cache: Path) -> None:
        """Open the records of `files`, whose texts are `sentences`."""
        if len({file.per_record for file in files}) > 1:
            raise ConfigError(
                Setting("data.column", ",".join(columns.names)),
                ": some files have several texts in a record and others have one; read them separately, or set ",
                Setting("data.join"),
            )
        per_record = files[0].per_record
        self.sentences, self.columns = sentences, columns.names if per_record > 1 else ()
        self._per_record, self._cache = per_record, cache
        self._first = [lines // per_record for lines in sentences.first_lines]  # records before each file
        self._id_files = [file.ids for file in files]

    @property
    def count(self) -> int:
        """Return the number of records."""
        return self._first[-1]

    @property
    def texts(self) -> "AllTexts":
        """Return the texts of all records, "" for a record without text."""
        return AllTexts(self.sentences)

    @functools.cached_property
    def empty_texts(self) -> Int[np.ndarray, " n"]:
        """Return the numbers of the empty texts, int64."""
        return np.fromiter(blank_texts(self.sentences), np.int64)

    @property
    def source(self) -> Source | None:
        """Return the source that distinguishes equal texts with other ids or columns; None if the records have neither."""
        if self.ids is None and not self.columns:
            return None
        ids = [self.ids and self.ids.fingerprint, [path is not None for path in self._id_files], self._first]
        return Source("the corpus", fingerprint({"columns": list(self.columns), "ids": ids}))

    @property
    def are_plain(self) -> bool:
        """Return whether every record i is text i, without an id and not empty."""
        return self.source is None and not self.sentences.report["blank"]

    @property
    def has_ids(self) -> bool:
        """Return whether some records have ids."""
        return self.ids is not None

    @functools.cached_property
    def ids(self) -> Sentences | None:
        """Return the ids of the records of all files that have ids, as JSON; None if no file has ids."""
        paths = [path for path in self._id_files if path]
        return Sentences(paths, self._cache) if paths else None

    @functools.cached_property
    def _first_id(self) -> list[int]:
        """Return for each file the number of ids in the files before it."""
        counts = np.diff(self._first) * [path is not None for path in self._id_files]
        return [0, *itertools.accumulate(counts.tolist())]

    def id_of(self, row: int) -> Any:
        """Return the id of a record, None without an id."""
        file = bisect.bisect_right(self._first, row) - 1
        if self.ids is None or self._id_files[file] is None:
            return None
        return json.loads(self.ids[self._first_id[file] + row - self._first[file]])

    def record(self, text: int) -> Record:
        """Return the record of text number `text`."""
        row, column = divmod(text, self._per_record)
        return Record(row, self.columns[column] if self.columns else None, self.id_of(row))

    def file_and_row(self, sentence: int) -> tuple[int, int]:
        """Return the number of the file of a sentence, and the number of its record in this file, both from 0."""
        row = int(self.sentences.lines[sentence]) // self._per_record
        file = bisect.bisect_right(self._first, row) - 1
        return file, row - self._first[file]

    def describe_blank(self) -> str:
        """Return how many records have no text, and which they are; "" if all have text."""
        blank, total = self.sentences.report["blank"], self.sentences.report["lines"]
        if not blank:
            return ""
        texts = list(itertools.islice(blank_texts(self.sentences), MAX_LISTED))
        rows = dict.fromkeys(str(text // self._per_record) for text in texts)
        summary = f"{blank:,} of {total:,} texts are empty" if self.columns else f"{blank:,} of {total:,} records have no text"
        return f"{summary} (rows {', '.join(rows)}{', ...' if blank > len(texts) else ''})"


def blank_texts(sentences: Sentences) -> Iterator[int]:
    """Yield the numbers of the lines without text, counted through all files."""
    next_line = 0
    for start in range(0, len(sentences), CHUNK):
        lines = np.asarray(sentences.lines[start : start + CHUNK])
        previous = np.append(next_line - 1, lines[:-1])
        for index in np.flatnonzero(lines - previous > 1).tolist():
            yield from range(int(previous[index]) + 1, int(lines[index]))
        next_line = int(lines[-1]) + 1
    yield from range(next_line, sentences.report["lines"])


class AllTexts:
    """The texts of all records by number, "" for a record without text."""

    def __init__(self, sentences: Sentences) -> None:
        self._sentences, self._lines = sentences, sentences.lines

    def __len__(self) -> int:
        return self._sentences.report["lines"]

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> str:
        index = int(np.searchsorted(self._lines, number))
        return self._sentences[index] if index < len(self._lines) and self._lines[index] == number else ""
