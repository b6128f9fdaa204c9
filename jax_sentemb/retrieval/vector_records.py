"""Write and read the records of vectors, in a file next to each file of vectors.

NAME.records.jsonl has a line for each row of NAME::

    {"row": 12, "column": "title", "_id": "d12", "start": 0, "end": 1024, "empty": true}

`row` is the number of the record. `column` is present if a record has several texts, and `_id` if it has an id. `start` and `end`
are present if each chunk of a text has a row: its first character, and the number after its last character. `empty` marks an empty
text, whose vector is zero. The files do not exist if every row i is record i, without an id and with text.
"""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.cache import cache_folder
from jax_sentemb.data.records import Record
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.errors import DataError
from jax_sentemb.types import EncodedSentences

MAX_NUMBER = 1 << 63  # of a record or character
RecordOf = Callable[[int], Record]  # returns the record of a row


def records_file(file: Path) -> Path:
    """Return the file of the records of a file of vectors."""
    return file.with_name(f"{file.name}.records.jsonl")


def encode_texts(texts: Sequence[str], encode: Callable[[list[str]], EncodedSentences]) -> EncodedSentences:
    """Encode texts. The row of an empty text is zero."""
    rows = [row for row, text in enumerate(texts) if text]
    encoded = encode([texts[row] for row in rows])
    if len(rows) == len(texts):
        return encoded
    vectors = np.zeros((len(texts), encoded.vectors.shape[1]), encoded.vectors.dtype)
    vectors[rows] = encoded.vectors
    return encoded._replace(vectors=vectors)


def write_records(path: Path, rows: range, texts: Sequence[str], record_of: RecordOf) -> int:
    """Write the records of rows to a file and return the number of empty texts."""
    with path.open("wb") as stream:
        for row, text in zip(rows, texts, strict=True):
            record = record_of(row)
            values = {"row": record.row, "column": record.column, "_id": record.id, "start": record.start, "end": record.end}
            values["empty"] = None if text else True
            line = {name: value for name, value in values.items() if value is not None}
            stream.write(json.dumps(line).encode() + b"\n")
    return sum(not text for text in texts)


class VectorRecords:
    """The records of the rows of some files of vectors, read on demand."""

    def __init__(self, files: Sequence[Path], shards: Sequence[dict[str, Any]]) -> None:
        """Open the records of some files of vectors, whose entries in the manifest are `shards`."""
        self._files, self._shards = [records_file(file) for file in files], shards

    @functools.cached_property
    def _lines(self) -> Sentences:
        rows = sum(shard["rows"] for shard in self._shards)
        try:
            lines = Sentences(self._files, cache_folder())
        except OSError as error:
            raise DataError(f"{error.filename}: {error.strerror}; run the same encode command again") from None
        if len(lines) != rows:
            raise DataError(f"{self._files[0]}: the files of records have {len(lines)} lines for {rows} vectors; encode again")
        return lines

    def record(self, row: int) -> Record:
        """Return the record of a row."""
        return self._record(row, self._lines[row])

    def _record(self, row: int, line: str) -> Record:
        values = _parse(line)
        numbers = [values.get("row"), *(values[name] for name in ("start", "end") if name in values)]
        are_whole = all(type(number) is int and 0 <= number < MAX_NUMBER for number in numbers)
        if not are_whole or numbers[1:] != sorted(numbers[1:]) or not isinstance(values.get("column"), str | None):
            raise DataError(f"{self._files[0].parent}: the record of row {row} is {line[:100]!r}; encode again")
        return Record(values["row"], values.get("column"), values.get("_id"), values.get("start"), values.get("end"))

    def chunk_spans(self) -> Int[np.ndarray, "rows 3"]:
        """Return for each row the number of its text, counted from 0, and the start and end of its chunk; int64.

        Raises:
            DataError: A row has no span.
        """
        spans = np.empty((len(self._lines), 3), np.int64)
        text, previous = -1, None
        for row, line in enumerate(self._lines):
            record = self._record(row, line)
            if record.start is None or record.end is None:
                raise DataError(f"{self._files[0].parent}: the record of row {row} has no start and end; encode again")
            text += (record.row, record.column) != previous
            previous = record.row, record.column
            spans[row] = text, record.start, record.end
        return spans

    def empty_rows(self) -> Int[np.ndarray, " n"]:
        """Return the numbers of the rows of empty texts, int64, ascending."""
        empty, first = [], 0
        for file, shard in zip(self._files, self._shards, strict=True):
            if shard["records"]["empty"]:
                try:
                    lines = file.read_bytes().split(b"\n")[:-1]
                except OSError as error:
                    raise DataError(f"{file}: {error.strerror}; run the same encode command again") from None
                rows = [row for row, line in enumerate(lines) if b'"empty"' in line and _parse(line).get("empty") is True]
                if (len(lines), len(rows)) != (shard["rows"], shard["records"]["empty"]):
                    raise DataError(f"{file}: its lines do not fit the vectors; run the same encode command again")
                empty += [first + row for row in rows]
            first += shard["rows"]
        return np.array(empty, np.int64)


def _parse(line: str | bytes) -> dict[str, Any]:
    """Return the values in a line; {} if it is damaged."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
