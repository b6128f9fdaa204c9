"""The records of a corpus: lines of text files, and rows of tables and data sets, with their ids.

Row numbers begin at 0 and count all records of all files, also those without text. In a table, a blank line between two rows is no
record.
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

NAMED = 5  # rows without text that are named in a note
AT_ONCE = 1 << 20  # lines


class Record(NamedTuple):
    """Which record a text belongs to."""

    row: int
    column: str | None = None  # of several columns that are texts of their own
    id: Any = None  # None: it has none


class Records:
    """The records of a corpus. `sentences` are its texts that are not blank.

    Texts are numbered in the order of the records. A record has one text, or one for each of `columns`.
    """

    def __init__(self, sentences: Sentences, files: Sequence[PlainText], columns: Columns, cache: Path) -> None:
        """`files` are those of the sentences."""
        if len({file.per_record for file in files}) > 1:
            raise ConfigError(
                Setting("data.column", ",".join(columns.names)),
                ": some files have several texts in a record and some have one; read them apart, or set ",
                Setting("data.join"),
            )
        per_record = files[0].per_record
        self.sentences, self.columns = sentences, columns.names if per_record > 1 else ()
        self._per_record, self._cache = per_record, cache
        self._first = [lines // per_record for lines in sentences.first_lines]  # records before each file
        self._id_files = [file.ids for file in files]

    @property
    def count(self) -> int:
        """The number of records."""
        return self._first[-1]

    @property
    def texts(self) -> "AllTexts":
        """The texts of all records, "" where a record has none."""
        return AllTexts(self.sentences)

    @functools.cached_property
    def empty_texts(self) -> Int[np.ndarray, " n"]:
        """The numbers of the empty texts, int64."""
        return np.fromiter(blank_texts(self.sentences), np.int64)

    @property
    def source(self) -> Source | None:
        """What tells the same texts with other ids or columns apart; None if the records have neither."""
        if self.ids is None and not self.columns:
            return None
        ids = [self.ids and self.ids.fingerprint, [path is not None for path in self._id_files], self._first]
        return Source("the corpus", fingerprint({"columns": list(self.columns), "ids": ids}))

    @property
    def are_rows(self) -> bool:
        """Whether record i is simply text i, with text and without an id."""
        return self.source is None and not self.sentences.report["blank"]

    @property
    def has_ids(self) -> bool:
        """Whether some records have ids."""
        return self.ids is not None

    @functools.cached_property
    def ids(self) -> Sentences | None:
        """The ids of the records of all files that have ids, as JSON; None if no file has them."""
        paths = [path for path in self._id_files if path]
        return Sentences(paths, self._cache) if paths else None

    @functools.cached_property
    def _first_id(self) -> list[int]:
        """For each file, the number of ids in the files before it."""
        counts = np.diff(self._first) * [path is not None for path in self._id_files]
        return [0, *itertools.accumulate(counts.tolist())]

    def id_of(self, row: int) -> Any:
        """Return the id of a record, None if it has none."""
        file = bisect.bisect_right(self._first, row) - 1
        if self.ids is None or self._id_files[file] is None:
            return None
        return json.loads(self.ids[self._first_id[file] + row - self._first[file]])

    def record(self, text: int) -> Record:
        """Return the record of text number `text`."""
        row, column = divmod(text, self._per_record)
        return Record(row, self.columns[column] if self.columns else None, self.id_of(row))

    def place(self, sentence: int) -> tuple[int, int]:
        """Return the number of the file of a sentence and its record within this file, both from 0."""
        row = int(self.sentences.lines[sentence]) // self._per_record
        file = bisect.bisect_right(self._first, row) - 1
        return file, row - self._first[file]

    def note_on_blank(self) -> str:
        """Return how many records have no text, and which; "" if all have text."""
        blank, total = self.sentences.report["blank"], self.sentences.report["lines"]
        if not blank:
            return ""
        texts = list(itertools.islice(blank_texts(self.sentences), NAMED))
        rows = dict.fromkeys(str(text // self._per_record) for text in texts)
        what = f"{blank:,} of {total:,} texts are empty" if self.columns else f"{blank:,} of {total:,} records have no text"
        return f"{what} (rows {', '.join(rows)}{', ...' if blank > len(texts) else ''})"


def blank_texts(sentences: Sentences) -> Iterator[int]:
    """Yield the numbers of the lines without text, counted through all files."""
    following = 0
    for start in range(0, len(sentences), AT_ONCE):
        lines = np.asarray(sentences.lines[start : start + AT_ONCE])
        before = np.append(following - 1, lines[:-1])
        for place in np.flatnonzero(lines - before > 1).tolist():
            yield from range(int(before[place]) + 1, int(lines[place]))
        following = int(lines[-1]) + 1
    yield from range(following, sentences.report["lines"])


class AllTexts:
    """The texts of all records by number, "" where a record has none."""

    def __init__(self, sentences: Sentences) -> None:
        self._sentences, self._lines = sentences, sentences.lines

    def __len__(self) -> int:
        return self._sentences.report["lines"]

    def __getitem__(self, number: int) -> str:
        place = int(np.searchsorted(self._lines, number))
        return self._sentences[place] if place < len(self._lines) and self._lines[place] == number else ""
