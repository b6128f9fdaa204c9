"""Store embeddings in two bytes, one byte or one bit per number, and restore them.

Bytes and bits are equal to those of sentence-transformers' `quantize_embeddings`.
"""

import numpy as np
from jaxtyping import Float, Real

from jax_sentemb.checks import choice
from jax_sentemb.errors import ConfigError, NumericsError

PRECISIONS = ("float32", "float16", "int8", "uint8", "binary", "ubinary")
DTYPES = ("float32", "bfloat16")  # of the matrix products that compute embeddings


def check_precision(precision: str) -> None:
    """Raise ConfigError for an unknown precision."""
    choice("precision", precision, PRECISIONS)


def ranges_of(vectors: Float[np.ndarray, "n width"]) -> Float[np.ndarray, "2 width"]:
    """Return the smallest and the largest value of each dimension, float32. int8 and uint8 divide this range into 256 levels.

    Raises:
        ConfigError: There are fewer than two different embeddings.
    """
    if len(vectors) < 2 or (vectors == vectors[0]).all():
        raise ConfigError(
            "int8 and uint8 need the ranges of several different embeddings: give more sentences or another precision"
        )
    return np.stack([vectors.min(axis=0), vectors.max(axis=0)])


def quantize(
    vectors: Float[np.ndarray, "n width"], precision: str, ranges: Float[np.ndarray, "2 width"] | None = None
) -> Real[np.ndarray, "n columns"]:
    """Convert embeddings to a precision.

    Args:
        vectors: The embeddings [N, E].
        precision: One of PRECISIONS.
        ranges: The ranges for int8 and uint8, by default those of `vectors`. Values outside become the nearest level.

    Returns:
        Numbers [N, E], or for binary (int8) and ubinary (uint8) the signs as bits [N, ceil(E / 8)].

    Raises:
        ConfigError: The precision is unknown, or int8 and uint8 have too few embeddings for ranges.
        NumericsError: A number is too large for float16.
    """
    check_precision(precision)
    if precision == "float32":
        return vectors
    if precision == "float16":
        if len(vectors) and (largest := float(np.abs(vectors).max())) > np.finfo(np.float16).max:
            raise NumericsError(f"an embedding has the number {largest:.4g}: float16 ends at 65504; normalize, or use float32")
        return vectors.astype(np.float16)
    if precision in ("binary", "ubinary"):
        bits = np.packbits(vectors > 0, axis=-1)
        return bits if precision == "ubinary" else (bits - 128).view(np.int8)
    if not len(vectors):
        return vectors.astype(precision)
    low, step = quantization_steps(ranges_of(vectors) if ranges is None else ranges)
    levels = np.clip(np.floor((vectors - low) / step), 0, 255)
    return levels.astype(np.uint8) if precision == "uint8" else (levels - 128).astype(np.int8)


def restore(
    vectors: Real[np.ndarray, "n columns"], precision: str, width: int, ranges: Float[np.ndarray, "2 width"] | None = None
) -> Float[np.ndarray, "n width"]:
    """Return float32 embeddings from the output of `quantize`: the lowest value of each level, or +1 and -1 for bits."""
    if precision in ("float32", "float16"):
        return np.asarray(vectors, np.float32)
    if precision in ("binary", "ubinary"):
        bits = vectors if precision == "ubinary" else vectors.view(np.uint8) + np.uint8(128)
        return np.unpackbits(bits, axis=-1)[:, :width].astype(np.float32) * 2 - 1
    assert ranges is not None
    low, step = quantization_steps(ranges)
    return (vectors.astype(np.float32) + (128 if precision == "int8" else 0)) * step + low


def quantization_steps(ranges: Float[np.ndarray, "2 width"]) -> tuple[Float[np.ndarray, " width"], Float[np.ndarray, " width"]]:
    """Return the value of the lowest level of each dimension, and the distance between two levels."""
    ranges = ranges.astype(np.float32, copy=False)
    step = (ranges[1] - ranges[0]) / 255
    return ranges[0], np.where(step == 0, np.float32(1), step)
