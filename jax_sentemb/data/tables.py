"""Reads columns of tables: .tsv, .csv, .jsonl and Parquet files, Hugging Face `datasets` and `tensorflow-datasets`.

The packages for Parquet files and data sets are optional and imported only when a source needs them.
"""

import functools
import gzip
import importlib.util
import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from jax_sentemb.data.text_file import identity_of, not_utf8_error, open_bytes
from jax_sentemb.errors import ConfigError, DataError, Message, Setting
from jax_sentemb.files import user_path

KINDS = (".txt", ".jsonl", ".csv", ".tsv")
PARQUET = ".parquet"  # compressed internally, so .parquet.gz is not supported
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
UNPACKED = 1 << 30  # bytes: the longest row, and the size of unpacked text that is always accepted
ROWS = 1000  # read at once
BUFFER = 1 << 20  # bytes of a Parquet column
SET_COLUMN = ("set ", Setting("data.column"))

Rows = Iterator[tuple[str, Sequence[Any]]]  # the position of a row for messages, and its values


def read_rows(source: str, columns: tuple[str, ...], remedy: Message = SET_COLUMN) -> Rows:
    """The position and the values of `columns` of each row of a structured file or a data set.

    `remedy` is the advice in the error about a missing column. DataError as in `open_corpus`.
    """
    if source.startswith(("hf:", "tfds:")):
        return dataset_rows(source, columns)[0]
    path = Path(source)
    kind, opener = file_kind(path)
    if kind == ".txt":
        raise DataError(
            Setting("data.files", source),
            f" has no columns: this method reads {', '.join(columns)} of .tsv, .csv, .jsonl or .parquet files",
        )
    if kind == PARQUET:
        return parquet_rows(path, columns, remedy)
    if kind == ".jsonl":
        return _json_rows(path, opener, columns, remedy)
    return _csv_rows(path, opener, columns, kind, remedy)


def file_kind(path: Path) -> tuple[str, Callable[..., Any]]:
    """The kind of a file (".txt", ".csv", ...) by its name, and the function that opens it; DataError for an unknown kind."""
    packing = path.suffix if path.suffix in COMPRESSED else ""
    kind = Path(path.name.removesuffix(packing)).suffix
    if kind not in KINDS and path.suffix != PARQUET:
        known = f"{', '.join(KINDS)} (each also with .gz or .xz) and {PARQUET}"
        raise DataError(Setting("data.files", path), f": unknown kind of file; supported are {known}")
    return kind, COMPRESSED.get(packing, open)


def _text_lines(path: Path, opener: Callable[..., Any]) -> Iterator[str]:
    """Lines of UTF-8 text with their line ends, without a byte order mark."""
    at = 0
    with open_bytes(path, opener) as file:
        for number, line in enumerate(iter(functools.partial(file.readline, UNPACKED), b""), 1):
            if len(line) == UNPACKED:
                raise DataError(f"{path} line {number} has {UNPACKED:,} bytes or more, far more than a row of text")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf8_error(path, number, at + error.start, error) from error
            yield text.removeprefix("\ufeff") if at == 0 else text
            at += len(line)


def _json_rows(path: Path, opener: Callable[..., Any], columns: tuple[str, ...], remedy: Message) -> Rows:
    for number, line in enumerate(_text_lines(path, opener), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} line {number}: not JSON ({error})") from error
        if missing := [column for column in columns if not isinstance(row, dict) or column not in row]:
            raise DataError(f"{path} line {number} has no key {missing[0]!r}: ", *remedy)
        yield f"{path} line {number}", [row[column] for column in columns]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON text; ValueError for a key that occurs twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"key {_duplicate([key for key, _ in pairs])!r} occurs twice in an object")
    return row


def check_header(header: Sequence[str], where: str) -> None:
    """Raise DataError if two columns have the same name. Columns without a name may repeat: nothing can refer to them."""
    if duplicate := _duplicate([name for name in header if name]):
        raise DataError(f"{where}: two columns are named {duplicate[:100]!r}; rename one")


def check_width(row: Sequence[str], header: Sequence[str], where: str) -> None:
    """Raise DataError if a row does not have as many fields as the header."""
    if len(row) != len(header):
        remedy = "quote a field that contains the separator" if len(row) > len(header) else "add the missing fields"
        raise DataError(f"{where} has {len(row)} fields, the header has {len(header)}; {remedy}")


def _duplicate(names: list[str]) -> str:
    """Return the first name that occurs a second time, "" if there is none."""
    return next((name for place, name in enumerate(names) if name in names[:place]), "") if len(set(names)) < len(names) else ""


def _own_csv() -> Any:
    """Return a second instance of Python's csv parser, since its limit on the length of fields holds for a whole process."""
    spec: Any = importlib.util.find_spec("_csv")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.field_size_limit(UNPACKED)
    return module


_csv = _own_csv()


def _csv_rows(path: Path, opener: Callable[..., Any], columns: tuple[str, ...], kind: str, remedy: Message) -> Rows:
    lines = _text_lines(path, opener)
    # In a TSV, only tabs separate fields, and quotes are text.
    rows = _csv.reader(lines, strict=True) if kind == ".csv" else _csv.reader(lines, delimiter="\t", quoting=_csv.QUOTE_NONE)
    good = 0  # the last line of the last complete row: an unclosed quote extends over all lines that follow
    try:
        header = next(rows, [])
        check_header(header, f"{path} line {rows.line_num}")
        if missing := [column for column in columns if column not in header]:
            there = " ".join(", ".join(header).split())[:200]  # a quoted name may contain line breaks
            raise DataError(f"{path} has no column {missing[0]!r}, only {there or 'none'}: ", *remedy)
        places = [header.index(column) for column in columns]
        for row in rows:
            if not row and len(header) > 1:  # a blank line is no row, except in a table of one column
                continue
            check_width(row or [""], header, f"{path} line {rows.line_num}")
            yield f"{path} line {rows.line_num}", [row[place] for place in places] if row else [""] * len(places)
            good = rows.line_num
    except _csv.Error as error:
        raise DataError(f"{path} cannot be read as a table from line {good + 1} on: {error}; is a quote not closed?") from error


def dataset_rows(source: str, wanted: tuple[str, ...]) -> tuple[Rows, str]:
    """The `wanted` columns of a data set row by row, and a string that identifies them. Reading starts at the first row.

    `hf:NAME[:SPLIT]`: a hub name, a folder of data files, or a folder that save_to_disk wrote. `tfds:NAME[:SPLIT]`: a name, or the
    folder of a data set prepared as array_record. The default split is train; the libraries' slices (train[:10%]) work, except in
    save_to_disk folders. ConfigError if the extra is not installed, DataError if the data set cannot be loaded.
    """
    kind, _, rest = source.partition(":")
    name, _, split = rest.partition(":")
    if not name:
        raise ConfigError(Setting("data.files", source), f": write {kind}:NAME or {kind}:NAME:SPLIT")
    read = _hugging_face if kind == "hf" else _tensorflow
    columns, rows, identity = read(source, name, split or "train", wanted)
    if missing := [column for column in wanted if column not in columns]:
        raise DataError(
            Setting("data.files", source), f" has no column {missing[0]!r}, only {', '.join(columns)}: set ", Setting("data.column")
        )
    numbered = ((f"{source} row {number}", row) for number, row in enumerate(rows))
    return numbered, f"{kind}|{','.join(wanted)}|{identity}"


def parquet_rows(path: Path, wanted: tuple[str, ...], remedy: Message) -> Rows:
    """The `wanted` columns of a Parquet file, row by row; a null becomes an empty field, as in a table.

    Memory holds one buffer of each column, whatever the size of a row group. ConfigError if the extra is not installed, DataError
    for a file that is damaged or lacks a column.
    """
    pyarrow = import_arrow(path.name)
    try:
        with pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            names = file.schema_arrow.names
            check_header(names, str(path))
            if missing := [column for column in wanted if column not in names]:
                raise DataError(f"{path} has no column {missing[0]!r}, only {', '.join(names)[:200] or 'none'}: ", *remedy)
            number = 0
            for block in file.iter_batches(ROWS, columns=list(wanted)):
                places = map(block.schema.names.index, wanted)
                for row in zip(*(block.columns[place].to_pylist() for place in places), strict=True):
                    yield f"{path} row {number}", ["" if value is None else value for value in row]
                    number += 1
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise _cannot_load(str(path), error) from error


def import_arrow(what: str) -> ModuleType:
    """The package pyarrow with its module `parquet`; ConfigError that names `what` if it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(f'{what} needs an extra: pip install "jax_sentemb[parquet]"') from None
    return pyarrow


def _hugging_face(source: str, name: str, split: str, wanted: tuple[str, ...]) -> tuple[list[str], Iterator[Sequence[Any]], str]:
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
        for block in data.select_columns(list(wanted)).iter(ROWS):
            yield from zip(*(block[column] for column in wanted), strict=True)

    stored = identity_of([Path(file["filename"]) for file in data.cache_files])  # a fingerprint does not follow the files
    return data.column_names, values(), f"{data._fingerprint}|{stored}"


def _tensorflow(source: str, name: str, split: str, wanted: tuple[str, ...]) -> tuple[list[str], Iterator[Sequence[Any]], str]:
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
                yield [_decoded(row[column], source) for column in wanted]

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
