"""Cluster rows by cosine with spherical k-means. The device holds one block of rows at a time.

SciPy's kmeans2 is not used because it needs all vectors in memory.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int

from jax_sentemb.checks import finite_number, whole_number
from jax_sentemb.cosines import rounded, with_usual_lengths
from jax_sentemb.retrieval.search import CORPUS_BLOCK
from jax_sentemb.retrieval.sources import (
    VectorSource,
    block_size,
    blocks,
    check_finite,
    numbers_of,
    prepare,
    rows_at,
    rows_with_text,
    vectors_of,
)  # fmt: skip
from jax_sentemb.types import Array, OnProgress, no_progress

SCORES = 1 << 19  # cosines of rows and centres that are computed at once; they fit into a processor's cache
MIN_ROWS = 64  # rows that are compared at once; with fewer, reading the centres would take most of the time
SAMPLE, SAMPLE_OF_GROUP = 1 << 14, 16  # rows in the sample for the first centres: the minimum, and the number for each group
AT_CENTRE = 1 - 1e-6  # a row with this cosine or more counts as equal to its centre


class Groups(NamedTuple):
    """The result of `kmeans`."""

    labels: Int[np.ndarray, " rows"]  # int64, the group of each row; -1 for a row of an empty text
    scores: Float[np.ndarray, " rows"]  # float32, cosine of each row with the centre of its group; 0 without a group
    centres: Float[np.ndarray, "k width"]  # float32, of length 1

    def rows(self) -> list[list[int]]:
        """Return the rows of each group, the nearest to the centre first. The largest group is first; empty groups are left out."""
        order = np.lexsort((-self.scores, self.labels))
        order = order[self.labels[order] >= 0]
        ends = np.cumsum(np.bincount(self.labels[order], minlength=len(self.centres)))
        groups = [group.tolist() for group in np.split(order, ends[:-1]) if len(group)]
        return sorted(groups, key=len, reverse=True)


def kmeans(
    vectors: VectorSource | list,
    k: int,
    seed: int = 0,
    rounds: int = 100,
    tolerance: float = 3e-5,
    progress: OnProgress = no_progress,
) -> Groups:
    """Divide rows into groups. Each row belongs to the group whose centre has the largest cosine with it.

    A centre is the mean of the unit-length rows of its group, scaled to length 1. The first centres are drawn by k-means++ from a
    sample. They are improved first on the sample, then on all rows. An empty group restarts at the row that is farthest from its
    centre. With fewer than `k` different rows, some groups stay empty.

    Args:
        vectors: The rows [N, E].
        k: The number of groups.
        seed: Selects the sample and the first centres. The same seed gives the same groups.
        rounds: The largest number of passes over the rows.
        tolerance: The passes end when the mean cosine of rows and centres grows by this number or less and no group is empty.
        progress: Called with the number of passes over the rows, and with the largest number of them.

    Raises:
        ConfigError: `k` is below 1 or above the number of rows, or another argument is out of range.
        NumericsError: A vector is not finite.
    """
    all_vectors = vectors_of("vectors", vectors)
    vectors, numbers = rows_with_text(all_vectors)
    k, rounds = whole_number("k", k, 1, len(vectors)), whole_number("rounds", rounds, 1)
    seed = whole_number("seed", seed, 0, (1 << 31) - 1)  # JAX does not accept larger seeds
    tolerance = finite_number("tolerance", tolerance, 0)
    sample = _sample(vectors, max(SAMPLE, SAMPLE_OF_GROUP * k), seed)
    centres = _draw_centres(sample, jax.random.key(seed), k)
    if len(sample) < len(vectors):  # passes over the sample are cheap, and save most of the passes over all rows
        centres = _improve(sample, centres, rounds, tolerance, progress).centres
    groups = _improve(vectors, centres, rounds, tolerance, progress)
    if numbers is None:
        return groups
    labels, scores = np.full(len(all_vectors), -1), np.zeros(len(all_vectors), np.float32)
    labels[numbers], scores[numbers] = groups.labels, groups.scores
    return groups._replace(labels=labels, scores=scores)


def _improve(vectors: VectorSource, centres: Array | np.ndarray, rounds: int, tolerance: float, progress: OnProgress) -> Groups:
    """Run Lloyd's algorithm from these centres."""
    previous, total = -np.inf, rounds
    while True:
        progress(total - rounds, total)
        rounds -= 1
        labels, scores, sums = _assign(vectors, centres)
        groups = Groups(labels, scores, np.asarray(centres))
        mean = scores.mean(dtype=np.float64)
        empty = np.setdiff1d(np.arange(len(centres)), labels)
        far = np.argsort(scores, kind="stable")[: len(empty)] if len(empty) else empty
        far = far[scores[far] < AT_CENTRE]
        if rounds <= 0 or (mean - previous <= tolerance and not len(far)):
            return groups._replace(scores=rounded(scores, vectors.shape[1]))
        for group, row in zip(empty.tolist(), far.tolist(), strict=False):
            sums = jnp.asarray(sums).at[group].set(jnp.asarray(numbers_of(vectors[row : row + 1], unit=True)[0], jnp.float32))
        previous, centres = mean, prepare(sums, True)


def _sample(vectors: VectorSource, count: int, seed: int) -> np.ndarray:
    """Return `count` random rows, or all rows if there are fewer."""
    if count >= len(vectors):
        return numbers_of(vectors[:], unit=True)
    chosen = np.sort(np.random.default_rng(seed).choice(len(vectors), count, replace=False))
    return with_usual_lengths(rows_at(vectors, chosen))


@functools.partial(jax.jit, static_argnames="k")
def _draw_centres(rows: Array, key: Array, k: int) -> Array:
    """Draw `k` rows by k-means++: with probability proportional to the distance to the nearest row drawn before.

    Each row is the best of a few draws, as in scikit-learn. With single draws, a group often gets no centre.
    """
    rows, draws = prepare(rows, True), 2 + int(np.log(k))

    def draw(distance: Array, key: Array) -> tuple[Array, Array]:
        drawn = rows[jax.random.categorical(key, jnp.log(distance), shape=(draws,))]
        remaining = jnp.minimum(distance, jnp.maximum(1 - jnp.matmul(drawn, rows.T, precision=lax.Precision.HIGHEST), 0))
        best = remaining.sum(axis=1).argmin()
        return remaining[best], drawn[best]

    return lax.scan(draw, jnp.ones(len(rows)), jax.random.split(key, k))[1]


def _assign(vectors: VectorSource, centres: Array | np.ndarray) -> tuple[np.ndarray, np.ndarray, Array]:
    """Return the nearest centre of each row, its cosine, and the sums [K, E] of the rows of each centre."""
    labels, scores = np.zeros(len(vectors), np.int64), np.zeros(len(vectors), np.float32)
    sums = jnp.zeros_like(centres)
    for first, count, rows in blocks(vectors, block_size(CORPUS_BLOCK, len(vectors))):
        nearest, best, sums = _nearest(rows, centres, sums)
        labels[first : first + count], scores[first : first + count] = np.asarray(nearest)[:count], np.asarray(best)[:count]
    check_finite(scores)
    return labels, scores, sums


@functools.partial(jax.jit, donate_argnums=2)
def _nearest(rows: Array, centres: Array, sums: Array) -> tuple[Array, Array, Array]:
    """Return the groups of `rows`, their cosines, and `sums` plus the rows of each group. The number of rows is a power of two."""

    def add(sums: Array, rows: Array) -> tuple[Array, tuple[Array, Array]]:
        scores = jnp.matmul(rows, centres.T, precision=lax.Precision.HIGHEST)
        best = scores.max(axis=1, keepdims=True)
        # The first of the largest, as argmax returns it. XLA does not vectorise argmax on a CPU. NaN is in no group.
        labels = jnp.where(scores == best, jnp.arange(len(centres), dtype=jnp.int32), len(centres)).min(axis=1)
        if jax.default_backend() == "cpu":
            sums = jnp.asarray(sums).at[labels].add(rows)  # rows that pad a block are zero
        else:  # a product, because a scatter-add has no deterministic order on a GPU
            member = (labels == jnp.arange(len(centres))[:, None]).astype(rows.dtype)
            sums = sums + jnp.matmul(member, rows, precision=lax.Precision.HIGHEST)
        return sums, (labels, best[:, 0])

    block = min(len(rows), 1 << (max(SCORES // len(centres), MIN_ROWS).bit_length() - 1))
    sums, parts = lax.scan(add, sums, prepare(rows, True).reshape(-1, block, rows.shape[1]))
    labels, best = (part.reshape(len(rows)) for part in parts)
    return labels, best, sums
