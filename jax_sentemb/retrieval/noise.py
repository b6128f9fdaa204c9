"""Estimate the scores that unrelated rows reach by chance."""

from typing import NamedTuple

import numpy as np

from jax_sentemb.cosines import rounded, unit_length
from jax_sentemb.retrieval.search import search
from jax_sentemb.retrieval.sources import VectorSource, check_vectors, rows_at, rows_with_text

SAMPLE = 1024  # rows whose pairs are compared
QUANTILE = 0.999


class NoiseLevel(NamedTuple):
    """A cosine that one of 1,000 random pairs reaches, and the number of pairs that were compared."""

    cosine: float
    pairs: int


def noise_level(vectors: VectorSource, seed: int = 0) -> NoiseLevel:
    """Return the QUANTILE of the cosines of all pairs of up to SAMPLE random rows, without rows that repeat another one.

    Args:
        vectors: The rows [N, E]. With fewer than two rows, the result is a cosine of 0 and no pairs.
        seed: Selects the rows.

    Raises:
        NumericsError: A vector is not finite.
    """
    vectors, _ = rows_with_text(vectors)
    count = min(len(vectors), SAMPLE)
    if count < 2:
        return NoiseLevel(0.0, 0)
    chosen = np.sort(np.random.default_rng(seed).choice(len(vectors), count, replace=False))
    rows = unit_length(rows_at(vectors, chosen)).astype(np.float32, copy=False)
    check_vectors(rows)
    distinct = np.unique(rows, axis=0)
    rows = distinct if len(distinct) > 1 else rows
    cosines = rounded(rows @ rows.T, rows.shape[1])[np.triu_indices(len(rows), 1)]
    return NoiseLevel(float(np.quantile(cosines, QUANTILE)), len(cosines))


def group_threshold(vectors: VectorSource, size: int, seed: int = 0) -> float:
    """Return the largest threshold at which one of up to SAMPLE random rows has a group of `size` rows.

    Args:
        vectors: The rows [N, E]. With fewer than `size` rows, the result is -1.
        size: The number of rows of a group, with the row itself.
        seed: Selects the rows.
    """
    vectors, _ = rows_with_text(vectors)
    if len(vectors) < size:
        return -1.0
    chosen = np.sort(np.random.default_rng(seed).choice(len(vectors), min(len(vectors), SAMPLE), replace=False))
    return float(search(rows_at(vectors, chosen), vectors, size).scores[:, -1].max())
