"""Copy some records of files unchanged: lines of text and of .jsonl files, and rows of tables and of Parquet files."""

import codecs
import contextlib
import gzip
import lzma
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Bool

from jax_sentemb.data import delimited
from jax_sentemb.data.records import Records
from jax_sentemb.data.tables import PARQUET, detect_format, import_arrow, text_lines
from jax_sentemb.data.text_file import open_bytes
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.files import path_in_errors

PARQUET_ROWS = 1 << 14  # rows that are read at once, and rows of a row group

Mask = Bool[np.ndarray, " records"]


def check_formats(sources: Sequence[str], output: Path) -> None:
    """Raise ConfigError unless records of `sources` can be written to a file with the name of `output`.

    Args:
        sources: Paths; "-" is standard input, and data sets begin with `hf:` or `tfds:`.
        output: The file. A name of a text file is always possible: it gets the texts of the records.
    """
    try:
        output_format = detect_format(output)[0]
    except DataError:
        output_format = ""
    formats = [_format(source) for source in sources]
    names = sorted({name for name in formats if name})
    advice = " or ".join([*(names if len(names) == 1 and all(formats) and names != [".txt"] else []), ".txt"])
    if output_format != ".txt" and set(formats) != {output_format}:
        content = " and ".join(names) or "no" if all(formats) else "a data set or standard input, not"
        raise ConfigError(f"--output {output}: the corpus has {content} files; give a name that ends in {advice}")


def copy_records(records: Records, sources: Sequence[str], is_copied: Mask, output: Path, partial: Path) -> bool:
    """Write records to a file.

    Args:
        records: The records of `sources`, with one text each.
        sources: As in `check_formats`.
        is_copied: Whether to copy each record.
        output: The name of the file, whose suffixes are the format and the compression.
        partial: The file to write.

    Returns:
        Whether whole records were copied. Otherwise their texts were written, one on each line.

    Raises:
        DataError: The files have different columns.
    """
    output_format = detect_format(output)[0]
    formats = {_format(source) for source in sources}
    if output_format == PARQUET:
        _copy_parquet([Path(source) for source in sources], is_copied, partial)
        return True
    with _compressed(output, partial) as stream:
        if formats != {output_format}:
            for number in np.flatnonzero(is_copied).tolist():
                stream.write(records.texts[number].encode() + b"\n")
            return False
        position = 0
        for number, source in enumerate(sources):
            position = _copy_file(Path(source), number == 0, Path(sources[0]), is_copied, position, stream)
    return True


def _format(source: str) -> str:
    """Return the format of a source, such as ".csv"; "" for a data set and standard input."""
    return "" if source == "-" or source.startswith(("hf:", "tfds:")) else detect_format(Path(source))[0]


def _copy_file(path: Path, is_first: bool, first: Path, is_copied: Mask, position: int, stream: IO[bytes]) -> int:
    """Copy records of a text file, whose first record has the number `position`. Return the number after its last one."""
    file_format, opener = detect_format(path)
    if is_first:
        with open_bytes(path, opener) as file:
            stream.write(codecs.BOM_UTF8 if file.read(3) == codecs.BOM_UTF8 else b"")
    if file_format in (".csv", ".tsv"):
        header, fields = _header(path)
        if is_first:
            stream.write(_ended(header))
        elif fields != _header(first)[1]:
            raise DataError(f"{path} has other columns than {first}: give files with the same columns")
    for text in _texts(path, file_format, opener):
        if is_copied[position]:
            stream.write(_ended(text))
        position += 1
    return position


def _ended(text: str) -> bytes:
    """Return text in UTF-8, with the line end that the last line of a file may lack."""
    return (text if text.endswith("\n") else text + "\n").encode()


def _texts(path: Path, file_format: str, opener: Callable[..., Any]) -> Iterator[str]:
    """Yield each record of a text file as it is in the file."""
    if file_format == ".txt":
        yield from text_lines(path, opener, ())
    elif file_format == ".jsonl":
        yield from (line for line in text_lines(path, opener, (b",", b"[", b"{")) if line.strip())
    else:
        row = _RawRows(path)
        yield from (row.text for _ in delimited.select_columns(path, iter(row), (), ()))


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the first row of a table: its text in the file and its fields."""
    row = _RawRows(path)
    _, fields = next(iter(row), (1, []))
    return row.text, fields


class _RawRows:
    """The rows of a .csv or .tsv file. `text` is the text in the file of the row that was read last."""

    def __init__(self, path: Path) -> None:
        self._path, self.text = path, ""
        self._lines: list[str] = []  # of the row that is being read

    def __iter__(self) -> Iterator[delimited.Row]:
        file_format, opener = detect_format(self._path)
        delimiter = "," if file_format == ".csv" else "\t"
        lines = self._remembered(text_lines(self._path, opener, [delimiter.encode()]))
        for row in delimited.read_rows(self._path, lines, delimiter, quotes=file_format == ".csv"):
            self.text = "".join(self._lines)
            self._lines.clear()
            yield row

    def _remembered(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            self._lines.append(line)
            yield line


@contextlib.contextmanager
def _compressed(output: Path, partial: Path) -> Iterator[IO[bytes]]:
    """Open `partial` to write bytes, which are compressed as the name of `output` says."""
    with partial.open("wb") as file, path_in_errors(output):
        if output.suffix == ".gz":  # without name and time, the same records give the same file
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream:
                yield stream  # pyright: ignore[reportReturnType]
        elif output.suffix == ".xz":
            with lzma.open(file, "wb") as stream:
                yield stream
        else:
            yield file


def _copy_parquet(paths: Sequence[Path], is_copied: Mask, partial: Path) -> None:
    """Write rows of Parquet files with all their columns."""
    pyarrow, position = import_arrow(paths[0].name), 0
    schema = pyarrow.parquet.read_schema(paths[0])
    with pyarrow.parquet.ParquetWriter(partial, schema) as writer:
        for path in paths:
            with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
                if not file.schema_arrow.equals(schema):
                    raise DataError(f"{path} has other columns than {paths[0]}: give files with the same columns")
                for block in file.iter_batches(PARQUET_ROWS):
                    mask = is_copied[position : position + len(block)]
                    position += len(block)
                    if mask.any():
                        writer.write_batch(block.filter(pyarrow.array(mask)))
