"""Texts of Hugging Face `datasets` and `tensorflow-datasets`, both optional and imported only when they are named."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jax_sentemb.errors import ConfigError, DataError


def dataset_texts(source: str, column: str) -> tuple[Callable[[], Iterable[bytes]], str]:
    """Lines of `hf:NAME[:SPLIT]` (hub name, data set script-free folder, or a folder from save_to_disk) or `tfds:NAME[:SPLIT]`
    (with `tfds:FOLDER` for a prepared one), and a string that identifies them. Split: train unless named.
    """
    kind, _, rest = source.partition(":")
    name, _, split = rest.partition(":")
    if not name:
        raise ConfigError(f"data.files={source}: write {kind}:NAME or {kind}:NAME:SPLIT")
    rows, identity = (_hugging_face if kind == "hf" else _tensorflow)(source, name, split or "train")
    return lambda: _lines(rows, column, source), f"{source}|{column}|{identity}"


def _hugging_face(source: str, name: str, split: str) -> tuple[Any, str]:
    try:
        import datasets
    except ImportError:
        raise ConfigError(f'data.files={source} needs an extra: pip install "jax_sentemb[hub]"') from None
    try:
        if (Path(name) / "dataset_info.json").is_file() or (Path(name) / "dataset_dict.json").is_file():
            data = datasets.load_from_disk(name)
            if isinstance(data, datasets.DatasetDict):
                if split not in data:
                    raise DataError(f"data.files={source}: no split {split!r}, only {', '.join(map(str, data))}")
                data = data[split]
        else:
            data = datasets.load_dataset(name, split=split)
    except DataError:
        raise
    except Exception as error:  # a dozen kinds from the hub, the cache and the readers
        raise DataError(f"data.files={source} cannot be loaded: {str(error).splitlines()[0]}") from error
    return data, data._fingerprint


def _tensorflow(source: str, name: str, split: str) -> tuple[Any, str]:
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise ConfigError(f'data.files={source} needs an extra: pip install "jax_sentemb[tfds]"') from None
    try:
        builder: Any = tfds.builder_from_directory(name) if Path(name).is_dir() else tfds.builder(name)
        rows = builder.as_data_source(split=split)
    except Exception as error:  # as above; random access needs a data set prepared as array_record
        raise DataError(f"data.files={source} cannot be loaded: {str(error).splitlines()[0]}") from error
    return rows, f"{builder.info.full_name}|{len(rows)}|{builder.data_path}"


def _lines(rows: Any, column: str, source: str) -> Iterator[bytes]:
    for number in range(len(rows)):
        row = rows[number]
        if column not in row:
            raise DataError(f"data.files={source} has no column {column!r}, only {', '.join(row)}: set data.column")
        text = row[column]
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        if not isinstance(text, str):
            raise DataError(f"data.files={source} row {number}: {column} is {type(text).__name__}, not text")
        yield text.replace("\n", " ").encode("utf-8") + b"\n"
