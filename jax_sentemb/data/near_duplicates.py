"""Estimate how many sentences of a corpus nearly repeat another one, from the pieces that they share.

Sentences whose sets of pieces overlap (Jaccard) by OVERLAP or more share one of their rarest pieces. So only sentences that share
such a piece are compared, which takes seconds for a million sentences (prefix filtering, Chaudhuri et al. 2006).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from scipy import sparse

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import Tokens

SAMPLE = 2000  # sentences that are compared with all others
OVERLAP = 0.8  # of the distinct pieces of two sentences, the share that both have
ROWS = 1 << 12  # sentences that the sample is compared with at once
PAIRS = 1 << 16  # pairs whose overlap is computed at once
ROUNDING = 1e-9


class NearDuplicates(NamedTuple):
    """The number of sentences in a sample, and how many of them nearly repeat another sentence of the corpus."""

    sample: int
    near: int


class _Sets(NamedTuple):
    """The sets of pieces of some sentences, as rows of 0 and 1. Pieces are numbered by their frequency, the rarest first."""

    pieces: sparse.csr_matrix
    rarest: sparse.csr_matrix  # of which near duplicates share at least one
    sizes: Int[np.ndarray, " rows"]


def near_duplicates(tokens: Tokens, tokenizer: Tokenizer, seed: int = 0) -> NearDuplicates:
    """Compare SAMPLE random sentences with all sentences of a corpus. Equal sentences have been left out of `tokens`.

    Args:
        tokens: The corpus.
        tokenizer: The tokenizer of the corpus. The tokens that it adds to each sentence are left out.
        seed: Selects the sample.
    """
    rank = np.empty(tokenizer.vocab_size, np.int64)
    rank[np.argsort(tokens.word_counts(len(rank)), kind="stable")] = np.arange(len(rank))
    rank[[tokenizer.cls_id, tokenizer.sep_id]] = -1
    rows = np.sort(np.random.default_rng(seed).choice(len(tokens), min(SAMPLE, len(tokens)), replace=False))
    sample, remaining = _sets(tokens, rows, rank), np.arange(len(rows))
    for start in range(0, len(tokens), ROWS):
        others = _sets(tokens, np.arange(start, min(start + ROWS, len(tokens))), rank)
        pairs = (sample.rarest[remaining] @ others.rarest.T).tocoo()
        first, second = remaining[pairs.row], pairs.col.astype(np.int64)
        differ = rows[first] != start + second
        near = _are_near(sample, others, first[differ], second[differ])
        remaining = np.setdiff1d(remaining, first[differ][near])
    return NearDuplicates(len(rows), len(rows) - len(remaining))


def _sets(tokens: Tokens, rows: Int[np.ndarray, " rows"], rank: Int[np.ndarray, " vocab"]) -> _Sets:
    """Return the sets of pieces of some rows. Pieces with a negative rank are left out."""
    ids = [tokens.ids(row) for row in rows.tolist()]
    pieces = rank[np.concatenate(ids)]
    row = np.repeat(np.arange(len(rows)), [len(each) for each in ids])
    row, piece = np.divmod(np.unique(row[pieces >= 0] * len(rank) + pieces[pieces >= 0]), len(rank))
    sizes = np.bincount(row, minlength=len(rows))
    position = np.arange(len(row)) - (np.cumsum(sizes) - sizes)[row]
    is_rare = position <= (sizes - np.ceil(OVERLAP * sizes - ROUNDING))[row]
    pieces, rarest = (
        sparse.csr_matrix((np.ones(len(row[mask]), np.int32), (row[mask], piece[mask])), shape=(len(rows), len(rank)))
        for mask in (..., is_rare)
    )
    return _Sets(pieces, rarest, sizes)


def _are_near(sample: _Sets, others: _Sets, first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Return whether the sets of each pair overlap by OVERLAP or more."""
    near = np.zeros(len(first), bool)
    smaller, larger = np.sort([sample.sizes[first], others.sizes[second]], axis=0)
    possible = np.flatnonzero(smaller >= OVERLAP * larger - ROUNDING)
    for start in range(0, len(possible), PAIRS):
        pairs = possible[start : start + PAIRS]
        shared = np.asarray(sample.pieces[first[pairs]].multiply(others.pieces[second[pairs]]).sum(axis=1)).ravel()
        near[pairs] = shared >= OVERLAP * (smaller[pairs] + larger[pairs] - shared) - ROUNDING
    return near
