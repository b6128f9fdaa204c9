"""Texts of Parquet files, Hugging Face `datasets` and `tensorflow-datasets`, all optional and imported only when they are named."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.files import user_path

ROWS = 1000  # read at once
BUFFER = 1 << 20  # bytes of a Parquet column


Rows = Iterator[tuple[str, Sequence[Any]]]  # where a row is, and its values


def dataset_rows(source: str, wanted: tuple[str, ...]) -> tuple[Rows, str]:
    """The `wanted` columns, row by row, and a string that identifies them; nothing is read before the first is asked for.

    `hf:NAME[:SPLIT]`: a hub name, a folder of data files, or a folder that save_to_disk wrote. `tfds:NAME[:SPLIT]`: a name, or the
    folder of a data set prepared as array_record. Split: train unless named; the libraries' slices (train[:10%]) work, except in
    save_to_disk folders. ConfigError without the extra, DataError for what cannot be loaded.
    """
    kind, _, rest = source.partition(":")
    name, _, split = rest.partition(":")
    if not name:
        raise ConfigError(f"data.files={source}: write {kind}:NAME or {kind}:NAME:SPLIT")
    read = _hugging_face if kind == "hf" else _tensorflow
    columns, rows, identity = read(source, name, split or "train", wanted)
    if missing := [column for column in wanted if column not in columns]:
        raise DataError(f"data.files={source} has no column {missing[0]!r}, only {', '.join(columns)}: set data.column")
    numbered = ((f"data.files={source} row {number}", row) for number, row in enumerate(rows))
    return numbered, f"{kind}|{','.join(wanted)}|{identity}"


def parquet_rows(path: Path, wanted: tuple[str, ...], remedy: str) -> Rows:
    """The `wanted` columns of a Parquet file, row by row; a null is an empty field, as in a table.

    A buffer of each column is in memory, whatever the size of a row group. ConfigError without the extra, DataError for a file that
    is damaged or lacks a column.
    """
    pyarrow = import_arrow(f"data.files={path}")
    try:
        with pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            names = file.schema_arrow.names
            if missing := [column for column in wanted if column not in names]:
                raise DataError(f"{path} has no column {missing[0]!r}, only {', '.join(names)[:200] or 'none'}: {remedy}")
            number = 0
            for block in file.iter_batches(ROWS, columns=list(wanted)):
                places = map(block.schema.names.index, wanted)
                for row in zip(*(block.columns[place].to_pylist() for place in places), strict=True):
                    yield f"{path} row {number}", ["" if value is None else value for value in row]
                    number += 1
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise _cannot_load(str(path), error) from error


def import_arrow(what: str) -> Any:
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
        raise ConfigError(f'data.files={source} needs an extra: pip install "jax_sentemb[hub]"') from None
    saved = any((user_path(name) / file).is_file() for file in ("state.json", "dataset_dict.json"))
    try:
        data: Any = datasets.load_from_disk(user_path(name)) if saved else datasets.load_dataset(name, split=split)
    except Exception as error:  # a dozen kinds from the hub, the cache and the readers
        raise _cannot_load(source, error) from error
    if isinstance(data, datasets.DatasetDict):
        if split not in data:
            raise DataError(f"data.files={source}: no split {split!r}, only {', '.join(map(str, data))}")
        data = data[split]

    def values() -> Iterator[Sequence[Any]]:
        for block in data.select_columns(list(wanted)).iter(ROWS):
            yield from zip(*(block[column] for column in wanted), strict=True)

    return data.column_names, values(), data._fingerprint


def _tensorflow(source: str, name: str, split: str, wanted: tuple[str, ...]) -> tuple[list[str], Iterator[Sequence[Any]], str]:
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise ConfigError(f'data.files={source} needs an extra: pip install "jax_sentemb[tfds]"') from None
    try:
        builder: Any = tfds.builder_from_directory(name) if Path(name).is_dir() else tfds.builder(name)
        data = builder.as_data_source(split=split)
    except Exception as error:  # as above; random access needs a data set prepared as array_record
        raise _cannot_load(source, error) from error

    def values() -> Iterator[Sequence[Any]]:
        for start in range(0, len(data), ROWS):
            for row in data.__getitems__(range(start, min(start + ROWS, len(data)))):
                yield [_decoded(row[column], source) for column in wanted]

    # Shard sizes tell apart two versions of a data set that was prepared twice under one name.
    shards = [(str(part), info.num_bytes, info.shard_lengths) for part, info in sorted(builder.info.splits.items())]
    return list(builder.info.features), values(), f"{builder.info.full_name}|{builder.data_path}|{split}|{shards}"


def _decoded(text: Any, source: str) -> Any:
    try:
        return text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise DataError(f"data.files={source}: a text is not UTF-8 ({error.reason})") from error


def _cannot_load(source: str, error: Exception) -> DataError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return DataError(f"data.files={source} cannot be loaded: {reason[:300]}")
