"""Sentences made inconsistent, and sentences cut in two (ConsSent, Brahma 2018, section 3): pure functions, whole batches at once.

Rows are padded arrays [B, T] with lengths [B]; what is random comes from a table of uniform numbers for each row, so a row gets the
same change in any batch. A sentence that is too short for a change stays as it is.
"""

from collections.abc import Callable

import numpy as np

from jax_sentemb.text.shuffle import mix

Change = Callable[[np.ndarray, np.ndarray, "Draws"], tuple[np.ndarray, np.ndarray]]
CLASSIFIED, RANKED = ("D", "P", "I", "R"), ("N", "C")
CANDIDATES = 8  # random words that are tried until one is not in the sentence
BEHIND = 2.0  # larger than any uniform number


class Draws:
    """Uniform numbers in [0, 1) for given rows of a corpus: functions of (seed, epoch, row, purpose, place) alone."""

    def __init__(self, seed: int, epoch: int, rows: np.ndarray) -> None:
        self._base = mix(mix(np.asarray(rows, np.uint64)) ^ mix(np.array([seed * 2**20 + epoch], np.uint64)))

    def uniform(self, purpose: int, places: int) -> np.ndarray:
        """Float64 [B, places]."""
        counter = np.arange(purpose << 32, (purpose << 32) + places, dtype=np.uint64)
        return (mix(self._base[:, None] ^ mix(counter)) >> np.uint64(11)) * 2.0**-53


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
    """P(k): the tokens of k random places change places, never all back to where they were."""
    chosen = _chosen(lengths, tokens.shape[1], k, draws)
    changed = tokens.copy()
    rows = chosen.any(axis=1)
    places = np.nonzero(chosen[rows])[1].reshape(-1, k)
    order = draws.uniform(2, k)[rows].argsort(axis=1)
    identity = (order == np.arange(k)).all(axis=1)
    order[identity] = np.roll(np.arange(k), 1)
    row = np.flatnonzero(rows)[:, None]
    changed[row, places] = tokens[row, np.take_along_axis(places, order, axis=1)]
    return changed, lengths


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


def _other_words(tokens: np.ndarray, lengths: np.ndarray, k: int, draws: Draws, share: np.ndarray) -> np.ndarray:
    """int [B, k]: words drawn by `share` (cumulative, [V], ending at 1) that are not in their sentence."""
    place = draws.uniform(3, k * CANDIDATES)
    drawn = np.minimum(np.searchsorted(share, place, side="right"), len(share) - 1).reshape(len(tokens), k, CANDIDATES)
    real = np.arange(tokens.shape[1]) < lengths[:, None]
    there = ((drawn[..., None] == tokens[:, None, None, :]) & real[:, None, None, :]).any(axis=-1)
    return np.take_along_axis(drawn, there.argmin(axis=-1)[..., None], axis=-1)[..., 0]
