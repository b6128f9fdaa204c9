"""Similarities of embeddings by the names that sentence-transformers gives them; distances are negative."""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from jax_sentemb.errors import ConfigError

METRICS: dict[str, Any] = {"euclidean": "euclidean", "manhattan": "cityblock"}  # name -> name in SciPy


def similarity(name: str, first: Any, second: Any) -> Float[np.ndarray, "first second"]:
    """Return the similarity float32 [N, M] of each row of `first` [N, E] and each of `second` [M, E]; one row may be [E]."""
    first, second = _rows(first), _rows(second)
    if name == "cosine":
        return unit_rows(first) @ unit_rows(second).T
    return first @ second.T if name == "dot" else -cdist(first, second, METRICS[name]).astype(np.float32)


def similarity_pairwise(name: str, first: Any, second: Any) -> Float[np.ndarray, " pairs"]:
    """Return the similarity float32 [N] of the rows of `first` [N, E] and of `second` [N, E] with the same number.

    Raises:
        ConfigError: The arrays have different shapes.
    """
    first, second = _rows(first), _rows(second)
    if first.shape != second.shape:
        raise ConfigError(f"similarity_pairwise needs two arrays of the same shape, got {first.shape} and {second.shape}")
    if name == "cosine":
        first, second = unit_rows(first), unit_rows(second)
    if name in METRICS:
        return -np.linalg.norm(first - second, ord=1 if name == "manhattan" else 2, axis=1)
    return np.einsum("ne,ne->n", first, second)


def unit_rows(vectors: Any) -> Float[np.ndarray, "n width"]:
    """Return float32 [N, E] with rows of length 1; zero vectors stay zero."""
    rows = _rows(vectors)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _rows(vectors: Any) -> Float[np.ndarray, "n width"]:
    return np.atleast_2d(np.asarray(vectors, np.float32))
