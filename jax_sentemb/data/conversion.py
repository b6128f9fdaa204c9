"""Convert compressed files, tables and data sets to plain text files in the cache, once.

A conversion has a line for each text. A record is a line of a text file, or a row of a table or data set. It has one text, or one
for each of several columns. The ids of records are in a second file, a JSON value on each line.
"""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb.data import text_file
from jax_sentemb.data.cache import cached, read_about
from jax_sentemb.data.digest import file_digest
from jax_sentemb.data.sentences import LONGEST
from jax_sentemb.data.tables import PARQUET, SET_COLUMN, Rows, check_unpacked_size, dataset_rows, detect_format, kind_of, read_rows
from jax_sentemb.data.text_file import check_unchanged, identity_of
from jax_sentemb.data.unpacking import LimitedFile, check_space, unpacked_limit
from jax_sentemb.errors import UNPAIRED_SURROGATE, ConfigError, DataError, Setting
from jax_sentemb.files import quote
from jax_sentemb.provenance import CONVERTED_TEXT, Source

TEXT, IDS = "text.txt", "ids.txt"  # the files of a conversion in the cache
DEFAULT_ID = "_id"  # the column of ids, if a table has a column of this name


class Columns(NamedTuple):
    """The columns of tables and data sets that are read."""

    names: tuple[str, ...] = ("text",)
    join: str = ""  # put between the columns of a record, which become one text; "": each column is a separate text
    id: str = ""  # the column of ids; "": DEFAULT_ID, if the column exists
    optional: tuple[str, ...] = ()  # those of `names` that a source may lack; its texts are then empty

    @property
    def per_record(self) -> int:
        """Return the number of texts of a record."""
        return 1 if self.join else len(self.names)


class PlainText(NamedTuple):
    """A plain text file, and the records that its lines belong to."""

    file: Path
    ids: Path | None = None  # the ids of the records, a JSON value on each line
    per_record: int = 1


def no_column_of_ids(columns: Columns, source: object) -> ConfigError:
    """Return the error for a column of ids in text that has lines only."""
    return ConfigError(Setting("--id", columns.id), f": {source} has lines but no columns; leave it out")


def plain_text(source: str, columns: Columns, cache: Path) -> PlainText:
    """Return the texts of `source`: of the file itself, or of its conversion in the cache."""
    names = (*(name for name in columns.names if name not in columns.optional), *((columns.id,) if columns.id else ()))
    optional = (*columns.optional, *(() if columns.id else (DEFAULT_ID,)))
    if source.startswith(("hf:", "tfds:")):
        rows, identity = dataset_rows(source, names, optional)
        rows = _in_order(rows, (*names, *optional), columns)
        return _converted(cache, {"data set": identity}, columns, rows, source, None, lambda: None)
    path = Path(source)
    file_format, opener = detect_format(path)
    if file_format == ".txt" and columns.id:
        raise no_column_of_ids(columns, path)
    if file_format == ".txt" and opener is open:
        return PlainText(path)
    if file_format == PARQUET:
        check_unpacked_size(path, names)
    else:
        with text_file.open_bytes(path, opener) as file:
            file.read(1)  # refuse a file that is not compressed before hashing it
    # A conversion is found by the content of the file, not by path and time: a copy is not converted again, an edited file is.
    before, digest = identity_of([path]), file_digest(path, cache)
    sources = {"file": Source(path.name, digest), "reader": file_format}
    check = lambda: check_unchanged([path], before, [digest])  # noqa: E731
    if file_format == ".txt":
        return _unpacked(cache, sources, path, opener, check)
    both = ("name the columns with ", Setting("data.column"), " and ", Setting("--id"))
    remedy = both if columns.id else SET_COLUMN
    rows = _in_order(read_rows(source, names, remedy, optional), (*names, *optional), columns)
    return _converted(cache, sources, columns, rows, source, path.stat().st_size, check)


def _in_order(rows: Rows, names: tuple[str, ...], columns: Columns) -> Rows:
    """Yield the rows, whose values have these names, with the texts in the order of `columns` and the id at the end.

    A text that is missing is empty.
    """
    order = [names.index(name) for name in (*columns.names, columns.id or DEFAULT_ID)]
    for where, values in rows:
        *texts, identity = (values[number] for number in order)
        yield where, [*("" if text is None else text for text in texts), identity]


def _unpacked(cache: Path, sources: dict[str, Any], path: Path, opener: Callable[..., Any], check: Callable[[], None]) -> PlainText:
    """Return the content of a compressed text file. It is discarded if `check` raises an error after the file is read."""

    def write(folder: Path) -> dict[str, Any]:
        check_space(folder, path.stat().st_size)
        with LimitedFile(folder / TEXT, path, unpacked_limit(path.stat().st_size)) as file:
            unfinished = 0  # bytes of the line that the earlier blocks have not finished
            check_utf8 = text_file.Utf8Check(path)  # errors of a later reader would name the file of the cache
            for block in itertools.chain(text_file.read_blocks(path, opener), [b""]):
                check_utf8(block)
                unfinished = len(block) - 1 - block.rfind(b"\n") if b"\n" in block else unfinished + len(block)
                if unfinished > LONGEST:
                    raise DataError(f"{path} has a line of more than {LONGEST:,} bytes; divide it into lines")
                file.write(block)
        check()
        return {}

    return PlainText(cached(cache, CONVERTED_TEXT, sources, write) / TEXT)


def _converted(
    cache: Path, sources: dict[str, Any], columns: Columns, rows: Rows, name: str, size: int | None, check: Callable[[], None]
) -> PlainText:
    """Return the texts of rows whose last value is the id. They are discarded if `check` raises an error after they are read.

    `size` is the number of bytes of the file `name`, None for a data set.
    """

    def write(folder: Path) -> dict[str, Any]:
        limit, has_ids = None if size is None else unpacked_limit(size), False
        check_space(folder, size or 0)
        with LimitedFile(folder / TEXT, name, limit) as texts, LimitedFile(folder / IDS, name, limit) as ids:
            for where, (*values, identity) in rows:
                lines = [_one_line(value, f"{where}: {column}") for column, value in zip(columns.names, values, strict=True)]
                if columns.join:
                    lines = [_one_line(columns.join, "data.join").join(line for line in lines if line.strip())]
                texts.write(b"".join(line + b"\n" for line in lines))
                ids.write(_as_json(identity, where))
                has_ids = has_ids or identity is not None
        if not has_ids:
            (folder / IDS).unlink()
        check()
        return {"has_ids": has_ids}

    settings = {"columns": list(columns.names), "join": columns.join, "id": columns.id, "optional": list(columns.optional)}
    entry = cached(cache, CONVERTED_TEXT, {**sources, **settings}, write)
    return PlainText(entry / TEXT, entry / IDS if read_about(entry)["has_ids"] else None, columns.per_record)


def _one_line(text: Any, where: str) -> bytes:
    """Return text as UTF-8 without line feeds; raise DataError for any other value."""
    if not isinstance(text, str):
        raise DataError(f"{where} is {kind_of(text)}, not text; name a column of text, or correct the row")
    try:
        return text.replace("\r\n", " ").replace("\n", " ").encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"{where} {UNPAIRED_SURROGATE}") from None


def _as_json(identity: Any, where: str) -> bytes:
    """Return the line of an id; null for NaN, with which tables mark a missing value.

    Raises:
        DataError: JSON has no form for the id, such as bytes and Infinity, or the id is not Unicode.
    """
    if isinstance(identity, bytes):
        raise DataError(f"{where}: the id is bytes, not text or a number; give another ", Setting("--id"))
    if isinstance(identity, float) and math.isnan(identity):
        identity = None
    try:
        return json.dumps(identity, default=str, allow_nan=False, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        raise DataError(f"{where}: the id {UNPAIRED_SURROGATE}") from None
    except ValueError:
        raise DataError(f"{where}: the id {quote(identity)} is not a number in JSON; give another ", Setting("--id")) from None
