"""Embeddings in one byte or one bit a number, as sentence-transformers' `quantize_embeddings` makes them, and back."""

import numpy as np

from jax_sentemb.errors import ConfigError

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
DTYPES = ("float32", "bfloat16")  # of the matrix products that make them


def check_precision(precision: str) -> None:
    """ConfigError for a precision that there is not."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision={precision!r} is not one of {', '.join(PRECISIONS)}")


def ranges_of(vectors: np.ndarray) -> np.ndarray:
    """Smallest and largest value of each dimension, float32 [2, E]: what int8 and uint8 spread over 256 steps."""
    if len(vectors) < 2:
        raise ConfigError("int8 and uint8 need the ranges of several embeddings: give at least two sentences, or another precision")
    return np.stack([vectors.min(axis=0), vectors.max(axis=0)])


def quantize(vectors: np.ndarray, precision: str, ranges: np.ndarray | None = None) -> np.ndarray:
    """Embeddings [N, E] as int8 or uint8 [N, E], or by their signs as int8 (binary) or uint8 (ubinary) [N, ceil(E / 8)].

    `ranges` are those of `vectors` unless given; values beyond them become the nearest step. float32 stays as it is.
    """
    check_precision(precision)
    if precision == "float32":
        return vectors
    if precision in ("binary", "ubinary"):
        bits = np.packbits(vectors > 0, axis=-1)
        return bits if precision == "ubinary" else (bits - 128).view(np.int8)
    if not len(vectors):
        return vectors.astype(precision)
    low, step = _steps(ranges_of(vectors) if ranges is None else ranges)
    levels = np.clip(np.floor((vectors - low) / step), 0, 255)
    return levels.astype(np.uint8) if precision == "uint8" else (levels - 128).astype(np.int8)


def restore(vectors: np.ndarray, precision: str, width: int, ranges: np.ndarray | None = None) -> np.ndarray:
    """float32 [N, width] that stand for what `quantize` made: the lower end of each step, or +1 and -1 for bits."""
    if precision == "float32":
        return np.asarray(vectors)
    if precision in ("binary", "ubinary"):
        bits = vectors if precision == "ubinary" else vectors.view(np.uint8) + np.uint8(128)
        return np.unpackbits(bits, axis=-1)[:, :width].astype(np.float32) * 2 - 1
    assert ranges is not None
    low, step = _steps(ranges)
    return (vectors.astype(np.float32) + (128 if precision == "int8" else 0)) * step + low


def _steps(ranges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ranges = ranges.astype(np.float32, copy=False)
    step = (ranges[1] - ranges[0]) / 255
    return ranges[0], np.where(step == 0, np.float32(1), step)
