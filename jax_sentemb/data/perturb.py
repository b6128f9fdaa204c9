"""Sentences made inconsistent, and sentences cut in two (ConsSent, Brahma 2018, section 3): pure functions, whole batches at once.

Rows are padded arrays [B, T] with lengths [B]; what is random comes from a table of uniform numbers for each row, so a row gets the
same change in any batch. A sentence that is too short for a change stays as it is; any other one really changes, unless no change
exists: P of one repeated word, I and R of a sentence that has every word of the corpus (`Perturbed` counts those).
"""

from collections.abc import Callable

import numpy as np

from jax_sentemb.data.shuffle import hash64
from jax_sentemb.data.tokens import Tokens

Change = Callable[[np.ndarray, np.ndarray, "Draws"], tuple[np.ndarray, np.ndarray]]
CLASSIFIED, RANKED = ("D", "P", "I", "R"), ("N", "C")
CANDIDATES = 8  # random words that are tried until one is not in the sentence
BEHIND = 2.0  # larger than any uniform number


class Draws:
    """Uniform numbers in [0, 1) for given rows of a corpus: functions of (seed, epoch, row, purpose, place) alone."""

    def __init__(self, seed: int, epoch: int, rows: np.ndarray) -> None:
        self._base = hash64(hash64(np.asarray(rows, np.uint64)) ^ hash64(np.array([seed * 2**20 + epoch], np.uint64)))

    def uniform(self, purpose: int, places: int) -> np.ndarray:
        """Float64 [B, places]."""
        counter = np.arange(purpose << 32, (purpose << 32) + places, dtype=np.uint64)
        return (hash64(self._base[:, None] ^ hash64(counter)) >> np.uint64(11)) * 2.0**-53


def _chosen(lengths: np.ndarray, width: int, k: int, draws: Draws) -> np.ndarray:
    """Bool [B, width]: k random places of each sentence; none in one of k words or fewer."""
    keys = np.where(np.arange(width) < lengths[:, None], draws.uniform(1, width), BEHIND)
    rank = keys.argsort(axis=1).argsort(axis=1)
    return (rank < k) & (lengths > k)[:, None]


def _compress(tokens: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The kept tokens of each row, moved to its start, and their number."""
    order = (~keep).argsort(axis=1, kind="stable")
    lengths = keep.sum(axis=1)
    moved = np.take_along_axis(tokens, order, axis=1)
    return np.where(np.arange(tokens.shape[1]) < lengths[:, None], moved, 0), lengths


def delete(tokens: np.ndarray, lengths: np.ndarray, k: int, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """D(k): k random tokens are left out."""
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    return _compress(tokens, real & ~_chosen(lengths, tokens.shape[1], k, draws))


def permute(tokens: np.ndarray, lengths: np.ndarray, k: int, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """P(k): the words of k random places change places, so that the sentence is another one.

    A permutation that changes nothing (the identity, or one that swaps equal words) is drawn again.
    """
    chosen = _chosen(lengths, tokens.shape[1], k, draws)
    rows, changed = np.flatnonzero(chosen.any(axis=1)), tokens.copy()
    places = _places_of_two_words(tokens, lengths, rows, np.nonzero(chosen[rows])[1].reshape(-1, k), draws)
    words = np.take_along_axis(tokens[rows], places, axis=1)
    orders = draws.uniform(2, k * CANDIDATES)[rows].reshape(-1, CANDIDATES, k).argsort(axis=2)
    tried = words[np.arange(len(rows))[:, None, None], orders]
    changes = (tried != words[:, None]).any(axis=2)
    first = tried[np.arange(len(rows)), changes.argmax(axis=1)]
    turned = np.roll(words, 1, axis=1)  # differs wherever two of the words do
    changed[rows[:, None], places] = np.where(changes.any(axis=1)[:, None], first, turned)
    return changed, lengths


def _places_of_two_words(tokens: np.ndarray, lengths: np.ndarray, rows: np.ndarray, places: np.ndarray, draws: Draws) -> np.ndarray:
    """The places [R, k]; where they all hold one word, the last moves to a random place of another word, if there is one."""
    words = np.take_along_axis(tokens[rows], places, axis=1)
    real = np.arange(tokens.shape[1]) < lengths[rows][:, None]
    others = real & (tokens[rows] != words[:, :1])
    which = (draws.uniform(4, 1)[rows, 0] * others.sum(axis=1)).astype(int)
    other = (others.cumsum(axis=1) > which[:, None]).argmax(axis=1)
    moves = (words == words[:, :1]).all(axis=1) & others.any(axis=1)
    return np.concatenate([places[:, :-1], np.where(moves, other, places[:, -1])[:, None]], axis=1)


def insert(tokens: np.ndarray, lengths: np.ndarray, k: int, draws: Draws, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """I(k): k random words that are not in the sentence stand at random places between its tokens."""
    longer = lengths + np.where(lengths > k, k, 0)
    width = tokens.shape[1] + k
    keys = np.where(np.arange(width) < longer[:, None], draws.uniform(1, width), BEHIND)
    new = (keys.argsort(axis=1).argsort(axis=1) < k) & (lengths > k)[:, None]
    old = (np.arange(width) < longer[:, None]) & ~new
    result = np.zeros((len(tokens), width), tokens.dtype)
    result[old] = tokens[np.arange(tokens.shape[1]) < lengths[:, None]]
    result[new] = _other_words(tokens, lengths, k, draws, share)[lengths > k].reshape(-1)
    return result, longer


def replace(tokens: np.ndarray, lengths: np.ndarray, k: int, draws: Draws, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R(k): k random tokens become random words that are not in the sentence."""
    chosen = _chosen(lengths, tokens.shape[1], k, draws)
    changed = tokens.copy()
    changed[chosen] = _other_words(tokens, lengths, k, draws, share)[lengths > k].reshape(-1)
    return changed, lengths


def split_randomly(tokens: np.ndarray, lengths: np.ndarray, draws: Draws) -> list[tuple[np.ndarray, np.ndarray]]:
    """N: each token goes to the first part with probability 1/2, else to the second; neither is empty from two tokens on."""
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    first = draws.uniform(1, tokens.shape[1]) < 0.5
    first[:, 0] = np.where((first | ~real).all(axis=1), False, first[:, 0])
    first[:, 0] |= (~first | ~real).all(axis=1)
    return [_compress(tokens, real & first), _compress(tokens, real & ~first)]


def split_at(tokens: np.ndarray, lengths: np.ndarray, draws: Draws) -> list[tuple[np.ndarray, np.ndarray]]:
    """C: a cut before token i, uniform in 2..n-1 counted from 1: the second part has at least two tokens (of three or more)."""
    choices = np.maximum(lengths - 2, 1)
    cut = 1 + (draws.uniform(1, 1)[:, 0] * choices).astype(int)
    place = np.arange(tokens.shape[1])
    real = place < lengths[:, None]
    return [_compress(tokens, real & (place < cut[:, None])), _compress(tokens, real & (place >= cut[:, None]))]


def unchangeable(tokens: Tokens, task: str, k: int, share: np.ndarray) -> np.ndarray:
    """int64, sorted: the rows of more than k words that P(k), I(k) or R(k) cannot make another sentence."""
    if task == "P":
        rows = tokens.rows_of_one_word()
        return rows[tokens.lengths[rows] > k]
    if task not in ("I", "R"):
        return np.zeros(0, np.int64)
    words = np.flatnonzero(np.diff(share, prepend=0.0))
    rows = np.flatnonzero((tokens.lengths > k) & (tokens.lengths >= len(words)))  # few, but in toy corpora
    return np.array([row for row in rows.tolist() if np.isin(words, tokens.ids(row)).all()], np.int64)


def _other_words(tokens: np.ndarray, lengths: np.ndarray, k: int, draws: Draws, share: np.ndarray) -> np.ndarray:
    """int [B, k]: words drawn by `share` (cumulative, [V], ending at 1) that are not in their sentence, if there are any."""
    place = draws.uniform(3, k * CANDIDATES)
    drawn = np.minimum(np.searchsorted(share, place, side="right"), len(share) - 1).reshape(len(tokens), k, CANDIDATES)
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    there = ((drawn[..., None] == tokens[:, None, None, :]) & real[:, None, None, :]).any(axis=-1)
    words = np.take_along_axis(drawn, there.argmin(axis=-1)[..., None], axis=-1)[..., 0]
    for row in np.flatnonzero(there.all(axis=-1).any(axis=-1)):  # rare: every candidate was in the sentence
        rest = np.diff(share, prepend=0.0)
        rest[tokens[row, : lengths[row]]] = 0.0
        if rest.any():
            total = rest.cumsum()
            exact = np.searchsorted(total, draws.uniform(5, k)[row] * total[-1], side="right")
            words[row] = np.where(there[row].all(axis=-1), np.minimum(exact, np.flatnonzero(rest)[-1]), words[row])
    return words
