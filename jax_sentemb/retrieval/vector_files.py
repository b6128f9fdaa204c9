"""Write a file of vectors, .npy or .parquet, with its records."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_sentemb.data.tables import import_arrow
from jax_sentemb.files import replacing, sha256
from jax_sentemb.retrieval.vector_records import RecordOf, records_file, write_records


class TextRows(NamedTuple):
    """Rows of a corpus and their texts."""

    rows: range
    texts: Sequence[str]
    record_of: RecordOf | None  # None: row i is record i, has no id and is not empty


@contextlib.contextmanager
def new_file(file: Path, vectors: np.ndarray, text_rows: TextRows) -> Iterator[dict[str, Any]]:
    """Write vectors and yield their entry for the manifest. The files get their names when the block ends.

    An .npy file has its records in a second file. A .parquet file has the columns row, column, _id, text and embedding. It has
    also start and end if each row is a chunk of a text.
    """
    with replacing(file) as partial, contextlib.ExitStack() as stack:
        records = None
        if file.suffix == ".parquet":
            _save_parquet(partial, vectors, text_rows)
        else:
            _save_numpy(partial, vectors)
            if text_rows.record_of is not None:
                path = stack.enter_context(replacing(records_file(file)))
                empty = write_records(path, text_rows.rows, text_rows.texts, text_rows.record_of)
                records = {**_size_and_hash(path), "empty": empty}
        yield {"file": file.name, "rows": len(vectors), **_size_and_hash(partial), "records": records}


def _size_and_hash(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "sha256": sha256(file)}


def _save_numpy(file: Path, vectors: np.ndarray) -> None:
    with file.open("wb") as stream:  # not np.save, whose error for a full disk has no error number
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(vectors))
        stream.write(np.ascontiguousarray(vectors).reshape(-1).view(np.uint8).data)


def _save_parquet(file: Path, vectors: np.ndarray, text_rows: TextRows) -> None:
    """Write the vectors as lists of fixed size. Ids that are not text are written as JSON."""
    pyarrow = import_arrow("Parquet")
    columns: dict[str, Any] = {"row": pyarrow.array(text_rows.rows, pyarrow.int64())}
    if text_rows.record_of is not None:
        records = [text_rows.record_of(row) for row in text_rows.rows]
        columns["row"] = pyarrow.array([record.row for record in records], pyarrow.int64())
        columns["column"] = pyarrow.array([record.column for record in records], pyarrow.string())
        columns["_id"] = pyarrow.array([_as_text(record.id) for record in records], pyarrow.string())
        if any(record.start is not None for record in records):
            columns["start"] = pyarrow.array([record.start for record in records], pyarrow.int64())
            columns["end"] = pyarrow.array([record.end for record in records], pyarrow.int64())
    columns["text"] = pyarrow.array(text_rows.texts, pyarrow.string())
    columns["embedding"] = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def _as_text(identity: Any) -> str | None:
    return identity if identity is None or isinstance(identity, str) else json.dumps(identity)
