"""Read columns of tables: .tsv, .csv, .jsonl and Parquet files, Hugging Face `datasets` and `tensorflow-datasets`.

The packages for Parquet files and data sets are optional. They are imported only if a source needs them.
"""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any

from jax_sentemb.data import delimited
from jax_sentemb.data.text_file import identity_of, not_utf8_error, open_bytes
from jax_sentemb.data.unpacking import COMPRESSED, too_large, unpacked_limit
from jax_sentemb.errors import ConfigError, DataError, Message, Setting, first_line
from jax_sentemb.files import user_path

FORMATS = (".txt", ".jsonl", ".csv", ".tsv")
PARQUET = ".parquet"  # compressed internally, so .parquet.gz is not supported
LONGEST_ROW = 1 << 27  # bytes of a line
MAX_VALUES = 1 << 22  # separators in a line; each may become an object of 60 bytes or more
TRAIN = "train"  # the split of a data set that is read unless another is given
ROWS = 1000  # rows that are read at once
BUFFER = 1 << 20  # bytes of a Parquet column that are read at once
SET_COLUMN = ("name the column of the text with ", Setting("data.column"))

Rows = Iterator[tuple[str, Sequence[Any]]]  # the position of a row for messages, and its values
DataSet = tuple[list[str], Iterator[Sequence[Any]], str]  # the names of all columns, the values of the rows, and an identifier


def read_rows(source: str, columns: tuple[str, ...], remedy: Message = SET_COLUMN, optional: tuple[str, ...] = ()) -> Rows:
    """Yield the position of each row of a structured file or a data set, and its values.

    Args:
        source: A file or a data set.
        columns: The columns to read.
        remedy: The advice in the error about a missing column.
        optional: More columns to read. The values of a missing one are None.

    Raises:
        DataError: The source is missing or damaged, or lacks a column. The columns of a .jsonl file are the keys of its first row;
            if a later row lacks one, the value is None.
    """
    if source.startswith(("hf:", "tfds:")):
        return dataset_rows(source, columns, optional)[0]
    path = Path(source)
    file_format, opener = detect_format(path)
    if file_format == ".txt":
        raise DataError(
            Setting("data.files", source),
            f" has no columns: this method reads the columns {', '.join(columns)}; give .tsv, .csv, .jsonl or .parquet files",
        )
    if file_format == PARQUET:
        return parquet_rows(path, columns, remedy, optional)
    if file_format == ".jsonl":
        return _json_rows(path, opener, columns, remedy, optional)
    return _csv_rows(path, opener, columns, file_format, remedy, optional)


def column_names(source: str) -> list[str]:
    """Return the names of the columns of a table or data set, [] for a text file. Those of a .jsonl file are of its first row."""
    if source.startswith(("hf:", "tfds:")):
        return _data_set(source, (), ())[0]
    path = Path(source)
    file_format, opener = detect_format(path)
    if file_format == PARQUET:
        return import_arrow(path.name).parquet.read_schema(path).names
    if file_format == ".jsonl":
        return list(next((json.loads(line) for line in text_lines(path, opener, ()) if line.strip()), {}))
    if file_format == ".txt":
        return []
    return next(_delimited_rows(path, opener, file_format), (1, []))[1]


def detect_format(path: Path) -> tuple[str, Callable[..., Any]]:
    """Return the format of a file (".txt", ".csv", ...) by its name, and the function that opens it.

    Raises:
        DataError: The format is not supported.
    """
    packing = path.suffix if path.suffix in COMPRESSED else ""
    file_format = Path(path.name.removesuffix(packing)).suffix
    if file_format not in FORMATS and path.suffix != PARQUET:
        supported = f"{', '.join(FORMATS)} (each also with .gz or .xz) and {PARQUET}"
        raise DataError(Setting("data.files", path), f": unknown file format; supported are {supported}")
    return file_format, COMPRESSED.get(packing, open)


def text_lines(path: Path, opener: Callable[..., Any], separators: Sequence[bytes]) -> Iterator[str]:
    """Yield lines of UTF-8 text with their line ends, without a byte order mark.

    `separators` stand between the values of a line.
    """
    offset = 0
    with open_bytes(path, opener) as file:
        for number, line in enumerate(iter(functools.partial(file.readline, LONGEST_ROW), b""), 1):
            if len(line) == LONGEST_ROW:
                raise DataError(f"{path} line {number} has {LONGEST_ROW:,} bytes or more; divide the text into rows")
            if len(line) > MAX_VALUES and sum(map(line.count, separators)) > MAX_VALUES:
                raise DataError(f"{path} line {number} has more than {MAX_VALUES:,} values; divide it into rows")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf8_error(path, number, offset + error.start, error) from error
            yield text.removeprefix("\ufeff") if offset == 0 else text
            offset += len(line)


def _json_rows(
    path: Path, opener: Callable[..., Any], columns: tuple[str, ...], remedy: Message, optional: tuple[str, ...]
) -> Rows:
    is_first = True
    for number, line in enumerate(text_lines(path, opener, (b",", b"[", b"{")), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} line {number}: not JSON ({error}); write one object on each line") from error
        if not isinstance(row, dict):
            raise DataError(f"{path} line {number} is {kind_of(row)}, not an object; write one object on each line")
        if is_first and (missing := [column for column in columns if column not in row]):
            raise DataError(f"{path} line {number} has no key {missing[0]!r}, only {', '.join(row)[:200] or 'none'}: ", *remedy)
        is_first = False
        yield f"{path} line {number}", [row.get(column) for column in (*columns, *optional)]


def kind_of(value: Any) -> str:
    """Return what a value of JSON or of a data set is, in words."""
    if isinstance(value, bool):
        return "true or false"
    kinds = {
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
        NoneType: "missing",
        bytes: "bytes",
    }
    return kinds.get(type(value), type(value).__name__)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON text; raise ValueError if a key occurs twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"key {delimited.first_repeated(key for key, _ in pairs)!r} occurs twice in an object")
    return row


def _csv_rows(
    path: Path, opener: Callable[..., Any], columns: tuple[str, ...], file_format: str, remedy: Message, optional: tuple[str, ...]
) -> Rows:
    rows = _delimited_rows(path, opener, file_format)
    for number, fields in delimited.select_columns(path, rows, columns, remedy, optional):
        yield f"{path} line {number}", fields


def _delimited_rows(path: Path, opener: Callable[..., Any], file_format: str) -> Iterator[delimited.Row]:
    """Yield the rows of a .csv or .tsv file, the header first. In a TSV, only tabs separate fields, and quotes are text."""
    delimiter = "," if file_format == ".csv" else "\t"
    lines = text_lines(path, opener, [delimiter.encode()])
    return delimited.read_rows(path, lines, delimiter, quotes=file_format == ".csv")


def dataset_rows(source: str, columns: tuple[str, ...], optional: tuple[str, ...] = ()) -> tuple[Rows, str]:
    """Read columns of a data set row by row.

    Args:
        source: `hf:NAME[:SPLIT]` is a hub name, a folder of data files, or a folder that save_to_disk wrote. `tfds:NAME[:SPLIT]` is
            a name, or the folder of a data set prepared as array_record. The default split is train. Slices of the libraries, such
            as train[:10%], work except in save_to_disk folders.
        columns: The columns to read.
        optional: More columns to read. The values of a missing one are None.

    Returns:
        The rows, and a string that identifies their content.

    Raises:
        ConfigError: The extra is not installed.
        DataError: The data set cannot be loaded, or lacks a column.
    """
    existing, rows, identity = _data_set(source, columns, optional)
    if missing := [column for column in columns if column not in existing]:
        raise DataError(
            Setting("data.files", source),
            f" has no column {missing[0]!r}, only {', '.join(existing)}: ",
            *SET_COLUMN,
        )
    with_positions = ((f"{source} row {number}", row) for number, row in enumerate(rows))
    return with_positions, f"{source.partition(':')[0]}|{','.join(columns)}|{identity}"


def _data_set(source: str, columns: tuple[str, ...], optional: tuple[str, ...]) -> DataSet:
    """Open a data set, as in `dataset_rows`."""
    library, _, rest = source.partition(":")
    name, _, split = rest.partition(":")
    if not name:
        raise ConfigError(Setting("data.files", source), f": write {library}:NAME or {library}:NAME:SPLIT")
    read = _hugging_face if library == "hf" else _tensorflow
    return read(source, name, split, columns, optional)


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


def parquet_rows(path: Path, columns: tuple[str, ...], remedy: Message, optional: tuple[str, ...] = ()) -> Rows:
    """Yield the position of each row of a Parquet file, and its values. A null becomes an empty field, as in a table.

    Memory holds one buffer of each column, whatever the size of a row group, and each of its different texts once.

    Args:
        path: The file.
        columns: The columns to read.
        remedy: The advice in the error about a missing column.
        optional: More columns to read. The values of a missing one are None.

    Raises:
        ConfigError: The extra is not installed.
        DataError: The file is damaged or lacks a column.
    """
    pyarrow = import_arrow(path.name)
    try:
        schema = pyarrow.parquet.read_schema(path)
        delimited.check_header(schema.names, str(path))
        if missing := [column for column in columns if column not in schema.names]:
            raise DataError(f"{path} has no column {missing[0]!r}, only {', '.join(schema.names)[:200] or 'none'}: ", *remedy)
        existing = [*columns, *(column for column in optional if column in schema.names)]
        for column in existing:
            _check_type(pyarrow, schema.field(column), path)
        # A few bytes may stand for thousands of equal texts, so memory holds each different text once.
        strings = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
        shared = [column for column in existing if schema.field(column).type in strings]
        with pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False, read_dictionary=shared) as file:
            number = 0
            for block in file.iter_batches(ROWS, columns=existing):
                values = [_values(pyarrow, block, column) for column in (*columns, *optional)]
                for row in zip(*values, strict=True):
                    texts = ["" if value is None else value for value in row[: len(columns)]]
                    yield f"{path} row {number}", [*texts, *row[len(columns) :]]
                    number += 1
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise _cannot_load(str(path), error) from error


def _check_type(pyarrow: ModuleType, field: Any, path: Path) -> None:
    """Raise DataError for a column of bytes, lists or structures. A file of kilobytes may repeat a large value for every row."""
    values = field.type.value_type if pyarrow.types.is_dictionary(field.type) else field.type
    types = pyarrow.types
    is_bytes = types.is_binary(values) or types.is_large_binary(values) or types.is_fixed_size_binary(values)
    if is_bytes or types.is_binary_view(values) or types.is_nested(values):
        remedy = "give a column of text, or ids of text or numbers"
        raise DataError(f"{path}: column {field.name!r} has the type {str(values)[:100]}; {remedy}")


def _values(pyarrow: ModuleType, block: Any, column: str) -> list[Any]:
    """Return the values of a column of a block, in which equal texts are one object. A missing column gives None for each row."""
    if column not in block.schema.names:
        return [None] * len(block)
    values = block.column(column)
    if not isinstance(values, pyarrow.DictionaryArray):
        return values.to_pylist()
    texts = values.dictionary.to_pylist()
    return [None if index is None else texts[index] for index in values.indices.to_pylist()]


def import_arrow(subject: str) -> ModuleType:
    """Return the package pyarrow with its module `parquet`.

    Raises:
        ConfigError: pyarrow is not installed. The message begins with `subject`.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(f"{subject} needs a package: pip install pyarrow") from None
    return pyarrow


def _hugging_face(source: str, name: str, split: str, columns: tuple[str, ...], optional: tuple[str, ...]) -> DataSet:
    try:
        import datasets
    except ImportError:
        raise ConfigError(Setting("data.files", source), " needs a package: pip install datasets") from None
    folder, chosen = user_path(name), split or TRAIN
    is_saved = any((folder / file).is_file() for file in ("state.json", "dataset_dict.json"))
    try:
        data: Any = datasets.load_from_disk(folder) if is_saved else _load_dataset(datasets, name, chosen)
    except Exception as error:  # the hub, the cache and the readers raise a dozen kinds of exceptions
        raise _cannot_load(source, error) from error
    if isinstance(data, datasets.DatasetDict):
        if chosen not in data:
            raise DataError(Setting("data.files", source), f" has no split {chosen!r}, only {', '.join(map(str, data))}")
        data = data[chosen]
    elif is_saved and split and split != str(data.split):
        raise DataError(Setting("data.files", source), f" is a single data set, without a split {split!r}; leave :{split} out")

    def values() -> Iterator[Sequence[Any]]:
        existing = [column for column in optional if column in data.column_names]
        for block in data.select_columns([*columns, *existing]).iter(ROWS):
            nothing = [None] * len(block[columns[0]])
            yield from zip(*(block.get(column, nothing) for column in (*columns, *optional)), strict=True)

    # The library's fingerprint does not change with the files, so theirs is added.
    files_identity = identity_of([Path(file["filename"]) for file in data.cache_files])
    return data.column_names, values(), f"{data._fingerprint}|{files_identity}"


def _load_dataset(datasets: Any, name: str, split: str) -> Any:
    """Return a split of a data set. The library compares only names and times of files with those of its cache."""
    if not (folder := user_path(name)).is_dir():
        return datasets.load_dataset(name, split=split)
    identity = identity_of(sorted(file for file in folder.rglob("*") if file.is_file()))
    return datasets.load_dataset(str(folder), split=split, cache_dir=Path(datasets.config.HF_DATASETS_CACHE) / identity[:16])


def _tensorflow(source: str, name: str, split: str, columns: tuple[str, ...], optional: tuple[str, ...]) -> DataSet:
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        packages = "tensorflow-datasets array_record importlib_resources"
        raise ConfigError(Setting("data.files", source), f" needs some packages: pip install {packages}") from None
    try:
        builder: Any = tfds.builder_from_directory(name) if Path(name).is_dir() else tfds.builder(name)
        data = builder.as_data_source(split=split or TRAIN)
    except Exception as error:  # the readers raise a dozen types of exceptions; random access needs array_record
        raise _cannot_load(source, error) from error

    def values() -> Iterator[Sequence[Any]]:
        for start in range(0, len(data), ROWS):
            for row in data.__getitems__(range(start, min(start + ROWS, len(data)))):
                yield [_decode(row.get(column), source) for column in (*columns, *optional)]

    # The files distinguish two data sets that were prepared under one name.
    files_identity = identity_of(sorted(file for file in Path(builder.data_path).iterdir() if file.is_file()))
    return list(builder.info.features), values(), f"{builder.info.full_name}|{builder.data_path}|{split or TRAIN}|{files_identity}"


def _decode(text: Any, source: str) -> Any:
    try:
        return text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise DataError(Setting("data.files", source), f": a text is not UTF-8 ({error.reason}); correct the data set") from error


def _cannot_load(source: str, error: Exception) -> DataError:
    return DataError(Setting("data.files", source), f" cannot be loaded: {first_line(error)}")
