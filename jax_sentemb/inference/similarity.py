"""Similarities of embeddings by the names that sentence-transformers gives them; distances are negative."""

from typing import Any

import numpy as np
import scipy  # imports its submodules when they are used
from jaxtyping import Float

from jax_sentemb.checks import array
from jax_sentemb.cosines import rounded, unit_length
from jax_sentemb.errors import ConfigError, NumericsError

METRICS: dict[str, Any] = {"euclidean": "euclidean", "manhattan": "cityblock"}  # name -> name in SciPy


def similarity(name: str, first: Any, second: Any) -> Float[np.ndarray, "first second"]:
    """Return the similarity float32 [N, M] of each row of `first` [N, E] and each of `second` [M, E]; one row may be [E].

    Raises:
        ConfigError: The arrays do not have real numbers, or different widths.
        NumericsError: A number is NaN or infinite.
    """
    first, second = _rows(first, name), _rows(second, name)
    if first.shape[1] != second.shape[1]:
        shapes = f"{first.shape} and {second.shape}"
        raise ConfigError(f"similarity needs arrays of the same width, got {shapes}; encode both with the same model")
    if name == "cosine":
        return rounded(first @ second.T, first.shape[1])
    return first @ second.T if name == "dot" else -scipy.spatial.distance.cdist(first, second, METRICS[name]).astype(np.float32)


def similarity_pairwise(name: str, first: Any, second: Any) -> Float[np.ndarray, " pairs"]:
    """Return the similarity float32 [N] of the rows of `first` [N, E] and of `second` [N, E] with the same number.

    Raises:
        ConfigError: The arrays do not have real numbers, or different shapes.
        NumericsError: A number is NaN or infinite.
    """
    first, second = _rows(first, name), _rows(second, name)
    if first.shape != second.shape:
        raise ConfigError(f"similarity_pairwise needs two arrays of the same shape, got {first.shape} and {second.shape}")
    if name in METRICS:
        differences = first.astype(np.float64) - second
        return -np.linalg.norm(differences, ord=1 if name == "manhattan" else 2, axis=1).astype(np.float32)
    products = np.einsum("ne,ne->n", first, second)
    return rounded(products, first.shape[1]) if name == "cosine" else products


def unit_rows(vectors: Any) -> Float[np.ndarray, "n width"]:
    """Return float32 [N, E] with rows of length 1; zero vectors stay zero."""
    return _rows(vectors, "cosine")


def _rows(embeddings: Any, similarity_name: str) -> Float[np.ndarray, "n width"]:
    """Return float32 [N, E], for cosines with rows of length 1."""
    numbers = array("embeddings", embeddings)
    numbers = numbers.reshape(0, 0) if numbers.shape == (0,) else np.atleast_2d(numbers)
    if numbers.ndim != 2:
        raise ConfigError(f"embeddings have shape {list(numbers.shape)}: give [rows, width], or one embedding")
    if similarity_name == "cosine":
        numbers = unit_length(numbers)
    with np.errstate(over="ignore"):
        rows = numbers.astype(np.float32)
    if not np.isfinite(rows).all():
        raise NumericsError("some of the embeddings are not finite (NaN or Inf); remove these rows")
    return rows
