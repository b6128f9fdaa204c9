"""Read tensors from safetensors files. Pickle files are never opened."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open

from jax_sentemb.errors import OTHER_MODEL, REPLACE_MODEL, ModelFileError
from jax_sentemb.files import check_untrusted, join_inside, quote, read_json
from jax_sentemb.types import Params

Tensors = dict[str, Shaped[np.ndarray, "..."]]  # by their names in a file
Shapes = dict[str, tuple[int, ...]]  # by the same names
FLOATS = ("float32", "float16", "bfloat16", "float64")
BYTES_PER_NUMBER = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
WEIGHT_NAMES = ("model.safetensors", "model.safetensors.index.json")  # a folder with either of them has weights
HEADER_LIMIT = 1 << 21  # bytes of names and shapes; a thousand layers need less, and reading 100 MB takes a minute


def digest_of(params: Params) -> str:
    """Return the SHA-256 of the names, shapes and numbers of parameters."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(f"{jax.tree_util.keystr(path)}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def check_finite(tensors: Tensors, where: Path) -> None:
    """Raise ModelFileError if a tensor contains NaN or Inf."""
    names = [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]
    if names:
        raise ModelFileError(f"{where}: {names[0]} contains NaN or Inf; {REPLACE_MODEL}")


def weight_files(folder: Path) -> list[Path]:
    """Return the path of model.safetensors, or of the shards that the index names.

    Raises:
        ModelFileError: The folder has no weights, or only pickle files.
    """
    single, index = (folder / name for name in WEIGHT_NAMES)
    if single.is_file():
        return [single]
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise ModelFileError(f"{index} has no weight_map; {REPLACE_MODEL}")
        return [join_inside(folder, name, index) for name in dict.fromkeys(map(str, names.values()))]
    pickles = [file.name for file in sorted(folder.iterdir()) if file.suffix in (".bin", ".pt", ".pth", ".ckpt")]
    if pickles:
        raise ModelFileError(
            f"{folder} has only the pickle file {pickles[0]}, and pickle files are never opened; if you trust it, convert it with "
            "transformers.AutoModel.from_pretrained(folder).save_pretrained(folder, safe_serialization=True)"
        )
    raise ModelFileError(f"{folder} has no model.safetensors; {REPLACE_MODEL}")


def read_shapes(file: Path) -> Shapes:
    """Return the shapes of the tensors of a file. Only the header of the file is read.

    Raises:
        ModelFileError: The file is damaged, its size is not that of its tensors, or they do not fit into memory.
    """
    try:
        check_untrusted(file)
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > HEADER_LIMIT:
                raise ModelFileError(f"{file} is damaged: the claimed size of its header is {length:,} bytes; {REPLACE_MODEL}")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        shapes = {name: _shape(entry) for name, entry in header.items()}
        expected = sum(math.prod(shapes[name]) * BYTES_PER_NUMBER[entry["dtype"]] for name, entry in header.items())
    except OSError as error:
        raise ModelFileError(f"{file} is missing or damaged: {error.strerror}; {REPLACE_MODEL}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        reason = f"{type(error).__name__} {str(error)[:200]}"
        raise ModelFileError(f"{file} is missing or damaged: its header cannot be read ({reason}); {REPLACE_MODEL}") from None
    if expected != size - 8 - length:
        raise ModelFileError(
            f"{file} is damaged: its header describes {expected:,} bytes of tensors, the file has "
            f"{size - 8 - length:,}; {REPLACE_MODEL}"
        )
    check_memory(file, expected)
    return shapes


def check_memory(where: Path, size: int) -> None:
    """Raise ModelFileError if `size` bytes of tensors do not fit into the memory of this machine."""
    if size > (memory := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise ModelFileError(f"{where} has {size:,} bytes of tensors; this machine has {memory:,} bytes of memory; {OTHER_MODEL}")


def _shape(entry: dict[str, Any]) -> tuple[int, ...]:
    """Return the shape in an entry of a header; raise ValueError unless it is a list of non-negative integers."""
    shape = entry["shape"]
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"shape {quote(shape)}")
    return tuple(shape)


def read_safetensors(file: Path, skip: Callable[[str], bool] = lambda name: False, integers: Collection[str] = ()) -> Tensors:
    """Read the tensors of a file.

    Args:
        file: A .safetensors file.
        skip: Return whether to leave out the tensor with this name.
        integers: Names of tensors that may have integers.

    Returns:
        The tensors by name, as float32; tensors of integers as int64.

    Raises:
        ModelFileError: The file is damaged, or a tensor has another type.
    """
    names = [name for name in read_shapes(file) if not skip(name)]
    try:
        with safe_open(file, framework="numpy") as tensors:
            return {name: _read(tensors.get_tensor(name), f"{file}: {name}", name in integers) for name in names}
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"{file} is missing or damaged: {str(error)[:200]}; {REPLACE_MODEL}") from None


def _read(tensor: np.ndarray, where: str, may_be_integers: bool) -> np.ndarray:
    if may_be_integers and np.issubdtype(tensor.dtype, np.integer):
        return tensor.astype(np.int64)
    if tensor.dtype.name not in FLOATS:
        raise ModelFileError(f"{where} has dtype {tensor.dtype.name}, expected one of {', '.join(FLOATS)}; convert the weights")
    with np.errstate(over="ignore"):  # a float64 beyond the range of float32 becomes Inf, which `check_finite` finds
        return tensor.astype(np.float32, copy=False)
