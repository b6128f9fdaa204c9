"""Search exactly, mine pairs and detect communities by cosine. The device holds one block of vectors of fixed shape at a time.

Vectors are arrays [N, E] or any VectorSource, such as `jax_sentemb.Vectors` of a directory on disk. Memory is needed only for the
blocks and the results. Equal scores are ordered by row.
"""

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int, Real

from jax_sentemb.checks import choice, cosine, whole_number
from jax_sentemb.cosines import rounded, unrounded
from jax_sentemb.errors import ConfigError
from jax_sentemb.retrieval import int8_search
from jax_sentemb.retrieval.sources import (
    VectorSource,
    block_size,
    blocks,
    check_finite,
    numbers_of,
    original_rows,
    padded,
    prepare,
    rows_at,
    rows_with_text,
    vectors_of,
)  # fmt: skip
from jax_sentemb.system.host import usable_cpus
from jax_sentemb.types import Array, OnProgress, no_progress

# Rows and columns of a block of scores. Larger blocks are slower, because the system has to map new memory for each of them.
QUERY_BLOCK, CORPUS_BLOCK = 512, 1 << 13
TILE = 1 << 12  # rows and columns of a block of scores between the vectors of one collection
FEW_QUERIES = 8  # up to this number of queries, a CPU reads the corpus in place, without a copy to JAX's memory
STRIP, STRIPS = 1 << 12, 32  # rows of a strip, which fits into a processor's cache; strips that are scored before a sort
CENTRE_BLOCK = 64  # rows whose neighbours are computed at once
Number = int | Int[Array, ""]  # a number of rows, traced in a compiled function
GROUP = 32  # scores in a group; `_largest` first compares the maxima of groups


class Hits(NamedTuple):
    """The results of `search`, best first."""

    indices: Int[np.ndarray, "queries top_k"]  # int64, rows of the corpus
    scores: Float[np.ndarray, "queries top_k"]  # float32


class SimilarPairs(NamedTuple):
    """The results of `mine_pairs`, best first."""

    first: Int[np.ndarray, " pairs"]  # int64, the smaller row number
    second: Int[np.ndarray, " pairs"]  # int64
    scores: Float[np.ndarray, " pairs"]  # float32


class Best(NamedTuple):
    """The best rows of the blocks searched so far, best first."""

    scores: Float[Array, "queries k"]  # float32
    rows: Int[Array, "queries k"]  # int32


def search(
    queries: VectorSource | list,
    corpus: VectorSource | list,
    top_k: int = 10,
    similarity: str = "cosine",
    rescore: int = 4,
    progress: OnProgress = no_progress,
) -> Hits:
    """Find the rows of a corpus that are most similar to each query.

    The search is exact: every row is compared in float32. `Vectors` stored as int8 or uint8 are an exception on a CPU if the
    package numkong (extra `ann`) is installed. Their int8 products select `rescore` * (top_k + 8) rows for each query, and only
    these are compared in float32, so a row with a smaller product is missed.

    Args:
        queries: The queries [Q, E], or a single one [E].
        corpus: The rows to search [N, E].
        top_k: The number of results for a query; all N rows if there are fewer.
        similarity: "cosine" or "dot".
        rescore: If the corpus has int8 or uint8, `rescore` * (top_k + 8) rows are compared in float32 for each query; 0 compares
            all rows.
        progress: Called with the number of blocks that were compared, and with the number of all blocks.

    Returns:
        The row numbers and scores of the results [Q, min(top_k, N)], best first.

    Raises:
        ConfigError: The widths differ, or an argument is out of range.
        NumericsError: A vector is not finite.
    """
    queries, corpus = vectors_of("queries", queries, row=True), vectors_of("corpus", corpus)
    top_k, rescore = whole_number("top_k", top_k, 1), whole_number("rescore", rescore, 0)
    choice("similarity", similarity, ("cosine", "dot"))
    if queries.shape[1] != corpus.shape[1]:
        widths = f"queries have {queries.shape[1]} dimensions, but corpus has {corpus.shape[1]}"
        raise ConfigError(f"{widths}; encode both with the same model")
    corpus, numbers = rows_with_text(corpus)
    unit = similarity == "cosine"
    k = min(top_k, len(corpus))
    if not k or not len(queries):
        return Hits(np.zeros((len(queries), k), np.int64), np.zeros((len(queries), k), np.float32))
    is_cpu = jax.default_backend() == "cpu"
    may_be_int8 = rescore and is_cpu
    if may_be_int8 and isinstance(corpus, int8_search.QuantizedSource) and corpus.is_int8 and int8_search.can_search(corpus, unit):
        prepared = np.asarray(prepare(queries[:], unit))
        scores, rows = int8_search.search_int8(prepared, corpus, k, unit, rescore * (k + 8), progress)
    else:
        search_function = _search_few if len(queries) <= FEW_QUERIES and is_cpu else _search_many
        scores, rows = search_function(queries, corpus, k, unit, progress)
        check_finite(scores)
    return Hits(original_rows(rows.astype(np.int64), numbers), rounded(scores, corpus.shape[1]) if unit else scores)


def _search_many(
    queries: VectorSource, corpus: VectorSource, k: int, unit: bool, progress: OnProgress
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and row numbers of the best rows, [Q, k] each."""
    size, corpus_size = block_size(QUERY_BLOCK, len(queries)), block_size(CORPUS_BLOCK, len(corpus))
    starts = range(0, len(queries), size)
    best = [_no_hits(size, k) for _ in starts]
    done, total = 0, len(starts) * -(-len(corpus) // corpus_size)
    progress(done, total)
    for first, count, block in blocks(corpus, corpus_size, unit):
        for number, start in enumerate(starts):
            prepared = prepare(padded(queries[start : start + size], size), unit)
            best[number] = _merge(prepared, block, first, count, best[number], unit=unit)
            if progress is not no_progress:  # the device computes after the call has returned, so wait for it
                jax.block_until_ready(best[number])
            progress(done := done + 1, total)
    scores, rows = (np.concatenate([np.asarray(part[field]) for part in best])[: len(queries)] for field in (0, 1))
    return scores, rows


def _search_few(
    queries: VectorSource, corpus: VectorSource, k: int, unit: bool, progress: OnProgress
) -> tuple[np.ndarray, np.ndarray]:
    """Search as `_search_many` does, with NumPy. The corpus is read once; copying it to JAX's memory would take twice as long."""
    prepared = np.asarray(prepare(queries[:], unit))

    def compare(start: int) -> np.ndarray:
        rows = numbers_of(corpus[start : start + STRIP], unit).astype(np.float32, copy=False)
        with np.errstate(invalid="ignore", over="ignore"):
            scores = np.vecdot(prepared[:, None], rows)
            if unit:
                scores /= np.maximum(np.sqrt(np.vecdot(rows, rows)), 1e-12)
        return np.where(np.isfinite(scores), scores, np.inf)

    best = _no_hits(len(prepared), k)
    size = block_size(STRIPS * STRIP, len(corpus))
    with ThreadPoolExecutor(usable_cpus()) as threads:
        starts = range(0, len(corpus), size)
        progress(0, len(starts))
        for number, first in enumerate(starts):
            count = min(size, len(corpus) - first)
            scores = np.concatenate(list(threads.map(compare, range(first, first + count, STRIP))), axis=1)
            best = _merge_scores(padded(scores.T, size).T, first, count, best)
            progress(number + 1, len(starts))
    return np.asarray(best.scores), np.asarray(best.rows)


def _no_hits(queries: int, k: int) -> Best:
    """Return the state before the first block."""
    return Best(jnp.full((queries, k), -jnp.inf), jnp.zeros((queries, k), jnp.int32))


def mine_pairs(
    vectors: VectorSource | list,
    top_k: int | None = 100,
    threshold: float | None = None,
    progress: OnProgress = no_progress,
) -> SimilarPairs:
    """Find the most similar pairs among the rows of `vectors`. Every pair is compared.

    Args:
        vectors: The rows [N, E].
        top_k: The number of pairs; None returns all pairs above the threshold, and memory grows with their number.
        threshold: The lowest cosine of a pair.
        progress: Called with the number of blocks of pairs that were compared, and with the number of all blocks.

    Raises:
        ConfigError: Neither `top_k` nor `threshold` is given, or one is out of range.
        NumericsError: A vector is not finite.
    """
    vectors, numbers = rows_with_text(vectors_of("vectors", vectors))
    if top_k is None and threshold is None:
        raise ConfigError("top_k=None: give a number of pairs, or a threshold")
    top_k = None if top_k is None else whole_number("top_k", top_k, 1)
    threshold = None if threshold is None else cosine("threshold", threshold)
    pairs = SimilarPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    lowest = np.float32(-2 if threshold is None else unrounded(threshold, vectors.shape[1]))
    for left, right, scores, best in tiles(vectors, progress):
        best = np.asarray(best)
        check_finite(best)
        if top_k is not None:
            # The earlier pairs and the best pairs of these rows are different pairs. So the k-th best of both together is a lower
            # bound for the k-th best of all pairs.
            known = np.concatenate([pairs.scores, best])
            lowest = max(lowest, np.partition(known, -top_k)[-top_k]) if len(known) >= top_k else lowest
        rows = np.flatnonzero(best >= lowest)
        if not len(rows):
            continue
        part = np.asarray(_rows(scores, padded(rows, block_size(TILE, len(rows)))))[: len(rows)]
        entries = np.nonzero(part >= lowest)
        new = SimilarPairs(left + rows[entries[0]], right + entries[1], part[entries])
        pairs = SimilarPairs(*(np.concatenate(fields) for fields in zip(pairs, new, strict=True)))
        if top_k is not None and len(pairs.scores) > top_k:
            pairs = _sorted(pairs, top_k)
    pairs = _sorted(pairs, top_k)
    first, second = original_rows(pairs.first, numbers), original_rows(pairs.second, numbers)
    return SimilarPairs(first, second, rounded(pairs.scores, vectors.shape[1]))


def community_detection(
    vectors: VectorSource | list, threshold: float = 0.75, min_community_size: int = 10, progress: OnProgress = no_progress
) -> list[list[int]]:
    """Group the rows of `vectors` that are near a central row, as the function of this name in sentence-transformers does.

    Rows are visited by their number of neighbours, the largest first. A row without a group forms a group with its neighbours
    that have no group either, if these are enough. A row is in one group or in none.

    Args:
        vectors: The rows [N, E].
        threshold: The lowest cosine of a row with the central row of its group.
        min_community_size: The smallest number of rows of a group.
        progress: Called with the number of blocks of pairs that were compared, and with the number of all blocks; then again from 0
            while the groups are formed.

    Returns:
        The row numbers of each group, the largest group first; the central row of a group first.

    Raises:
        ConfigError: An argument is out of range.
        NumericsError: A vector is not finite.
    """
    vectors, numbers = rows_with_text(vectors_of("vectors", vectors))
    threshold = unrounded(cosine("threshold", threshold), vectors.shape[1])
    min_community_size = whole_number("min_community_size", min_community_size, 1)
    counts = np.ones(len(vectors), np.int64)  # each row is its own neighbour
    for left, right, scores, best in tiles(vectors, progress):
        check_finite(np.asarray(best))
        for start, neighbours in zip((left, right), _counts(scores, threshold), strict=True):
            part = counts[start : start + len(neighbours)]
            part += np.asarray(neighbours)[: len(part)]
    order = np.argsort(-counts, kind="stable")
    remaining = order[counts[order] >= min_community_size]
    used = np.zeros(len(vectors), bool)
    groups: list[list[int]] = []
    total = len(remaining)
    while len(remaining := remaining[~used[remaining]]):
        progress(total - len(remaining), total)
        centres, remaining = remaining[:CENTRE_BLOCK], remaining[CENTRE_BLOCK:]
        for centre, (rows, scores) in zip(centres.tolist(), _neighbours(vectors, centres, threshold), strict=True):
            if used[centre]:
                continue
            free = (~used[rows]) & (rows != centre)
            rows = rows[free][np.lexsort((rows[free], -scores[free]))]
            if len(rows) + 1 >= min_community_size:
                groups.append([centre, *rows.tolist()])
                used[groups[-1]] = True
    return [original_rows(np.array(group), numbers).tolist() for group in sorted(groups, key=len, reverse=True)]


def _scores(left: Array, right: Array, unit: bool = True) -> Array:
    """Return the products of all rows, divided by the lengths of the right rows if `unit`. Those not finite become Inf."""
    right = right.astype(jnp.float32)
    scores = jnp.matmul(left, right.T, precision=lax.Precision.HIGHEST)
    if unit:  # dividing the scores avoids a copy of the rows
        scores = scores / jnp.maximum(jnp.linalg.norm(right, axis=1), 1e-12)
    return jnp.where(jnp.isfinite(scores), scores, jnp.inf)


@functools.partial(jax.jit, static_argnames="unit", donate_argnums=4)
def _merge(queries: Array, block: Array, first: Number, count: Number, best: Best, unit: bool) -> Best:
    """Return the best rows after a block. Its first row has the number `first`, and `count` of its rows are not padding."""
    return _merge_scores(_scores(queries, block, unit), first, count, best)


@jax.jit
def _merge_scores(block: Array, first: Number, count: Number, best: Best) -> Best:
    """Merge the scores of a block. Rows of earlier blocks come first, so equal scores are ordered by row."""
    k = best.scores.shape[1]
    is_real = jnp.arange(block.shape[1]) < count
    new, columns = _largest(jnp.where(is_real, block, -jnp.inf), min(k, block.shape[1]))
    scores, order = lax.top_k(jnp.concatenate([best.scores, new], axis=1), k)
    return Best(scores, jnp.take_along_axis(jnp.concatenate([best.rows, columns + first], axis=1), order, axis=1))


def _largest(scores: Array, k: int) -> tuple[Array, Array]:
    """Return what `lax.top_k` returns, with less to sort: the k largest scores are in the k groups with the largest maxima."""
    rows, columns = scores.shape
    if columns % GROUP or columns // GROUP <= k:
        largest, indices = lax.top_k(scores, k)
        return largest, indices
    groups = scores.reshape(rows, -1, GROUP)
    chosen = jnp.sort(lax.top_k(groups.max(-1), k)[1])  # sorted, so the first of equal scores comes first
    in_groups = jnp.take_along_axis(groups, chosen[..., None], axis=1).reshape(rows, -1)
    largest, indices = lax.top_k(in_groups, k)
    return largest, jnp.take_along_axis(chosen, indices // GROUP, axis=1) * GROUP + indices % GROUP


def tiles(vectors: VectorSource, progress: OnProgress = no_progress) -> Iterator[tuple[int, int, Array, Array]]:
    """Yield blocks of scores that together contain each pair of different rows once. All other entries are -inf.

    A block is its first row, its first column, its scores, and the largest score of each row, Inf for a row that is not finite. The
    device computes the next block while the caller reads this one. `progress` is called with the number of blocks that were read
    and with the number of all blocks.
    """
    size = block_size(TILE, len(vectors))
    blocks_of_rows = -(-len(vectors) // size)
    done, total = 0, blocks_of_rows * (blocks_of_rows + 1) // 2
    previous = None
    progress(done, total)
    for left, _, rows in blocks(vectors, size):
        rows = prepare(rows, True)
        for start, count, columns in blocks(_Tail(vectors, left), size):
            tile = (left, left + start, *_tile(rows, columns, left, left + start, count))
            if previous:
                yield previous
                done += 1
                progress(done, total)
            previous = tile
    if previous:
        yield previous
    progress(total, total)


class _Tail:
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
    column = jnp.arange(len(columns))
    is_pair = (column < count) & (right + column > left + jnp.arange(len(rows))[:, None])
    scores = jnp.where(is_pair, _scores(rows, columns), -jnp.inf)
    best = jnp.where(jnp.isfinite(rows).all(axis=1), scores.max(axis=1), jnp.inf)  # a row may be in no pair
    return scores, best


@jax.jit
def _rows(scores: Array, rows: Array) -> Array:
    return scores[rows]


@jax.jit
def _counts(scores: Array, threshold: Real[Array, ""] | float) -> tuple[Array, Array]:
    is_near = scores >= threshold
    return is_near.sum(axis=1), is_near.sum(axis=0)


def _neighbours(vectors: VectorSource, centres: np.ndarray, threshold: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows near each centre, and their cosines."""
    prepared = prepare(padded(rows_at(vectors, centres), CENTRE_BLOCK), True)
    neighbours: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in centres]
    for first, count, block in blocks(vectors, block_size(CORPUS_BLOCK, len(vectors))):
        scores = np.asarray(_compiled_scores(prepared, block))[: len(centres), :count]
        for parts, row in zip(neighbours, scores, strict=True):
            near = np.flatnonzero(row >= threshold)
            parts.append((first + near, row[near]))
    return [
        (np.concatenate([rows for rows, _ in parts]), np.concatenate([cosines for _, cosines in parts])) for parts in neighbours
    ]


_compiled_scores = jax.jit(_scores)


def _sorted(pairs: SimilarPairs, top_k: int | None) -> SimilarPairs:
    order = np.lexsort((pairs.second, pairs.first, -pairs.scores))[:top_k]
    return SimilarPairs(*(field[order] for field in pairs))
