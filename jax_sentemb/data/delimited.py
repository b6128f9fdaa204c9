"""Read delimited text: whole files with their lines, rows of fields, and the columns that a header names."""

import codecs
import importlib.util
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jax_sentemb.errors import DataError, Message
from jax_sentemb.files import DATA_LIMIT, read_limited

LONGEST_FIELD = 1 << 27  # characters
SEMICOLONS = "separates its columns by semicolons: save it with commas, or with tabs as .tsv"

Row = tuple[int, list[str]]  # number of its last line, from 1, and its fields


def decode_file(path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Return the text of a file without a byte order mark.

    Raises:
        DataError: The file cannot be read or decoded.
    """
    try:
        content = read_limited(path, DATA_LIMIT)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    try:
        return content.removeprefix(codecs.BOM_UTF8 if encoding == "utf-8" else b"").decode(encoding, errors)
    except UnicodeDecodeError as error:
        offset = error.start + len(content) - len(error.object)
        raise DataError(f"{path}: byte {offset} is not {encoding.upper()}: convert the file to {encoding.upper()}") from None


def numbered_lines(text: str, lone_returns: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text with their numbers from 1.

    A line feed ends a line, with or without a carriage return before it. With `lone_returns`, a carriage return alone ends a line
    as well. Other Unicode line ends are text.
    """
    if lone_returns:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return ((number, line.removesuffix("\r")) for number, line in enumerate(lines, 1))


def split_fields(path: Path, number: int, line: str, minimum: int) -> list[str]:
    """Return the fields of a tab-separated line; raise DataError if there are fewer than `minimum`."""
    fields = line.split("\t")
    if len(fields) < minimum:
        raise DataError(f"{path}:{number}: {len(fields)} tab-separated fields, expected at least {minimum}; correct the line")
    return fields


def read_rows(path: Path, lines: Iterable[str], delimiter: str, quotes: bool, strict: bool = True) -> Iterator[Row]:
    """Yield the rows of delimited text. A blank line is an empty row.

    Args:
        path: The file that errors name.
        lines: The lines of the text, with their line ends.
        delimiter: The character between two fields.
        quotes: Whether quotes enclose fields, as in CSV, and may enclose line ends. Otherwise quotes are text.
        strict: Whether quotes must be closed and followed by a delimiter.

    Raises:
        DataError: The quotes are wrong. The message names the first line after the last valid row.
    """
    lines = iter(lines)
    header = next(lines, "")
    if "\r" in header.rstrip("\r") and "\n" not in header:
        raise DataError(f"{path} has carriage returns and no line feed, so it is one line: try tr '\\r' '\\n'")
    lines = itertools.chain([header] if header else [], lines)
    if not quotes:
        stripped = (line.removesuffix("\n").removesuffix("\r") for line in lines)
        yield from ((number, line.split(delimiter) if line else []) for number, line in enumerate(stripped, 1))
        return
    rows, last_valid = _csv.reader(lines, delimiter=delimiter, strict=strict), 0
    try:
        for fields in rows:
            last_valid = rows.line_num
            yield last_valid, fields
    except _csv.Error as error:
        if not last_valid and '";"' in header:
            raise DataError(f"{path} {SEMICOLONS}") from None
        raise DataError(
            f"{path} cannot be read as a table from line {last_valid + 1} on: {error}; look for a quote that is not closed"
        ) from error


def select_columns(
    path: Path, rows: Iterator[Row], names: Sequence[str], remedy: Message, optional: Sequence[str] = ()
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the fields of the named columns of each row below the header, with the number of the row's last line.

    An optional column that is missing has None. Blank lines are skipped, except in a table of one column, where they are empty
    fields.

    Raises:
        DataError: A column is missing (the message ends with `remedy`) or named twice, or a row is wider or narrower than the
            header.
    """
    number, header = next(rows, (1, []))
    header = [name.strip() for name in header]  # "id, text" names the columns id and text
    check_header(header, f"{path} line {number}")
    if missing := [name for name in names if name not in header]:
        existing = " ".join(", ".join(header).split())[:200]  # a quoted name may contain line breaks
        if len(header) == 1 and ";" in header[0]:
            raise DataError(f"{path} {SEMICOLONS}")
        raise DataError(f"{path} has no column {missing[0]!r}, only {existing or 'none'}: ", *remedy)
    columns = [header.index(name) if name in header else None for name in (*names, *optional)]
    for number, fields in rows:
        row = fields or [""]
        if len(header) > 1 and len(row) == 1 and not row[0].strip():
            continue
        check_width(row, header, f"{path} line {number}")
        yield number, [None if column is None else row[column] for column in columns]


def check_header(header: Sequence[str], where: str) -> None:
    """Raise DataError if two columns have the same name. Several columns may have no name, since nothing can refer to them."""
    if duplicate := first_repeated(filter(None, header)):
        raise DataError(f"{where}: two columns are named {duplicate[:100]!r}; rename one")


def check_width(row: Sequence[str], header: Sequence[str], where: str) -> None:
    """Raise DataError if a row does not have as many fields as the header."""
    if len(row) != len(header):
        remedy = "quote a field that contains the separator" if len(row) > len(header) else "add the missing fields"
        raise DataError(f"{where} has {len(row)} field{'s' * (len(row) != 1)}, the header has {len(header)}; {remedy}")


def first_repeated(names: Iterable[str]) -> str:
    """Return the first name that occurs a second time, "" if all names differ."""
    known: set[str] = set()
    for name in names:
        if name in known:
            return name
        known.add(name)
    return ""


def without_point(value: Any) -> Any:
    """Return a whole float as an int, since a table with gaps stores whole numbers as floats; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def finite(text: str) -> float | None:
    """Return the number that a text writes, or None if it writes none or one that is not finite.

    Python also reads 1_0 as 10, which no table means.
    """
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _own_csv() -> Any:
    """Return a second instance of Python's csv parser, since the limit on the length of its fields applies to a whole process."""
    spec: Any = importlib.util.find_spec("_csv")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.field_size_limit(LONGEST_FIELD)
    return module


_csv = _own_csv()
