"""Search vectors of one byte per number: int8 products of all rows give candidates, whose cosines are then computed in float32.

The numkong package computes the products with the int8 instructions of a CPU, such as VNNI. The corpus is read as it is stored,
which takes a quarter of the memory traffic of float32.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, Real

from jax_sentemb.cosines import LONGEST, SHORTEST, unit_length
from jax_sentemb.errors import NumericsError
from jax_sentemb.retrieval.quantize import quantization_steps
from jax_sentemb.system.host import usable_cpus
from jax_sentemb.types import OnProgress, no_progress

PRODUCTS, LARGEST_BLOCK = 1 << 18, 1 << 15  # int32 products that fit into a core's cache; rows that are compared at once
QUERY_BLOCK = 256  # queries that are compared in one pass over the corpus
LARGEST = 127  # largest number in an int8 query
POOL_FACTOR = 2  # candidates are reduced when there are this many times `count` of them; each reduction raises the threshold


@runtime_checkable
class QuantizedSource(Protocol):
    """Vectors [N, E] that may be stored as int8 or uint8, such as `jax_sentemb.Vectors` of `encode --precision int8`."""

    ranges: Any  # float32 [2, E] if `is_int8`

    @property
    def is_int8(self) -> bool:
        """Return whether the vectors are stored as int8 or uint8."""
        ...

    @property
    def lengths(self) -> Float[np.ndarray, " rows"]:
        """Return the length of each row."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape [N, E]."""
        ...

    def __len__(self) -> int: ...

    def stored(self, rows: slice, /) -> Real[np.ndarray, "n width"]:
        """Return the rows of a slice as they are stored."""
        ...

    def take(self, rows: Int[np.ndarray, " n"], /) -> Float[np.ndarray, "n width"]:
        """Return the rows with these numbers as float32."""
        ...


class Pool(NamedTuple):
    """Candidates for some queries: query number, row number and score of each."""

    query: Int[np.ndarray, " n"]
    row: Int[np.ndarray, " n"]
    score: Float[np.ndarray, " n"]


class Products(NamedTuple):
    """Int8 queries, and the terms that turn products into approximate scores: (product * scale + constant) / length of the row."""

    packed: Any  # the int8 queries, as numkong reads them
    scale: Float[np.ndarray, " queries"]  # float64
    constant: Float[np.ndarray, " queries"]  # float64


def can_search(corpus: QuantizedSource, unit: bool) -> bool:
    """Return whether numkong is installed and, for cosines, no row is extremely long or short."""
    if not is_available():
        return False
    lengths = corpus.lengths if unit else np.zeros(0)
    return bool(((lengths == 0) | ((lengths > SHORTEST**0.5) & (lengths < LONGEST**0.5))).all())


def is_available() -> bool:
    """Return whether numkong is installed."""
    try:
        import numkong  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False
    return True


def search_int8(
    queries: Float[np.ndarray, "queries width"],
    corpus: QuantizedSource,
    k: int,
    unit: bool,
    candidates: int,
    progress: OnProgress = no_progress,
) -> tuple[Float[np.ndarray, "queries k"], Int[np.ndarray, "queries k"]]:
    """Find the rows of a corpus that are most similar to each query.

    Args:
        queries: The queries [Q, E], float32. They have length 1 if `unit`.
        corpus: The rows to search [N, E].
        k: The number of results for a query.
        unit: Whether to score by cosine instead of the dot product.
        candidates: The number of rows that are scored again in float32 for each query. More candidates miss fewer rows.
        progress: Called with the number of products of a query and a row that were computed, and with the number of all.

    Returns:
        Scores (float32) of the restored rows and row numbers (int64), [Q, k] each, best first.

    Raises:
        NumericsError: A query is not finite.
    """
    if not np.isfinite(queries).all():
        raise NumericsError("some of the vectors are not finite (NaN or Inf)")
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    report = _Report(progress, len(queries) * len(corpus))
    for start in range(0, len(queries), QUERY_BLOCK):
        part = queries[start : start + QUERY_BLOCK]
        part_candidates = _candidates(part, corpus, min(max(candidates, k), len(corpus)), unit, report)
        scores[start : start + len(part)], rows[start : start + len(part)] = _rescore(part, corpus, part_candidates, k, unit)
    return scores, rows


class _Report:
    """Adds up what the threads have finished, and reports the sum."""

    def __init__(self, progress: OnProgress, total: int) -> None:
        self._progress, self._total, self._done, self._lock = progress, total, 0, threading.Lock()
        progress(0, total)

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._progress(self._done, self._total)


def _candidates(
    queries: np.ndarray, corpus: QuantizedSource, count: int, unit: bool, report: _Report
) -> Int[np.ndarray, "queries count"]:
    """Return the `count` rows with the best approximate scores for each query."""
    products = _products(queries, corpus.ranges)
    lengths = corpus.lengths if unit else np.ones(len(corpus), np.float32)
    threads = usable_cpus()
    block = min(1 << (PRODUCTS // len(queries)).bit_length() - 1, LARGEST_BLOCK)
    span_size = -(-len(corpus) // (threads * block)) * block
    spans = [range(first, min(first + span_size, len(corpus)), block) for first in range(0, len(corpus), span_size)]
    with ThreadPoolExecutor(threads) as executor:
        parts = list(executor.map(lambda span: _best_of_span(products, corpus, lengths, span, count, report), spans))
    pool = Pool(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))
    return _best(pool, count).row.reshape(len(queries), count)


def _products(queries: np.ndarray, ranges: np.ndarray) -> Products:
    """Return the queries as int8.

    A row is low + step * level, so a score is (query * step) . level + query . low. The first factor is rounded to int8.
    """
    import numkong  # pyright: ignore[reportMissingImports]

    low, step = quantization_steps(ranges)
    step = np.where(ranges[0] == ranges[1], np.float32(0), step)  # a constant would take nearly all of the 8 bits
    low = low + 128 * step  # int8 levels begin at -128
    weights = queries * step
    scale = np.maximum(np.abs(weights).max(axis=1), np.finfo(np.float32).tiny) / LARGEST
    rounded = np.ascontiguousarray(np.rint(weights / scale[:, None]).astype(np.int8))
    return Products(numkong.dots_pack(rounded), scale.astype(np.float64), (queries @ low).astype(np.float64))


def _best_of_span(
    products: Products, corpus: QuantizedSource, lengths: np.ndarray, span: range, count: int, report: _Report
) -> Pool:
    """Return the best `count` rows for each query among the rows of a span, which are read block by block.

    Products are compared with the smallest product that can be among the best, so nearly all are dropped without being scored.
    """
    import numkong  # pyright: ignore[reportMissingImports]

    queries = len(products.scale)
    best, lowest = Pool(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float64)), np.full(queries, -np.inf)
    buffer = numkong.zeros((span.step, queries), dtype="int32")
    for start in span:
        rows = slice(start, min(start + span.step, span.stop))
        levels, row_lengths = _as_int8(corpus.stored(rows)), np.maximum(lengths[rows], 1e-12)
        block = np.asarray(numkong.dots_packed(levels, products.packed, out=buffer if len(levels) == span.step else None))
        if start == span.start and len(block) > count:
            scores = (block * products.scale + products.constant) / row_lengths[:, None]
            lowest = np.partition(scores, len(block) - count, axis=0)[len(block) - count]
        bounds = np.minimum(lowest * row_lengths.min(), lowest * row_lengths.max())
        needed = np.maximum((bounds - products.constant) / products.scale, -(2.0**31))
        smallest_product = np.clip(np.floor(needed), -(2**31), 2**31 - 1).astype(np.int32)
        index = np.flatnonzero(block >= smallest_product)
        row, query = index // queries, index % queries
        score = (block[row, query] * products.scale[query] + products.constant[query]) / row_lengths[row]
        is_candidate = score >= lowest[query]
        new = Pool(query[is_candidate], row[is_candidate] + start, score[is_candidate])
        best = Pool(*(np.concatenate(fields) for fields in zip(best, new, strict=True)))
        if len(best.row) > POOL_FACTOR * count * queries:
            best = _best(best, count)
            lowest = _raise_lowest(lowest, best, count)
        report.add(block.size)
    return _best(best, count)


def _best(pool: Pool, count: int) -> Pool:
    """Return the best `count` candidates of each query, ordered by query, best first."""
    order = np.lexsort((pool.row, -pool.score, pool.query))
    query = pool.query[order]
    first = np.searchsorted(query, query, side="left")
    order = order[np.arange(len(order)) - first < count]
    return Pool(*(field[order] for field in pool))


def _raise_lowest(lowest: np.ndarray, best: Pool, count: int) -> np.ndarray:
    """Return the score that a new candidate of each query needs: the lowest in `best`, if the query has `count` candidates."""
    lowest = lowest.copy()
    queries, starts, counts = np.unique(best.query, return_index=True, return_counts=True)
    is_full = counts == count
    lowest[queries[is_full]] = best.score[starts[is_full] + count - 1]
    return lowest


def _rescore(queries: np.ndarray, corpus: QuantizedSource, rows: np.ndarray, k: int, unit: bool) -> tuple[np.ndarray, np.ndarray]:
    """Score the candidates [Q, C] in float32 and return scores and row numbers of the best `k`."""
    unique_rows, index = np.unique(rows, return_inverse=True)
    vectors = corpus.take(unique_rows)
    vectors = unit_length(vectors) if unit else vectors
    scores = np.einsum("qe,qce->qc", queries, vectors[index.reshape(rows.shape)])
    order = np.lexsort((rows, -scores), axis=-1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def _as_int8(levels: np.ndarray) -> np.ndarray:
    """Return uint8 levels minus 128 as int8, and int8 levels unchanged."""
    levels = np.ascontiguousarray(levels)
    return levels if levels.dtype == np.int8 else (levels ^ np.uint8(128)).view(np.int8)
