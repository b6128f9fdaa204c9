"""Makes sentences inconsistent or splits them in two (ConsSent, Brahma 2018, section 3), and repeats words (ESimCSE): on batches.

Rows are padded arrays [B, T] with lengths [B]. Random numbers are functions of the row, so a row gets the same change in any batch.
A sentence that is too short for a change stays the same. Every other sentence becomes a different one if possible; it is not for P
of one repeated word, and for I and R of a sentence with every word of the corpus (`Perturbed` counts these).
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.data.shuffle import hash64
from jax_sentemb.data.tokens import Tokens

CLASSIFIED, RANKED = ("D", "P", "I", "R"), ("N", "C")
CANDIDATES = 8  # random words of which the first that is not in the sentence is used
BEHIND = 2.0  # larger than any uniform number
IdRows = Int[np.ndarray, "rows tokens"]
Lengths = Int[np.ndarray, " rows"]


class Draws:
    """Uniform numbers in [0, 1) for given rows of a corpus; pure functions of (seed, epoch, row, purpose, place)."""

    def __init__(self, seed: int, epoch: int, rows: Int[np.ndarray, " rows"]) -> None:
        self._base = hash64(hash64(np.asarray(rows, np.uint64)) ^ hash64(np.array([seed * 2**20 + epoch], np.uint64)))

    def uniform(self, purpose: int, places: int) -> Float[np.ndarray, "rows places"]:
        """`places` numbers a row, float64; another `purpose` gives independent numbers."""
        counter = np.arange(purpose << 32, (purpose << 32) + places, dtype=np.uint64)
        return (hash64(self._base[:, None] ^ hash64(counter)) >> np.uint64(11)) * 2.0**-53


def _chosen(lengths: np.ndarray, width: int, k: int, draws: Draws) -> np.ndarray:
    """Bool [B, width]: k random places of each sentence, none in a sentence of k words or fewer."""
    keys = np.where(np.arange(width) < lengths[:, None], draws.uniform(1, width), BEHIND)
    rank = keys.argsort(axis=1).argsort(axis=1)
    return (rank < k) & (lengths > k)[:, None]


def _compress(tokens: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moves the kept tokens of each row to its start; returns the rows and the numbers of kept tokens."""
    order = (~keep).argsort(axis=1, kind="stable")
    lengths = keep.sum(axis=1)
    moved = np.take_along_axis(tokens, order, axis=1)
    return np.where(np.arange(tokens.shape[1]) < lengths[:, None], moved, 0), lengths


def delete(tokens: IdRows, lengths: Lengths, k: int, draws: Draws) -> tuple[IdRows, Lengths]:
    """D(k): deletes k random tokens."""
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    return _compress(tokens, real & ~_chosen(lengths, tokens.shape[1], k, draws))


def _inner(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Bool [B, T]: the tokens other than the first and the last of each row."""
    place = np.arange(tokens.shape[1])
    return (place > 0) & (place < (lengths - 1)[:, None])


def delete_share(tokens: IdRows, lengths: Lengths, rate: float, draws: Draws) -> tuple[IdRows, Lengths]:
    """Delete each token with probability `rate`, never the first and the last of a row, nor all between them (TSDAE)."""
    place, inner = np.arange(tokens.shape[1]), _inner(tokens, lengths)
    draw = np.where(inner, draws.uniform(1, tokens.shape[1]), -1.0)
    largest = draw.max(axis=1, keepdims=True)  # this token stays, also where all are drawn for deletion
    return _compress(tokens, (place < lengths[:, None]) & (~inner | (draw >= rate) | (draw == largest)))


def permute(tokens: IdRows, lengths: Lengths, k: int, draws: Draws) -> tuple[IdRows, Lengths]:
    """P(k): permutes the words at k random places, so that the sentence becomes a different one.

    A permutation that changes nothing (the identity, or one of equal words) is drawn again.
    """
    chosen = _chosen(lengths, tokens.shape[1], k, draws)
    rows, changed = np.flatnonzero(chosen.any(axis=1)), tokens.copy()
    places = _places_of_two_words(tokens, lengths, rows, np.nonzero(chosen[rows])[1].reshape(-1, k), draws)
    words = np.take_along_axis(tokens[rows], places, axis=1)
    orders = draws.uniform(2, k * CANDIDATES)[rows].reshape(-1, CANDIDATES, k).argsort(axis=2)
    tried = words[np.arange(len(rows))[:, None, None], orders]
    changes = (tried != words[:, None]).any(axis=2)
    first = tried[np.arange(len(rows)), changes.argmax(axis=1)]
    turned = np.roll(words, 1, axis=1)  # differs from `words` if two of the words differ
    changed[rows[:, None], places] = np.where(changes.any(axis=1)[:, None], first, turned)
    return changed, lengths


def _places_of_two_words(tokens: np.ndarray, lengths: np.ndarray, rows: np.ndarray, places: np.ndarray, draws: Draws) -> np.ndarray:
    """The places [R, k]. If all of a row have the same word, the last moves to a random place with another word, if any."""
    words = np.take_along_axis(tokens[rows], places, axis=1)
    real = np.arange(tokens.shape[1]) < lengths[rows][:, None]
    others = real & (tokens[rows] != words[:, :1])
    which = (draws.uniform(4, 1)[rows, 0] * others.sum(axis=1)).astype(int)
    other = (others.cumsum(axis=1) > which[:, None]).argmax(axis=1)
    moves = (words == words[:, :1]).all(axis=1) & others.any(axis=1)
    return np.concatenate([places[:, :-1], np.where(moves, other, places[:, -1])[:, None]], axis=1)


def insert(
    tokens: IdRows, lengths: Lengths, k: int, draws: Draws, share: Float[np.ndarray, " vocab"]
) -> tuple[Int[np.ndarray, "rows longer"], Lengths]:
    """I(k): inserts k random words that are not in the sentence at random places between its tokens.

    share: cumulative word frequencies, ending at 1.
    """
    longer = lengths + np.where(lengths > k, k, 0)
    width = tokens.shape[1] + k
    keys = np.where(np.arange(width) < longer[:, None], draws.uniform(1, width), BEHIND)
    new = (keys.argsort(axis=1).argsort(axis=1) < k) & (lengths > k)[:, None]
    old = (np.arange(width) < longer[:, None]) & ~new
    result = np.zeros((len(tokens), width), tokens.dtype)
    result[old] = tokens[np.arange(tokens.shape[1]) < lengths[:, None]]
    result[new] = _other_words(tokens, lengths, k, draws, share)[lengths > k].reshape(-1)
    return result, longer


def replace(tokens: IdRows, lengths: Lengths, k: int, draws: Draws, share: Float[np.ndarray, " vocab"]) -> tuple[IdRows, Lengths]:
    """R(k): replaces k random tokens by random words that are not in the sentence; `share` as for `insert`."""
    chosen = _chosen(lengths, tokens.shape[1], k, draws)
    changed = tokens.copy()
    changed[chosen] = _other_words(tokens, lengths, k, draws, share)[lengths > k].reshape(-1)
    return changed, lengths


def most_repeated(lengths: Any, rate: float) -> Any:
    """The largest number of tokens that `repeat` adds to rows of these lengths: max(2, rate * n) of n words, at most n."""
    words = np.maximum(np.asarray(lengths) - 2, 0)
    return np.minimum(np.maximum(2, (rate * words).astype(int)), words)


def repeat(tokens: IdRows, lengths: Lengths, rate: float, draws: Draws) -> tuple[Int[np.ndarray, "rows longer"], Lengths]:
    """Repeats random tokens behind themselves, never the first and the last token of a row (word repetition of ESimCSE).

    Their number is uniform in 0 .. `most_repeated` (Wu et al. 2022).
    """
    place = np.arange(tokens.shape[1])
    count = (draws.uniform(2, 1)[:, 0] * (most_repeated(lengths, rate) + 1)).astype(int)
    rank = np.where(_inner(tokens, lengths), draws.uniform(1, tokens.shape[1]), BEHIND).argsort(axis=1).argsort(axis=1)
    times = (place < lengths[:, None]).astype(int) + (rank < count[:, None])
    longer = times.sum(axis=1)
    result = np.zeros((len(tokens), int(longer.max(initial=0))), tokens.dtype)
    result[np.arange(result.shape[1]) < longer[:, None]] = np.repeat(tokens.reshape(-1), times.reshape(-1))
    return result, longer


def split_randomly(tokens: IdRows, lengths: Lengths, draws: Draws) -> list[tuple[IdRows, Lengths]]:
    """N: assigns each token to one of two parts, with probability 1/2 each. No part is empty if there are two tokens or more."""
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    first = draws.uniform(1, tokens.shape[1]) < 0.5
    first[:, 0] = np.where((first | ~real).all(axis=1), False, first[:, 0])
    first[:, 0] |= (~first | ~real).all(axis=1)
    return [_compress(tokens, real & first), _compress(tokens, real & ~first)]


def split_at(tokens: IdRows, lengths: Lengths, draws: Draws) -> list[tuple[IdRows, Lengths]]:
    """C: cuts before token i, uniform in 2..n-1 counted from 1, so the second part has two tokens or more (of three or more)."""
    choices = np.maximum(lengths - 2, 1)
    cut = 1 + (draws.uniform(1, 1)[:, 0] * choices).astype(int)
    place = np.arange(tokens.shape[1])
    real = place < lengths[:, None]
    return [_compress(tokens, real & (place < cut[:, None])), _compress(tokens, real & (place >= cut[:, None]))]


def unchangeable(tokens: Tokens, task: str, k: int, share: Float[np.ndarray, " vocab"]) -> Int[np.ndarray, " found"]:
    """The rows of more than k words that P(k), I(k) or R(k) cannot make a different sentence; int64, sorted."""
    if task == "P":
        rows = tokens.rows_of_one_word()
        return rows[tokens.lengths[rows] > k]
    if task not in ("I", "R"):
        return np.zeros(0, np.int64)
    words = np.flatnonzero(np.diff(share, prepend=0.0))
    rows = np.flatnonzero((tokens.lengths > k) & (tokens.lengths >= len(words)))  # few, except in tiny corpora
    return np.array([row for row in rows.tolist() if np.isin(words, tokens.ids(row)).all()], np.int64)


def _other_words(tokens: np.ndarray, lengths: np.ndarray, k: int, draws: Draws, share: np.ndarray) -> np.ndarray:
    """int [B, k]: random words that are not in their sentence, if any exist. `share` [V]: cumulative frequencies ending at 1."""
    place = draws.uniform(3, k * CANDIDATES)
    drawn = np.minimum(np.searchsorted(share, place, side="right"), len(share) - 1).reshape(len(tokens), k, CANDIDATES)
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    there = ((drawn[..., None] == tokens[:, None, None, :]) & real[:, None, None, :]).any(axis=-1)
    words = np.take_along_axis(drawn, there.argmin(axis=-1)[..., None], axis=-1)[..., 0]
    for row in np.flatnonzero(there.all(axis=-1).any(axis=-1)):  # rare: every candidate is in the sentence
        rest = np.diff(share, prepend=0.0)
        rest[tokens[row, : lengths[row]]] = 0.0
        if rest.any():
            total = rest.cumsum()
            exact = np.searchsorted(total, draws.uniform(5, k)[row] * total[-1], side="right")
            words[row] = np.where(there[row].all(axis=-1), np.minimum(exact, np.flatnonzero(rest)[-1]), words[row])
    return words


def ragged(tokens: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Return the rows without their padding."""
    return [row[:length].astype(np.int32) for row, length in zip(tokens, lengths.tolist(), strict=True)]
