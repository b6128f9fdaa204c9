"""Find duplicates: visit the rows in order, and keep a row unless a row that was kept before it is equal or too similar.

This is greedy leader clustering. Every dropped row is within the threshold of a kept row, and no two kept rows are. Connected
components would also merge rows that are far apart if a chain of similar rows lies between them.

All pairs are compared in float32, block by block. Cosines that are within rounding of a threshold are computed again in float64, so
the result depends on neither the size of the blocks nor the number of threads.
"""

import functools
import hashlib
import unicodedata
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Float, Int, UInt32

from jax_sentemb.checks import choice, finite_number
from jax_sentemb.cosines import rounded, rounding, unit_length, unrounded
from jax_sentemb.data.containers import check_text, sentence_list
from jax_sentemb.data.records import KEEP_CHOICES, AllTexts
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.errors import ConfigError
from jax_sentemb.retrieval.search import tiles
from jax_sentemb.retrieval.sources import VectorSource, block_size, check_finite, padded, rows_at, rows_with_text, vectors_of
from jax_sentemb.types import Array, OnProgress, no_progress

CURVE = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)  # thresholds at which the kept rows are counted
PAIRS = 1 << 13  # pairs whose cosines are computed in float64 at once


class Deduplicated(NamedTuple):
    """The result of `deduplicate`. Rows of empty texts are neither kept nor dropped."""

    kept: Int[np.ndarray, " kept"]  # int64, ascending
    dropped: Int[np.ndarray, " dropped"]  # int64, ascending
    kept_for: Int[np.ndarray, " dropped"]  # int64, the most similar row of those that were kept before each dropped row
    scores: Float[np.ndarray, " dropped"]  # float32, the cosine of both rows
    is_exact: Bool[np.ndarray, " dropped"]  # whether both texts are equal
    distinct: int  # the number of rows without exact duplicates
    curve: dict[float, int]  # for each threshold, ascending, the number of rows that it would keep


def deduplicate(
    vectors: VectorSource | list,
    threshold: float = 0.9,
    texts: Any = None,
    keep: str = "first",
    progress: OnProgress = no_progress,
) -> Deduplicated:
    """Find near and exact duplicates. Every pair is compared, and memory grows by some bytes for each row.

    Rows are visited in order. A row is kept unless its cosine with a kept row is at least `threshold`.

    Args:
        vectors: The rows [N, E].
        threshold: The lowest cosine of two near duplicates, above 0 and up to 1.
        texts: The texts of the rows, in a container that `encode` accepts. Texts that `normal_text` maps to the same text are
            exact duplicates.
        keep: "first" visits the rows by their number, "longest" visits longer texts first.
        progress: Called with the number of blocks of pairs that were compared, and with the number of all blocks.

    Raises:
        ConfigError: An argument is out of range, or there is another number of texts.
        NumericsError: A vector is not finite.

    Example:
        >>> result = deduplicate([[1, 0], [0, 1], [0.9, 0.1]], threshold=0.9)
        >>> result.kept.tolist(), result.dropped.tolist(), result.kept_for.tolist()
        ([0, 1], [2], [0])
    """
    source = vectors_of("vectors", vectors)
    threshold = finite_number("threshold", threshold)
    choice("keep", keep, KEEP_CHOICES)
    if not 0 < threshold <= 1:
        raise ConfigError(f"threshold={threshold:g}: must be above 0 and at most 1")
    if texts is not None and not isinstance(texts, AllTexts):  # those of a file are not read into memory
        texts = sentence_list(texts)
        check_text(texts)
    if texts is not None and len(texts) != len(source):
        raise ConfigError(f"texts has {len(texts)} texts, but there are {len(source)} vectors; give one text for each")
    if texts is None and keep == "longest":
        raise ConfigError("keep='longest' compares texts: give texts")
    rows, numbers = rows_with_text(source)
    order, first_equal = _visits(texts, np.arange(len(source)) if numbers is None else numbers, keep)
    is_first = first_equal == np.arange(len(order))
    subset_rows = order if numbers is None else np.searchsorted(numbers, order)
    leaders = _Leaders(_Reordered(rows, subset_rows[is_first]), threshold)
    leaders.visit(progress)
    return _result(leaders, order, first_equal, is_first)


def normal_text(text: str) -> str:
    """Return a text in Unicode's normal form C, with one space for each run of white space and none at its ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _visits(
    texts: Lines | None, numbers: Int[np.ndarray, " rows"], keep: str
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Return the rows `numbers` in the order of the visits and, for each visit, the first visit of an equal text."""
    visits = np.arange(len(numbers))
    if texts is None:
        return numbers, visits
    digests, lengths = np.empty((len(numbers), 2), np.uint64), np.empty(len(numbers), np.int64)
    for visit, number in enumerate(numbers.tolist()):
        text = normal_text(texts[number])
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        digests[visit], lengths[visit] = np.frombuffer(digest, np.uint64), len(text)
    if keep == "longest":
        order = np.argsort(-lengths, kind="stable")
        numbers, digests = numbers[order], digests[order]
    by_digest = np.lexsort(digests.T)  # stable, so the first of equal texts comes first
    is_new = np.append(True, (digests[by_digest][1:] != digests[by_digest][:-1]).any(axis=1))[: len(by_digest)]
    first_equal = np.empty_like(visits)
    first_equal[by_digest] = by_digest[np.flatnonzero(is_new)[np.cumsum(is_new) - 1]]
    return numbers, first_equal


def _result(leaders: "_Leaders", order: np.ndarray, first_equal: np.ndarray, is_first: np.ndarray) -> Deduplicated:
    """Return the result. The visits of `leaders` are those of all rows that are the first of equal texts."""
    visit = np.cumsum(is_first)[first_equal] - 1  # for each row in `order`, the visit of its text
    nearest = np.where(leaders.is_dropped, leaders.nearest, np.arange(len(leaders.nearest)))[visit]
    is_kept = is_first & ~leaders.is_dropped[visit]
    dropped = np.flatnonzero(~is_kept)
    dropped = dropped[np.argsort(order[dropped])]
    is_exact = ~leaders.is_dropped[visit[dropped]]
    scores = np.where(is_exact, 1, leaders.scores[visit[dropped]]).astype(np.float32)
    return Deduplicated(
        np.sort(order[is_kept]),
        order[dropped],
        order[np.flatnonzero(is_first)[nearest[dropped]]],
        rounded(scores, leaders.vectors.shape[1]),
        is_exact,
        int(is_first.sum()),
        leaders.curve(),
    )


class _Reordered:
    """Rows of a source in another order, as a source."""

    def __init__(self, source: VectorSource, rows: Int[np.ndarray, " n"]) -> None:
        self._source, self._rows, self.shape = source, rows, (len(rows), *source.shape[1:])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return rows_at(self._source, self._rows[rows])

    def take(self, rows: Int[np.ndarray, " n"]) -> np.ndarray:
        """Return the rows with these numbers."""
        return rows_at(self._source, self._rows[rows])


class _Leaders:
    """Leader clustering at several thresholds at once. Bit i of a number of 32 bits stands for thresholds[i].

    Attributes:
        vectors: The rows in the order of their visits.
        scores: The cosine of each row with `nearest`, the most similar row that was kept before it at the threshold of the user.
            Both are set for rows with a cosine above the threshold.
    """

    def __init__(self, vectors: VectorSource, threshold: float) -> None:
        self.vectors, self._given = vectors, sorted({*CURVE, threshold})
        self._user = self._given.index(threshold)
        width, count = vectors.shape[1], len(vectors)
        self._thresholds = np.array([unrounded(value, width) for value in self._given])
        self._margin = rounding(width) / 2  # float32 products differ by less from float64 products
        self._limits = tuple(jnp.array(self._thresholds + sign * self._margin, jnp.float32) for sign in (-1, 1))
        self._bits = np.array([(1 << level) - 1 for level in range(len(self._given) + 1)], np.uint32)  # of the reached thresholds
        self._dropped = np.zeros(count, np.uint32)
        self.nearest, self.scores = np.full(count, -1), np.full(count, -np.inf)

    @property
    def is_dropped(self) -> Bool[np.ndarray, " rows"]:
        """Return whether each row is dropped at the threshold of the user."""
        return self._is_dropped(slice(None))

    def curve(self) -> dict[float, int]:
        """Return the number of rows that each threshold keeps."""
        return {value: int((self._dropped >> bit & 1 == 0).sum()) for bit, value in enumerate(self._given)}

    def visit(self, progress: OnProgress) -> None:
        """Compare all pairs. Rows of a block are decided when its first tile, with itself, is read."""
        for left, right, scores, best in tiles(self.vectors, progress):
            best = np.asarray(best)
            check_finite(best)
            if (best >= float(self._limits[0][0])).any():
                if left == right:
                    self._decide_block(left, scores)
                else:
                    self._drop_later(left, right, scores)

    def _decide_block(self, left: int, scores: Array) -> None:
        """Visit the rows of a block one by one."""
        count = min(len(scores), len(self.vectors) - left)
        part = np.asarray(scores)[:count, :count]
        levels = self._levels(scores, left, np.arange(count), np.arange(left, left + count))
        dropped = self._dropped[left : left + count]
        for row in np.flatnonzero(levels.any(axis=1)).tolist():
            dropped |= self._bits[levels[row]] & ~dropped[row]
        self._find_nearest(left, np.arange(left, left + count), part, levels)

    def _drop_later(self, left: int, right: int, scores: Array) -> None:
        """Drop rows of a later block that are near rows of this block."""
        count, rows = min(scores.shape[1], len(self.vectors) - right), len(scores)
        leaders = ~self._dropped[left : left + rows]
        surely, maybe = (np.asarray(_reached(scores, leaders, limit))[:count] for limit in self._limits[::-1])
        dropped = self._dropped[right : right + count]
        dropped |= surely
        columns = np.flatnonzero((maybe & ~dropped) | (maybe >> self._user & 1))
        if not len(columns):
            return
        part = _columns(scores, padded(columns, block_size(len(scores) * 2, len(columns))))
        levels = self._levels(part, left, np.arange(rows), right + columns)
        dropped[columns] |= np.bitwise_or.reduce(self._bits[levels] & leaders[:, None], axis=0)
        self._find_nearest(left, right + columns, np.asarray(part)[:, : len(columns)], levels)

    def _levels(
        self, scores: Array, left: int, rows: Int[np.ndarray, " n"], columns: Int[np.ndarray, " m"]
    ) -> Int[np.ndarray, "n m"]:
        """Return for each pair how many thresholds its cosine reaches, uint8. `rows` count from `left`, `columns` from 0."""
        shape = slice(len(rows)), slice(len(columns))
        low, high = (np.asarray(_level(scores, limit))[shape] for limit in self._limits[::-1])
        levels = low.copy()
        first, second = np.nonzero(low != high)
        levels[first, second] = np.searchsorted(self._thresholds, self._cosines(left + first, columns[second]), side="right")
        return levels

    def _find_nearest(self, left: int, columns: np.ndarray, part: np.ndarray, levels: np.ndarray) -> None:
        """Compare the rows of a block that are kept at the threshold of the user with the best of earlier blocks."""
        leaders = np.flatnonzero(~self._is_dropped(slice(left, left + len(part))))
        part = np.where(levels[leaders] > self._user, part[leaders], -np.inf)
        best = part.max(axis=0, initial=-np.inf)
        # float32 does not tell which of nearly equal cosines is larger
        first, second = np.nonzero(np.isfinite(part) & (part >= best - 2 * self._margin))
        rows, cosines = left + leaders[first], self._cosines(left + leaders[first], columns[second])
        order = np.lexsort((rows, -cosines, second))
        order = order[np.append(True, second[order][1:] != second[order][:-1])[: len(order)]]
        order = order[cosines[order] > self.scores[columns[second[order]]]]
        changed = columns[second[order]]
        self.nearest[changed], self.scores[changed] = rows[order], cosines[order]

    def _is_dropped(self, rows: slice) -> Bool[np.ndarray, " rows"]:
        """Return `is_dropped` of some rows."""
        return (self._dropped[rows] >> self._user & 1).astype(bool)

    def _cosines(self, first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the cosine of each pair of rows, float64."""
        parts = [np.zeros(0)]
        for start in range(0, len(first), PAIRS):
            pairs = (rows_at(self.vectors, rows[start : start + PAIRS]) for rows in (first, second))
            parts.append(np.vecdot(*(unit_length(rows.astype(np.float64)) for rows in pairs)))
        return np.concatenate(parts)


@jax.jit
def _level(scores: Array, limits: Array) -> Array:
    """Return for each score the number of limits that it reaches, uint8."""
    return functools.reduce(jnp.add, [(scores >= limit).astype(jnp.uint8) for limit in limits])


@jax.jit
def _columns(scores: Array, columns: Array) -> Array:
    return scores[:, columns]


@jax.jit
def _reached(scores: Array, leaders: UInt32[Array, " rows"], limits: Array) -> UInt32[Array, " columns"]:
    """Return for each column the thresholds at which a leader is near: bit i is that of limits[i]."""
    bits = functools.reduce(jnp.bitwise_or, [(scores >= limit).astype(jnp.uint32) << bit for bit, limit in enumerate(limits)])
    return lax.reduce(bits & leaders[:, None], jnp.uint32(0), lax.bitwise_or, (0,))
