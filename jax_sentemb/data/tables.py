"""Reads columns of tables: .tsv, .csv, .jsonl and Parquet files, Hugging Face `datasets` and `tensorflow-datasets`.

The packages for Parquet files and data sets are optional and imported only when a source needs them.
"""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from jax_sentemb.data import delimited
from jax_sentemb.data.text_file import identity_of, not_utf8_error, open_bytes
from jax_sentemb.data.unpacking import COMPRESSED, too_large, unpacked_limit
from jax_sentemb.errors import ConfigError, DataError, Message, Setting
from jax_sentemb.files import user_path

KINDS = (".txt", ".jsonl", ".csv", ".tsv")
PARQUET = ".parquet"  # compressed internally, so .parquet.gz is not supported
LONGEST_ROW = 1 << 27  # bytes of a line
MOST_VALUES = 1 << 22  # separators in a line: each may become an object of 60 bytes or more
ROWS = 1000  # read at once
BUFFER = 1 << 20  # bytes of a Parquet column
SET_COLUMN = ("set ", Setting("data.column"))

Rows = Iterator[tuple[str, Sequence[Any]]]  # the position of a row for messages, and its values
DataSet = tuple[list[str], Iterator[Sequence[Any]], str]  # the names of all columns, values of the rows, and what identifies them


def read_rows(source: str, columns: tuple[str, ...], remedy: Message = SET_COLUMN, optional: tuple[str, ...] = ()) -> Rows:
    """Yield the position and the values of `columns` and `optional` of each row of a structured file or a data set.

    `remedy` is the advice in the error about a missing column. An optional column that is missing has the values None. DataError
    as in `open_corpus`.
    """
    if source.startswith(("hf:", "tfds:")):
        return dataset_rows(source, columns, optional)[0]
    path = Path(source)
    kind, opener = file_kind(path)
    if kind == ".txt":
        raise DataError(
            Setting("data.files", source),
            f" has no columns: this method reads {', '.join(columns)} of .tsv, .csv, .jsonl or .parquet files",
        )
    if kind == PARQUET:
        return parquet_rows(path, columns, remedy, optional)
    if kind == ".jsonl":
        return _json_rows(path, opener, columns, remedy, optional)
    return _csv_rows(path, opener, columns, kind, remedy, optional)


def file_kind(path: Path) -> tuple[str, Callable[..., Any]]:
    """The kind of a file (".txt", ".csv", ...) by its name, and the function that opens it; DataError for an unknown kind."""
    packing = path.suffix if path.suffix in COMPRESSED else ""
    kind = Path(path.name.removesuffix(packing)).suffix
    if kind not in KINDS and path.suffix != PARQUET:
        known = f"{', '.join(KINDS)} (each also with .gz or .xz) and {PARQUET}"
        raise DataError(Setting("data.files", path), f": unknown kind of file; supported are {known}")
    return kind, COMPRESSED.get(packing, open)


def _text_lines(path: Path, opener: Callable[..., Any], separators: Sequence[bytes]) -> Iterator[str]:
    """Yield lines of UTF-8 text with their line ends, without a byte order mark.

    `separators` stand between the values of a line.
    """
    at = 0
    with open_bytes(path, opener) as file:
        for number, line in enumerate(iter(functools.partial(file.readline, LONGEST_ROW), b""), 1):
            if len(line) == LONGEST_ROW:
                raise DataError(f"{path} line {number} has {LONGEST_ROW:,} bytes or more; divide the text into rows")
            if len(line) > MOST_VALUES and sum(map(line.count, separators)) > MOST_VALUES:
                raise DataError(f"{path} line {number} has more than {MOST_VALUES:,} values; divide it into rows")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf8_error(path, number, at + error.start, error) from error
            yield text.removeprefix("\ufeff") if at == 0 else text
            at += len(line)


def _json_rows(
    path: Path, opener: Callable[..., Any], columns: tuple[str, ...], remedy: Message, optional: tuple[str, ...]
) -> Rows:
    for number, line in enumerate(_text_lines(path, opener, (b",", b"[", b"{")), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} line {number}: not JSON ({error})") from error
        if missing := [column for column in columns if not isinstance(row, dict) or column not in row]:
            raise DataError(f"{path} line {number} has no key {missing[0]!r}: ", *remedy)
        yield f"{path} line {number}", [row.get(column) for column in (*columns, *optional)]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON text; ValueError for a key that occurs twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"key {delimited.repeated([key for key, _ in pairs])!r} occurs twice in an object")
    return row


def _csv_rows(
    path: Path, opener: Callable[..., Any], columns: tuple[str, ...], kind: str, remedy: Message, optional: tuple[str, ...]
) -> Rows:
    # In a TSV, only tabs separate fields, and quotes are text.
    delimiter = "," if kind == ".csv" else "\t"
    lines = _text_lines(path, opener, [delimiter.encode()])
    rows = delimited.read_rows(path, lines, delimiter, quotes=kind == ".csv")
    for number, fields in delimited.select_columns(path, rows, columns, remedy, optional):
        yield f"{path} line {number}", fields


def dataset_rows(source: str, wanted: tuple[str, ...], optional: tuple[str, ...] = ()) -> tuple[Rows, str]:
    """The `wanted` and `optional` columns of a data set row by row, and a string that identifies them; read from the first row.

    `hf:NAME[:SPLIT]`: a hub name, a folder of data files, or a folder that save_to_disk wrote. `tfds:NAME[:SPLIT]`: a name, or the
    folder of a data set prepared as array_record. The default split is train; the libraries' slices (train[:10%]) work, except in
    save_to_disk folders. ConfigError if the extra is not installed, DataError if the data set cannot be loaded.
    """
    kind, _, rest = source.partition(":")
    name, _, split = rest.partition(":")
    if not name:
        raise ConfigError(Setting("data.files", source), f": write {kind}:NAME or {kind}:NAME:SPLIT")
    read = _hugging_face if kind == "hf" else _tensorflow
    columns, rows, identity = read(source, name, split or "train", wanted, optional)
    if missing := [column for column in wanted if column not in columns]:
        raise DataError(
            Setting("data.files", source), f" has no column {missing[0]!r}, only {', '.join(columns)}: set ", Setting("data.column")
        )
    numbered = ((f"{source} row {number}", row) for number, row in enumerate(rows))
    return numbered, f"{kind}|{','.join(wanted)}|{identity}"


def check_unpacked_size(path: Path, columns: tuple[str, ...]) -> None:
    """Raise DataError if the columns of a Parquet file have more bytes than `unpacked_limit`, without reading them."""
    pyarrow, size = import_arrow(path.name), 0
    try:
        metadata = pyarrow.parquet.read_metadata(path)
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            chunks = map(group.column, range(group.num_columns))
            size += sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns)
    except (OSError, pyarrow.ArrowException) as error:
        raise _cannot_load(str(path), error) from error
    if size > (limit := unpacked_limit(path.stat().st_size)):
        raise too_large(path, limit)


def parquet_rows(path: Path, wanted: tuple[str, ...], remedy: Message, optional: tuple[str, ...] = ()) -> Rows:
    """The `wanted` and `optional` columns of a Parquet file, row by row; a null becomes an empty field, as in a table.

    Memory holds one buffer of each column, whatever the size of a row group, and each of its different texts once. ConfigError if
    the extra is not installed, DataError for a file that is damaged or lacks a column.
    """
    pyarrow = import_arrow(path.name)
    try:
        schema = pyarrow.parquet.read_schema(path)
        delimited.check_header(schema.names, str(path))
        if missing := [column for column in wanted if column not in schema.names]:
            raise DataError(f"{path} has no column {missing[0]!r}, only {', '.join(schema.names)[:200] or 'none'}: ", *remedy)
        there = [column for column in optional if column in schema.names]
        for column in (*wanted, *there):
            _check_type(pyarrow, schema.field(column), path)
        # A text that repeats, thousands of times in a few bytes, is held once.
        strings = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
        shared = [column for column in (*wanted, *there) if schema.field(column).type in strings]
        with pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False, read_dictionary=shared) as file:
            number = 0
            for block in file.iter_batches(ROWS, columns=[*wanted, *there]):
                columns = [_values(pyarrow, block, column) for column in (*wanted, *optional)]
                for row in zip(*columns, strict=True):
                    texts = ["" if value is None else value for value in row[: len(wanted)]]
                    yield f"{path} row {number}", [*texts, *row[len(wanted) :]]
                    number += 1
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise _cannot_load(str(path), error) from error


def _check_type(pyarrow: ModuleType, field: Any, path: Path) -> None:
    """Raise DataError for a column of bytes, lists or structures. A file of kilobytes may repeat a large one for every row."""
    values = field.type.value_type if pyarrow.types.is_dictionary(field.type) else field.type
    types = pyarrow.types
    is_bytes = types.is_binary(values) or types.is_large_binary(values) or types.is_fixed_size_binary(values)
    if is_bytes or types.is_binary_view(values) or types.is_nested(values):
        remedy = "give a column of text, or ids of text or numbers"
        raise DataError(f"{path}: column {field.name!r} has the type {str(values)[:100]}; {remedy}")


def _values(pyarrow: ModuleType, block: Any, column: str) -> list[Any]:
    """Return the values of a column of a block, which share equal texts; None for a column that it does not have."""
    if column not in block.schema.names:
        return [None] * len(block)
    values = block.column(column)
    if not isinstance(values, pyarrow.DictionaryArray):
        return values.to_pylist()
    texts = values.dictionary.to_pylist()
    return [None if place is None else texts[place] for place in values.indices.to_pylist()]


def import_arrow(what: str) -> ModuleType:
    """The package pyarrow with its module `parquet`; ConfigError that names `what` if it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(f'{what} needs an extra: pip install "jax_sentemb[parquet]"') from None
    return pyarrow


def _hugging_face(source: str, name: str, split: str, wanted: tuple[str, ...], optional: tuple[str, ...]) -> DataSet:
    try:
        import datasets
    except ImportError:
        raise ConfigError(Setting("data.files", source), ' needs an extra: pip install "jax_sentemb[hub]"') from None
    saved = any((user_path(name) / file).is_file() for file in ("state.json", "dataset_dict.json"))
    try:
        data: Any = datasets.load_from_disk(user_path(name)) if saved else datasets.load_dataset(name, split=split)
    except Exception as error:  # the hub, the cache and the readers raise a dozen kinds of exceptions
        raise _cannot_load(source, error) from error
    if isinstance(data, datasets.DatasetDict):
        if split not in data:
            raise DataError(Setting("data.files", source), f" has no split {split!r}, only {', '.join(map(str, data))}")
        data = data[split]

    def values() -> Iterator[Sequence[Any]]:
        there = [column for column in optional if column in data.column_names]
        for block in data.select_columns([*wanted, *there]).iter(ROWS):
            absent = [None] * len(block[wanted[0]])
            yield from zip(*(block.get(column, absent) for column in (*wanted, *optional)), strict=True)

    stored = identity_of([Path(file["filename"]) for file in data.cache_files])  # a fingerprint does not follow the files
    return data.column_names, values(), f"{data._fingerprint}|{stored}"


def _tensorflow(source: str, name: str, split: str, wanted: tuple[str, ...], optional: tuple[str, ...]) -> DataSet:
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise ConfigError(Setting("data.files", source), ' needs an extra: pip install "jax_sentemb[tfds]"') from None
    try:
        builder: Any = tfds.builder_from_directory(name) if Path(name).is_dir() else tfds.builder(name)
        data = builder.as_data_source(split=split)
    except Exception as error:  # as above; random access requires a data set prepared as array_record
        raise _cannot_load(source, error) from error

    def values() -> Iterator[Sequence[Any]]:
        for start in range(0, len(data), ROWS):
            for row in data.__getitems__(range(start, min(start + ROWS, len(data)))):
                yield [_decoded(row.get(column), source) for column in (*wanted, *optional)]

    # The files distinguish two data sets that were prepared under one name.
    stored = identity_of(sorted(file for file in Path(builder.data_path).iterdir() if file.is_file()))
    return list(builder.info.features), values(), f"{builder.info.full_name}|{builder.data_path}|{split}|{stored}"


def _decoded(text: Any, source: str) -> Any:
    try:
        return text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise DataError(Setting("data.files", source), f": a text is not UTF-8 ({error.reason})") from error


def _cannot_load(source: str, error: Exception) -> DataError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return DataError(Setting("data.files", source), f" cannot be loaded: {reason[:300]}")
