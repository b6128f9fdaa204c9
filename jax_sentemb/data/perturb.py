"""Change batches of sentences: make them inconsistent or split them (ConsSent, Brahma 2018, section 3), repeat or delete words.

Rows are padded arrays [B, T] with lengths [B]. Random numbers are functions of the row, so a row gets the same change in any batch.
A sentence that is too short for a change stays the same. Every other sentence becomes a different sentence if possible. It is
impossible for P if the sentence repeats a single word, and for I and R if it has every word of the corpus (`Perturbed` counts
these).
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.data.shuffle import hash64
from jax_sentemb.data.tokens import Tokens

CLASSIFIED, RANKED = ("D", "P", "I", "R"), ("N", "C")
CANDIDATES = 8  # random words; the first of them that is not in the sentence is used
LAST = 2.0  # a sort key after those of all uniform numbers
IdRows = Int[np.ndarray, "rows tokens"]
Lengths = Int[np.ndarray, " rows"]


class Draws:
    """Uniform numbers in [0, 1) for given rows of a corpus: pure functions of (seed, epoch, row, purpose, position)."""

    def __init__(self, seed: int, epoch: int, rows: Int[np.ndarray, " rows"]) -> None:
        self._base = hash64(hash64(np.asarray(rows, np.uint64)) ^ hash64(np.array([seed * 2**20 + epoch], np.uint64)))

    def uniform(self, purpose: int, count: int) -> Float[np.ndarray, "rows count"]:
        """Return `count` numbers for each row, float64. Numbers for different purposes are independent."""
        counter = np.arange(purpose << 32, (purpose << 32) + count, dtype=np.uint64)
        return (hash64(self._base[:, None] ^ hash64(counter)) >> np.uint64(11)) * 2.0**-53


def _choose(lengths: np.ndarray, width: int, k: int, draws: Draws) -> np.ndarray:
    """Choose k random positions of each sentence, none in a sentence of k words or fewer; bool [B, width]."""
    keys = np.where(np.arange(width) < lengths[:, None], draws.uniform(1, width), LAST)
    rank = keys.argsort(axis=1).argsort(axis=1)
    return (rank < k) & (lengths > k)[:, None]


def _compress(tokens: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move the tokens to keep of each row to its start, and return the rows and the numbers of these tokens."""
    order = (~keep).argsort(axis=1, kind="stable")
    lengths = keep.sum(axis=1)
    moved = np.take_along_axis(tokens, order, axis=1)
    return np.where(np.arange(tokens.shape[1]) < lengths[:, None], moved, 0), lengths


def delete(tokens: IdRows, lengths: Lengths, k: int, draws: Draws) -> tuple[IdRows, Lengths]:
    """Delete k random tokens: D(k)."""
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    return _compress(tokens, real & ~_choose(lengths, tokens.shape[1], k, draws))


def _inner(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return where the tokens other than the first and the last of each row are, bool [B, T]."""
    position = np.arange(tokens.shape[1])
    return (position > 0) & (position < (lengths - 1)[:, None])


def delete_share(tokens: IdRows, lengths: Lengths, rate: float, draws: Draws) -> tuple[IdRows, Lengths]:
    """Delete each token with probability `rate`, never the first and the last of a row, nor all between them (TSDAE)."""
    position, inner = np.arange(tokens.shape[1]), _inner(tokens, lengths)
    draw = np.where(inner, draws.uniform(1, tokens.shape[1]), -1.0)
    largest = draw.max(axis=1, keepdims=True)  # this token stays, even if all are drawn for deletion
    return _compress(tokens, (position < lengths[:, None]) & (~inner | (draw >= rate) | (draw == largest)))


def permute(tokens: IdRows, lengths: Lengths, k: int, draws: Draws) -> tuple[IdRows, Lengths]:
    """Permute the words at k random positions, so that the sentence becomes a different one: P(k).

    A permutation that changes nothing (the identity, or one of equal words) is drawn again.
    """
    chosen = _choose(lengths, tokens.shape[1], k, draws)
    rows, changed = np.flatnonzero(chosen.any(axis=1)), tokens.copy()
    positions = _with_two_words(tokens, lengths, rows, np.nonzero(chosen[rows])[1].reshape(-1, k), draws)
    words = np.take_along_axis(tokens[rows], positions, axis=1)
    orders = draws.uniform(2, k * CANDIDATES)[rows].reshape(-1, CANDIDATES, k).argsort(axis=2)
    candidates = words[np.arange(len(rows))[:, None, None], orders]
    changes = (candidates != words[:, None]).any(axis=2)
    first = candidates[np.arange(len(rows)), changes.argmax(axis=1)]
    rolled = np.roll(words, 1, axis=1)  # differs from `words` if two of the words differ
    changed[rows[:, None], positions] = np.where(changes.any(axis=1)[:, None], first, rolled)
    return changed, lengths


def _with_two_words(tokens: np.ndarray, lengths: np.ndarray, rows: np.ndarray, positions: np.ndarray, draws: Draws) -> np.ndarray:
    """Return the positions [R, k]. If they all have the same word, the last one moves to a random position of another word."""
    words = np.take_along_axis(tokens[rows], positions, axis=1)
    is_real = np.arange(tokens.shape[1]) < lengths[rows][:, None]
    differs = is_real & (tokens[rows] != words[:, :1])
    drawn = (draws.uniform(4, 1)[rows, 0] * differs.sum(axis=1)).astype(int)
    new_position = (differs.cumsum(axis=1) > drawn[:, None]).argmax(axis=1)
    moves = (words == words[:, :1]).all(axis=1) & differs.any(axis=1)
    return np.concatenate([positions[:, :-1], np.where(moves, new_position, positions[:, -1])[:, None]], axis=1)


def insert(
    tokens: IdRows, lengths: Lengths, k: int, draws: Draws, share: Float[np.ndarray, " vocab"]
) -> tuple[Int[np.ndarray, "rows longer"], Lengths]:
    """Insert k random words that are not in the sentence at random positions between its tokens: I(k).

    `share` has the cumulative word frequencies, which end at 1.
    """
    longer = lengths + np.where(lengths > k, k, 0)
    width = tokens.shape[1] + k
    keys = np.where(np.arange(width) < longer[:, None], draws.uniform(1, width), LAST)
    new = (keys.argsort(axis=1).argsort(axis=1) < k) & (lengths > k)[:, None]
    old = (np.arange(width) < longer[:, None]) & ~new
    result = np.zeros((len(tokens), width), tokens.dtype)
    result[old] = tokens[np.arange(tokens.shape[1]) < lengths[:, None]]
    result[new] = _other_words(tokens, lengths, k, draws, share)[lengths > k].reshape(-1)
    return result, longer


def replace(tokens: IdRows, lengths: Lengths, k: int, draws: Draws, share: Float[np.ndarray, " vocab"]) -> tuple[IdRows, Lengths]:
    """Replace k random tokens by random words that are not in the sentence: R(k). `share` is as in `insert`."""
    chosen = _choose(lengths, tokens.shape[1], k, draws)
    changed = tokens.copy()
    changed[chosen] = _other_words(tokens, lengths, k, draws, share)[lengths > k].reshape(-1)
    return changed, lengths


def most_repeated(lengths: Any, rate: float) -> Any:
    """Return the largest number of tokens that `repeat` adds to rows of these lengths: max(2, rate * n) for n words, at most n."""
    words = np.maximum(np.asarray(lengths) - 2, 0)
    return np.minimum(np.maximum(2, (rate * words).astype(int)), words)


def repeat(tokens: IdRows, lengths: Lengths, rate: float, draws: Draws) -> tuple[Int[np.ndarray, "rows longer"], Lengths]:
    """Repeat random tokens, but never the first and the last token of a row (word repetition of ESimCSE, Wu et al. 2022).

    The number of repeated tokens is uniform in 0 .. `most_repeated`. A repetition follows its token.
    """
    position = np.arange(tokens.shape[1])
    count = (draws.uniform(2, 1)[:, 0] * (most_repeated(lengths, rate) + 1)).astype(int)
    rank = np.where(_inner(tokens, lengths), draws.uniform(1, tokens.shape[1]), LAST).argsort(axis=1).argsort(axis=1)
    times = (position < lengths[:, None]).astype(int) + (rank < count[:, None])
    longer = times.sum(axis=1)
    result = np.zeros((len(tokens), int(longer.max(initial=0))), tokens.dtype)
    result[np.arange(result.shape[1]) < longer[:, None]] = np.repeat(tokens.reshape(-1), times.reshape(-1))
    return result, longer


def split_randomly(tokens: IdRows, lengths: Lengths, draws: Draws) -> list[tuple[IdRows, Lengths]]:
    """Assign each token to one of two parts, with probability 1/2 each: N. No part is empty if there are two tokens or more."""
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    first = draws.uniform(1, tokens.shape[1]) < 0.5
    first[:, 0] = np.where((first | ~real).all(axis=1), False, first[:, 0])
    first[:, 0] |= (~first | ~real).all(axis=1)
    return [_compress(tokens, real & first), _compress(tokens, real & ~first)]


def split_at(tokens: IdRows, lengths: Lengths, draws: Draws) -> list[tuple[IdRows, Lengths]]:
    """Cut before token i: C. The number i is uniform in 2 .. n-1, counted from 1.

    So the second part of a sentence of three tokens or more has two tokens or more.
    """
    choices = np.maximum(lengths - 2, 1)
    cut = 1 + (draws.uniform(1, 1)[:, 0] * choices).astype(int)
    position = np.arange(tokens.shape[1])
    is_real = position < lengths[:, None]
    return [_compress(tokens, is_real & (position < cut[:, None])), _compress(tokens, is_real & (position >= cut[:, None]))]


def unchangeable(tokens: Tokens, task: str, k: int, share: Float[np.ndarray, " vocab"]) -> Int[np.ndarray, " rows"]:
    """Return the rows of more than k words that P(k), I(k) or R(k) cannot make a different sentence; int64, sorted."""
    if task == "P":
        rows = tokens.rows_of_one_word()
        return rows[tokens.lengths[rows] > k]
    if task not in ("I", "R"):
        return np.zeros(0, np.int64)
    words = np.flatnonzero(np.diff(share, prepend=0.0))
    rows = np.flatnonzero((tokens.lengths > k) & (tokens.lengths >= len(words)))  # few, except in tiny corpora
    return np.array([row for row in rows.tolist() if np.isin(words, tokens.ids(row)).all()], np.int64)


def _other_words(tokens: np.ndarray, lengths: np.ndarray, k: int, draws: Draws, share: np.ndarray) -> np.ndarray:
    """Return random words that are not in their sentence, if any exist; int [B, k]. `share` is as in `insert`."""
    numbers = draws.uniform(3, k * CANDIDATES)
    drawn = np.minimum(np.searchsorted(share, numbers, side="right"), len(share) - 1).reshape(len(tokens), k, CANDIDATES)
    is_real = np.arange(tokens.shape[1]) < lengths[:, None]
    occurs = ((drawn[..., None] == tokens[:, None, None, :]) & is_real[:, None, None, :]).any(axis=-1)
    words = np.take_along_axis(drawn, occurs.argmin(axis=-1)[..., None], axis=-1)[..., 0]
    for row in np.flatnonzero(occurs.all(axis=-1).any(axis=-1)):  # rare: every candidate is in the sentence
        frequencies = np.diff(share, prepend=0.0)
        frequencies[tokens[row, : lengths[row]]] = 0.0
        if frequencies.any():
            total = frequencies.cumsum()
            exact = np.searchsorted(total, draws.uniform(5, k)[row] * total[-1], side="right")
            words[row] = np.where(occurs[row].all(axis=-1), np.minimum(exact, np.flatnonzero(frequencies)[-1]), words[row])
    return words


def ragged(tokens: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Return the rows without their padding."""
    return [row[:length].astype(np.int32) for row, length in zip(tokens, lengths.tolist(), strict=True)]
