"""Exact search, pair mining and community detection by cosine. The device holds one block of vectors of fixed shape at a time.

Vectors are arrays [N, E] or any VectorSource, such as `jax_sentemb.Vectors` of a directory on disk. Memory is needed for the blocks
and the results only. Equal scores are ordered by row.
"""

import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int, Real

from jax_sentemb.checks import choice, finite_number, whole_number
from jax_sentemb.cosines import rounded, unrounded
from jax_sentemb.errors import ConfigError
from jax_sentemb.retrieval import int8_search
from jax_sentemb.retrieval.sources import (
    VectorSource,
    block_size,
    blocks,
    check_finite,
    numbered,
    numbers_of,
    padded,
    prepare,
    rows_at,
    rows_with_text,
    vectors_of,
)  # fmt: skip
from jax_sentemb.types import Array

QUERIES, CORPUS = 512, 1 << 13  # rows and columns of a block of scores; larger blocks are slower, as their memory is newly mapped
TILE = 1 << 12  # rows and columns of a block of scores between the vectors of one collection
FEW = 8  # largest number of queries for which a CPU reads the corpus in place, without a copy to JAX's memory
STRIP, STRIPS = 1 << 12, 32  # rows of a strip, which fits into a processor's cache; strips that are scored before a sort
CENTRES = 64  # rows whose neighbours are computed at once
Number = int | Int[Array, ""]  # a number of rows, traced in a compiled function
GROUP = 32  # scores in a group; `_largest` first compares the maxima of groups


class Hits(NamedTuple):
    """Results of `search`, best first."""

    indices: Int[np.ndarray, "queries top_k"]  # int64, rows of the corpus
    scores: Float[np.ndarray, "queries top_k"]  # float32


class SimilarPairs(NamedTuple):
    """Results of `mine_pairs`, best first."""

    first: Int[np.ndarray, " pairs"]  # int64, the smaller row number
    second: Int[np.ndarray, " pairs"]  # int64
    scores: Float[np.ndarray, " pairs"]  # float32


class Best(NamedTuple):
    """The best rows of the blocks searched so far, best first."""

    scores: Float[Array, "queries k"]  # float32
    rows: Int[Array, "queries k"]  # int32


def search(
    queries: VectorSource | list, corpus: VectorSource | list, top_k: int = 10, similarity: str = "cosine", rescore: int = 4
) -> Hits:
    """The `top_k` rows of `corpus` [N, E] that are most similar to each row of `queries` [Q, E]; all rows if there are fewer.

    `similarity` is cosine or dot. The search is exact: every row is compared, in float32. On a CPU with the package numkong (extra
    `ann`), `Vectors` stored as int8 or uint8 are compared as such, and `rescore` * (top_k + 8) rows a query are compared again in
    float32: a row is missed if its int8 product is not among them. rescore=0 compares all in float32. ConfigError for shapes that
    do not match, NumericsError for vectors that are not finite.
    """
    queries, corpus = vectors_of("queries", queries, row=True), vectors_of("corpus", corpus)
    top_k, rescore = whole_number("top_k", top_k, 1), whole_number("rescore", rescore, 0)
    choice("similarity", similarity, ("cosine", "dot"))
    if queries.shape[1] != corpus.shape[1]:
        raise ConfigError(f"queries {list(queries.shape)} and corpus {list(corpus.shape)} are not vectors of the same width")
    corpus, numbers = rows_with_text(corpus)
    unit = similarity == "cosine"
    kept = min(top_k, len(corpus))
    if not kept or not len(queries):
        return Hits(np.zeros((len(queries), kept), np.int64), np.zeros((len(queries), kept), np.float32))
    on_cpu = rescore and jax.default_backend() == "cpu"
    if on_cpu and isinstance(corpus, int8_search.QuantizedSource) and corpus.is_int8 and int8_search.can_search(corpus, unit):
        asked = np.asarray(prepare(queries[:], unit))
        scores, rows = int8_search.search_int8(asked, corpus, kept, unit, rescore * (kept + 8))
    else:
        few = len(queries) <= FEW and jax.default_backend() == "cpu"
        scores, rows = (_search_few if few else _search_many)(queries, corpus, kept, unit)
        check_finite(scores)
    return Hits(numbered(rows.astype(np.int64), numbers), rounded(scores, corpus.shape[1]) if unit else scores)


def _search_many(queries: VectorSource, corpus: VectorSource, kept: int, unit: bool) -> tuple[np.ndarray, np.ndarray]:
    """Scores and row numbers of the best rows, [Q, kept] each."""
    few = block_size(QUERIES, len(queries))
    starts = range(0, len(queries), few)
    best = [_nothing(few, kept) for _ in starts]
    for first, count, block in blocks(corpus, block_size(CORPUS, len(corpus)), unit):
        for place, start in enumerate(starts):
            asked = prepare(padded(queries[start : start + few], few), unit)
            best[place] = _merge(asked, block, first, count, best[place], unit=unit)
    scores, rows = (np.concatenate([np.asarray(part[side]) for part in best])[: len(queries)] for side in (0, 1))
    return scores, rows


def _search_few(queries: VectorSource, corpus: VectorSource, kept: int, unit: bool) -> tuple[np.ndarray, np.ndarray]:
    """Same as `_search_many`, with NumPy. It reads the corpus once; copying it to JAX's memory would take twice as long."""
    asked = np.asarray(prepare(queries[:], unit))

    def compare(start: int) -> np.ndarray:
        rows = numbers_of(corpus[start : start + STRIP], unit).astype(np.float32, copy=False)
        with np.errstate(invalid="ignore", over="ignore"):
            scores = np.vecdot(asked[:, None], rows)
            if unit:
                scores /= np.maximum(np.sqrt(np.vecdot(rows, rows)), 1e-12)
        return np.where(np.isnan(scores), np.inf, scores)

    best = _nothing(len(asked), kept)
    size = block_size(STRIPS * STRIP, len(corpus))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for first in range(0, len(corpus), size):
            count = min(size, len(corpus) - first)
            scores = np.concatenate(list(threads.map(compare, range(first, first + count, STRIP))), axis=1)
            best = _keep(padded(scores.T, size).T, first, count, best)
    return np.asarray(best.scores), np.asarray(best.rows)


def _nothing(queries: int, kept: int) -> Best:
    """The state before the first block."""
    return Best(jnp.full((queries, kept), -jnp.inf), jnp.zeros((queries, kept), jnp.int32))


def mine_pairs(vectors: VectorSource | list, top_k: int | None = 100, threshold: float | None = None) -> SimilarPairs:
    """The `top_k` most similar pairs among the rows of `vectors` [N, E] with a cosine of `threshold` or more.

    The search is exact: every pair is compared. top_k=None returns all pairs above the threshold; memory grows with their number.
    ConfigError without a positive `top_k` or a threshold, NumericsError for vectors that are not finite.
    """
    vectors, numbers = rows_with_text(vectors_of("vectors", vectors))
    if top_k is None and threshold is None:
        raise ConfigError("top_k=None: give a number of pairs, or a threshold")
    top_k = None if top_k is None else whole_number("top_k", top_k, 1)
    threshold = None if threshold is None else finite_number("threshold", threshold)
    found = SimilarPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    least = np.float32(-2 if threshold is None else unrounded(threshold, vectors.shape[1]))
    for left, right, scores, best in _tiles(vectors):
        best = np.asarray(best)
        check_finite(best)
        if top_k is not None:
            # The pairs found so far and the best pairs of these rows are different pairs, so the k-th best of both together is a
            # lower bound for the k-th best of all pairs.
            known = np.concatenate([found.scores, best])
            least = max(least, np.partition(known, -top_k)[-top_k]) if len(known) >= top_k else least
        rows = np.flatnonzero(best >= least)
        if not len(rows):
            continue
        part = np.asarray(_rows(scores, padded(rows, block_size(TILE, len(rows)))))[: len(rows)]
        places = np.nonzero(part >= least)
        new = SimilarPairs(left + rows[places[0]], right + places[1], part[places])
        found = SimilarPairs(*(np.concatenate(sides) for sides in zip(found, new, strict=True)))
        if top_k is not None and len(found.scores) > top_k:
            found = _sorted(found, top_k)
    found = _sorted(found, top_k)
    first, second = numbered(found.first, numbers), numbered(found.second, numbers)
    return SimilarPairs(first, second, rounded(found.scores, vectors.shape[1]))


def community_detection(vectors: VectorSource | list, threshold: float = 0.75, min_community_size: int = 10) -> list[list[int]]:
    """Groups of rows of `vectors` [N, E] with a cosine of `threshold` or more to the first row of the group; largest group first.

    Same as the function of this name in sentence-transformers: rows are visited by their number of neighbours, the largest first. A
    row without a group forms one with its neighbours without a group, if these are enough. A row is in one group or in none.
    ConfigError for a size below 1, NumericsError for vectors that are not finite.
    """
    vectors, numbers = rows_with_text(vectors_of("vectors", vectors))
    threshold = unrounded(finite_number("threshold", threshold), vectors.shape[1])
    min_community_size = whole_number("min_community_size", min_community_size, 1)
    counts = np.ones(len(vectors), np.int64)  # each row is its own neighbour
    for left, right, scores, best in _tiles(vectors):
        check_finite(np.asarray(best))
        for start, found in zip((left, right), _counts(scores, threshold), strict=True):
            part = counts[start : start + len(found)]
            part += np.asarray(found)[: len(part)]
    order = np.argsort(-counts, kind="stable")
    waiting = order[counts[order] >= min_community_size]
    used = np.zeros(len(vectors), bool)
    groups: list[list[int]] = []
    while len(waiting := waiting[~used[waiting]]):
        centres, waiting = waiting[:CENTRES], waiting[CENTRES:]
        for centre, (rows, scores) in zip(centres.tolist(), _neighbours(vectors, centres, threshold), strict=True):
            if used[centre]:
                continue
            free = (~used[rows]) & (rows != centre)
            rows = rows[free][np.lexsort((rows[free], -scores[free]))]
            if len(rows) + 1 >= min_community_size:
                groups.append([centre, *rows.tolist()])
                used[groups[-1]] = True
    return [numbered(np.array(group), numbers).tolist() for group in sorted(groups, key=len, reverse=True)]


def _scores(left: Array, right: Array, unit: bool = True) -> Array:
    """Products of all rows, divided by the lengths of the right rows if `unit`. NaN becomes Inf, because sorting drops NaN."""
    right = right.astype(jnp.float32)
    scores = jnp.matmul(left, right.T, precision=lax.Precision.HIGHEST)
    if unit:  # dividing the scores avoids a copy of the rows
        scores = scores / jnp.maximum(jnp.linalg.norm(right, axis=1), 1e-12)
    return jnp.where(jnp.isnan(scores), jnp.inf, scores)


@functools.partial(jax.jit, static_argnames="unit", donate_argnums=4)
def _merge(queries: Array, block: Array, first: Number, count: Number, best: Best, unit: bool) -> Best:
    """The best rows after a block. Its first row has number `first`, and `count` of its rows are not padding."""
    return _keep(_scores(queries, block, unit), first, count, best)


@jax.jit
def _keep(block: Array, first: Number, count: Number, best: Best) -> Best:
    """Same as `_merge`, from the scores of the block. Rows of earlier blocks come first, so equal scores are ordered by row."""
    kept = best.scores.shape[1]
    real = jnp.arange(block.shape[1]) < count
    new, places = _largest(jnp.where(real, block, -jnp.inf), min(kept, block.shape[1]))
    scores, order = lax.top_k(jnp.concatenate([best.scores, new], axis=1), kept)
    return Best(scores, jnp.take_along_axis(jnp.concatenate([best.rows, places + first], axis=1), order, axis=1))


def _largest(scores: Array, kept: int) -> tuple[Array, Array]:
    """Same as `lax.top_k`, with less to sort: the k largest scores are in the k groups with the largest maxima."""
    rows, columns = scores.shape
    if columns % GROUP or columns // GROUP <= kept:
        found, places = lax.top_k(scores, kept)
        return found, places
    groups = scores.reshape(rows, -1, GROUP)
    chosen = jnp.sort(lax.top_k(groups.max(-1), kept)[1])  # in order of place, so the first of equal scores is kept
    within = jnp.take_along_axis(groups, chosen[..., None], axis=1).reshape(rows, -1)
    found, places = lax.top_k(within, kept)
    return found, jnp.take_along_axis(chosen, places // GROUP, axis=1) * GROUP + places % GROUP


def _tiles(vectors: VectorSource) -> Iterator[tuple[int, int, Array, Array]]:
    """(first row, first column, scores, largest score of each row) of blocks that contain each pair of different rows once.

    All other entries are -inf. The device computes the next block while the caller reads this one.
    """
    size = block_size(TILE, len(vectors))
    coming = None
    for left, _, rows in blocks(vectors, size):
        rows = prepare(rows, True)
        for start, count, columns in blocks(_From(vectors, left), size):
            tile = (left, left + start, *_tile(rows, columns, left, left + start, count))
            if coming:
                yield coming
            coming = tile
    if coming:
        yield coming


class _From:
    """Vectors without their first rows."""

    def __init__(self, vectors: VectorSource, start: int) -> None:
        self.vectors, self.start = vectors, start
        self.shape = (len(vectors) - start, *vectors.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.vectors[rows.start + self.start : rows.stop + self.start]


@jax.jit
def _tile(rows: Array, columns: Array, left: Number, right: Number, count: Number) -> tuple[Array, Array]:
    place = jnp.arange(len(columns))
    wanted = (place < count) & (right + place > left + jnp.arange(len(rows))[:, None])
    scores = jnp.where(wanted, _scores(rows, columns), -jnp.inf)
    return scores, scores.max(axis=1)


@jax.jit
def _rows(scores: Array, rows: Array) -> Array:
    return scores[rows]


@jax.jit
def _counts(scores: Array, threshold: Real[Array, ""] | float) -> tuple[Array, Array]:
    near = scores >= threshold
    return near.sum(axis=1), near.sum(axis=0)


def _neighbours(vectors: VectorSource, centres: np.ndarray, threshold: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows near each centre, and their cosines."""
    asked = prepare(padded(rows_at(vectors, centres), CENTRES), True)
    found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in centres]
    for first, count, block in blocks(vectors, block_size(CORPUS, len(vectors))):
        scores = np.asarray(_near(asked, block))[: len(centres), :count]
        for place, row in enumerate(scores):
            near = np.flatnonzero(row >= threshold)
            found[place].append((first + near, row[near]))
    return [(np.concatenate([rows for rows, _ in parts]), np.concatenate([cosines for _, cosines in parts])) for parts in found]


_near = jax.jit(_scores)


def _sorted(pairs: SimilarPairs, top_k: int | None) -> SimilarPairs:
    order = np.lexsort((pairs.second, pairs.first, -pairs.scores))[:top_k]
    return SimilarPairs(*(side[order] for side in pairs))
