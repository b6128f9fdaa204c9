"""Search in vectors of one byte a number: int8 products of all rows find candidates, whose cosines are then computed in float32.

The product is that of the numkong package, which uses the int8 instructions of a CPU (VNNI and the like). The corpus is read as it
is stored: a quarter of the memory traffic of float32.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, Real

from jax_sentemb.cosines import LONGEST, SHORTEST, unit_length
from jax_sentemb.errors import NumericsError
from jax_sentemb.retrieval.quantize import quantization_steps

PRODUCTS, LARGEST_BLOCK = 1 << 18, 1 << 15  # int32 products that fit a core's cache; rows that are compared at once
QUERIES = 256  # queries that are compared in one pass over the corpus
LARGEST = 127  # of an int8 query
POOL = 2  # candidates are cut when they are this many times as many as will be kept; each cut raises what is needed


@runtime_checkable
class QuantizedSource(Protocol):
    """Vectors [N, E] that may be stored as int8 or uint8, such as `jax_sentemb.Vectors` of `encode --precision int8`."""

    ranges: Any  # float32 [2, E] if `is_int8`

    @property
    def is_int8(self) -> bool: ...

    @property
    def lengths(self) -> Float[np.ndarray, " rows"]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def stored(self, rows: slice, /) -> Real[np.ndarray, "n width"]: ...

    def take(self, rows: Int[np.ndarray, " n"], /) -> Float[np.ndarray, "n width"]: ...


class Pool(NamedTuple):
    """Candidates of some queries."""

    query: Int[np.ndarray, " n"]
    row: Int[np.ndarray, " n"]
    score: Float[np.ndarray, " n"]


class Products(NamedTuple):
    """Int8 queries, and the terms that turn products into approximate scores: (product * scale + constant) / length of the row."""

    packed: Any  # the int8 queries, as numkong reads them
    scale: Float[np.ndarray, " queries"]  # float64
    constant: Float[np.ndarray, " queries"]  # float64


def can_search(corpus: QuantizedSource, unit: bool) -> bool:
    """Return whether the package with the product is installed and, for cosines, no row is extremely long or short."""
    if not is_available():
        return False
    lengths = corpus.lengths if unit else np.zeros(0)
    return bool(((lengths == 0) | ((lengths > SHORTEST**0.5) & (lengths < LONGEST**0.5))).all())


def is_available() -> bool:
    """Whether the package with the product is installed."""
    try:
        import numkong  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False
    return True


def search_int8(
    queries: Float[np.ndarray, "queries width"], corpus: QuantizedSource, kept: int, unit: bool, candidates: int
) -> tuple[Float[np.ndarray, "queries kept"], Int[np.ndarray, "queries kept"]]:
    """Scores (float32) and row numbers (int64) of the best rows, best first.

    `queries` float32, of length 1 if `unit` (cosine). `candidates` rows a query are rescored: with more of them fewer of the best
    rows are missed. Scores are those of the restored rows in float32. NumericsError for queries that are not finite.
    """
    if not np.isfinite(queries).all():
        raise NumericsError("some of the vectors are not finite (NaN or Inf)")
    scores, rows = np.empty((len(queries), kept), np.float32), np.empty((len(queries), kept), np.int64)
    for start in range(0, len(queries), QUERIES):
        part = queries[start : start + QUERIES]
        found = _candidates(part, corpus, min(max(candidates, kept), len(corpus)), unit)
        scores[start : start + len(part)], rows[start : start + len(part)] = _rescored(part, corpus, found, kept, unit)
    return scores, rows


def _candidates(queries: np.ndarray, corpus: QuantizedSource, count: int, unit: bool) -> Int[np.ndarray, "queries count"]:
    """The `count` rows with the best approximate scores, for each query."""
    products = _products(queries, corpus.ranges)
    lengths = corpus.lengths if unit else np.ones(len(corpus), np.float32)
    threads = os.cpu_count() or 1
    block = min(1 << (PRODUCTS // len(queries)).bit_length() - 1, LARGEST_BLOCK)
    share = -(-len(corpus) // (threads * block)) * block
    spans = [range(first, min(first + share, len(corpus)), block) for first in range(0, len(corpus), share)]
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(lambda span: _best_of_span(products, corpus, lengths, span, count), spans))
    together = Pool(*(np.concatenate(sides) for sides in zip(*parts, strict=True)))
    return _best(together, count).row.reshape(len(queries), count)


def _products(queries: np.ndarray, ranges: np.ndarray) -> Products:
    """A row is low + step * level, so a score is (query * step) . level + query . low; the first factor is rounded to int8."""
    import numkong  # pyright: ignore[reportMissingImports]

    low, step = quantization_steps(ranges)
    low = low + 128 * step  # levels as int8: from -128 on
    weights = queries * step
    scale = np.maximum(np.abs(weights).max(axis=1), np.finfo(np.float32).tiny) / LARGEST
    rounded = np.ascontiguousarray(np.rint(weights / scale[:, None]).astype(np.int8))
    return Products(numkong.dots_pack(rounded), scale.astype(np.float64), (queries @ low).astype(np.float64))


def _best_of_span(products: Products, corpus: QuantizedSource, lengths: np.ndarray, span: range, count: int) -> Pool:
    """The best `count` rows for each query among the rows of a span, block by block.

    A product is compared with the least one that can be among them, so nearly all of them are read once and never become scores.
    """
    import numkong  # pyright: ignore[reportMissingImports]

    queries = len(products.scale)
    best, least = Pool(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float64)), np.full(queries, -np.inf)
    whole = numkong.zeros((span.step, queries), dtype="int32")
    for start in span:
        rows = slice(start, min(start + span.step, span.stop))
        levels, own = _as_int8(corpus.stored(rows)), np.maximum(lengths[rows], 1e-12)
        room = whole if len(levels) == span.step else None
        block = np.asarray(numkong.dots_packed(levels, products.packed, out=room))
        if start == span.start and len(block) > count:
            scores = (block * products.scale + products.constant) / own[:, None]
            least = np.partition(scores, len(block) - count, axis=0)[len(block) - count]
        needed = (np.minimum(least * own.min(), least * own.max()) - products.constant) / products.scale
        at_least = np.clip(np.floor(np.maximum(needed, -(2.0**31))), -(2**31), 2**31 - 1).astype(np.int32)
        place = np.flatnonzero(block >= at_least)
        row, query = place // queries, place % queries
        score = (block[row, query] * products.scale[query] + products.constant[query]) / own[row]
        good = score >= least[query]
        new = Pool(query[good], row[good] + start, score[good])
        best = Pool(*(np.concatenate(sides) for sides in zip(best, new, strict=True)))
        if len(best.row) > POOL * count * queries:
            best = _best(best, count)
            least = _raised(least, best, count)
    return _best(best, count)


def _best(pool: Pool, count: int) -> Pool:
    """The best `count` candidates of each query, by query, best first."""
    order = np.lexsort((pool.row, -pool.score, pool.query))
    query = pool.query[order]
    first = np.searchsorted(query, query, side="left")
    order = order[np.arange(len(order)) - first < count]
    return Pool(*(side[order] for side in pool))


def _raised(least: np.ndarray, best: Pool, count: int) -> np.ndarray:
    """The score that a further candidate of each query needs: that of its last one in `best`, if it has `count` of them."""
    least = least.copy()
    numbers, begins, counts = np.unique(best.query, return_index=True, return_counts=True)
    full = counts == count
    least[numbers[full]] = best.score[begins[full] + count - 1]
    return least


def _rescored(
    queries: np.ndarray, corpus: QuantizedSource, rows: np.ndarray, kept: int, unit: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Scores in float32 of the candidates [Q, C], and the best `kept` of them."""
    wanted, place = np.unique(rows, return_inverse=True)
    vectors = corpus.take(wanted)
    vectors = unit_length(vectors) if unit else vectors
    scores = np.einsum("qe,qce->qc", queries, vectors[place.reshape(rows.shape)])
    order = np.lexsort((rows, -scores), axis=-1)[:, :kept]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def _as_int8(levels: np.ndarray) -> np.ndarray:
    """uint8 levels minus 128, as int8; int8 levels unchanged."""
    levels = np.ascontiguousarray(levels)
    return levels if levels.dtype == np.int8 else (levels ^ np.uint8(128)).view(np.int8)
