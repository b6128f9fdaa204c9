"""Reads tensors from safetensors files. Pickle files are never opened."""

import hashlib
from collections.abc import Callable, Collection
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open

from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import check_own, inside, read_json
from jax_sentemb.types import Params

Tensors = dict[str, Shaped[np.ndarray, "..."]]  # by their names in a file
FLOATS = ("float32", "float16", "bfloat16", "float64")
HEADER_LIMIT = 1 << 21  # bytes of names and shapes; a thousand layers need less, and reading 100 MB takes a minute


def digest_of(params: Params) -> str:
    """Return the SHA-256 of the names, shapes and numbers of parameters."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(f"{jax.tree_util.keystr(path)}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def check_finite(tensors: Tensors, where: Path) -> None:
    """ModelFileError if a tensor contains NaN or Inf."""
    bad = [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]
    if bad:
        raise ModelFileError(f"{where}: {bad[0]} contains NaN or Inf")


def weight_files(folder: Path) -> list[Path]:
    """model.safetensors, or the shards that the index names."""
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise ModelFileError(f"{index} has no weight_map")
        return [inside(folder, name, index) for name in dict.fromkeys(map(str, names.values()))]
    pickles = [file.name for file in sorted(folder.iterdir()) if file.suffix in (".bin", ".pt", ".pth", ".ckpt")]
    if pickles:
        raise ModelFileError(
            f"{folder} has only the pickle file {pickles[0]}; pickle files are never opened: if you trust it, convert it with "
            "transformers.AutoModel.from_pretrained(folder).save_pretrained(folder, safe_serialization=True)"
        )
    raise ModelFileError(f"{folder} has no model.safetensors")


def read_safetensors(file: Path, leave_out: Callable[[str], bool] = lambda name: False, integers: Collection[str] = ()) -> Tensors:
    """Read float32 tensors of a file by name, without those to leave out; a tensor in `integers` may have integers (int64).

    Raises:
        ModelFileError: The file is damaged, or a tensor has another type.
    """
    try:
        check_own(file)
        with file.open("rb") as opened:
            if (size := int.from_bytes(opened.read(8), "little")) > HEADER_LIMIT:
                raise ModelFileError(f"{file} is damaged: the stated size of its header is {size:,} bytes")
        with safe_open(file, framework="numpy") as tensors:
            names = [name for name in tensors.keys() if not leave_out(name)]  # noqa: SIM118 (not a dict)
            return {name: _read(tensors.get_tensor(name), f"{file}: {name}", name in integers) for name in names}
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"{file} is missing or damaged: {str(error)[:200]}") from None


def _read(tensor: np.ndarray, where: str, may_be_integers: bool) -> np.ndarray:
    if may_be_integers and np.issubdtype(tensor.dtype, np.integer):
        return tensor.astype(np.int64)
    if tensor.dtype.name not in FLOATS:
        raise ModelFileError(f"{where} has dtype {tensor.dtype.name}, expected one of {', '.join(FLOATS)}")
    with np.errstate(over="ignore"):  # a float64 beyond the range of float32 becomes Inf, which `check_finite` finds
        return tensor.astype(np.float32, copy=False)
