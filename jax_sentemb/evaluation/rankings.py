"""Score rankings of documents by graded judgements, with the definitions of trec_eval.

A gain is the grade of the document at a rank, and 0 if nobody judged it. A document with a grade above 0 is relevant. A grade below
0 counts as 0. Ranks count from 1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

RANK_CONSTANT = 60  # of reciprocal-rank fusion: Cormack, Clarke and Buettcher 2009
NO_DOCUMENT = -1

Gains = Float[np.ndarray, "queries ranks"]  # float64


class Run(NamedTuple):
    """The ranked documents of each query, best first."""

    rows: Int[np.ndarray, "queries ranks"]  # int64, rows of the corpus; NO_DOCUMENT: fewer documents were retrieved
    scores: Float[np.ndarray, "queries ranks"]  # float32


class Judgements(NamedTuple):
    """The judged documents of a query."""

    rows: Int[np.ndarray, " judged"]  # rows of the corpus, ascending
    grades: Float[np.ndarray, " judged"]  # of these documents
    missing: Float[np.ndarray, " missing"]  # grades of documents that the corpus does not have

    @property
    def ideal(self) -> Float[np.ndarray, " n"]:
        """Return the grades above 0, the highest first."""
        grades = np.concatenate([self.grades, self.missing])
        return np.sort(grades[grades > 0])[::-1]


def gains_of(run: Run, judgements: Sequence[Judgements]) -> Gains:
    """Return the gain at each rank of each query."""
    gains = np.zeros(run.rows.shape)
    for gain, rows, judged in zip(gains, run.rows, judgements, strict=True):
        if len(judged.rows):
            nearest = np.minimum(np.searchsorted(judged.rows, rows), len(judged.rows) - 1)
            gain[:] = np.where(judged.rows[nearest] == rows, judged.grades[nearest], 0)
    return np.maximum(gains, 0)


def ndcg(gains: Gains, ideal: Sequence[Float[np.ndarray, " n"]], depth: int) -> Float[np.ndarray, " queries"]:
    """Return the normalised discounted cumulative gain of the first `depth` ranks; 0 for a query without relevant documents.

    The gain is the grade itself, not a power of 2, and its discount is log2(rank + 1).

    Args:
        gains: The gains of the rankings.
        ideal: For each query, the grades of all relevant documents, the highest first.
        depth: The number of ranks that count.
    """
    discounts = 1 / np.log2(np.arange(2, depth + 2))
    best = np.array([(grades[:depth] * discounts[: len(grades)]).sum() for grades in ideal])
    reached = (gains[:, :depth] * discounts[: gains.shape[1]]).sum(axis=1)
    return np.divide(reached, best, out=np.zeros(len(gains)), where=best > 0)


def reciprocal_rank(gains: Gains, depth: int) -> Float[np.ndarray, " queries"]:
    """Return 1 / rank of the first relevant document; 0 if there is none in the first `depth` ranks."""
    relevant = gains[:, :depth] > 0
    return np.where(relevant.any(axis=1), 1 / (relevant.argmax(axis=1) + 1), 0.0)


def recall(gains: Gains, relevant: Int[np.ndarray, " queries"], depth: int) -> Float[np.ndarray, " queries"]:
    """Return the share of the relevant documents in the first `depth` ranks; 0 for a query without relevant documents."""
    return (gains[:, :depth] > 0).sum(axis=1) / np.maximum(relevant, 1)


def average_precision(gains: Gains, relevant: Int[np.ndarray, " queries"]) -> Float[np.ndarray, " queries"]:
    """Return the mean over all relevant documents of the precision at their ranks; one that is not retrieved counts as 0."""
    hits = gains > 0
    precision = hits.cumsum(axis=1) / np.arange(1, gains.shape[1] + 1)
    return (precision * hits).sum(axis=1) / np.maximum(relevant, 1)


def ordered(run: Run, identity: Callable[[int], str]) -> Run:
    """Return the run as trec_eval orders it: equal scores by the id of the document, the greatest first.

    Args:
        run: A run with scores that do not increase.
        identity: Returns the id of a row of the corpus.
    """
    rows = run.rows.copy()
    has_document = rows != NO_DOCUMENT
    tied = (run.scores[:, 1:] == run.scores[:, :-1]) & has_document[:, 1:]
    for query in np.flatnonzero(tied.any(axis=1)).tolist():
        starts = np.flatnonzero(~np.r_[False, tied[query]])
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), rows.shape[1]], strict=True):
            if end - start > 1:
                rows[query, start:end] = sorted(rows[query, start:end].tolist(), key=identity, reverse=True)
    return run._replace(rows=rows)


def without(run: Run, rows: Int[np.ndarray, " queries"]) -> Run:
    """Return the run without one document of each query; NO_DOCUMENT leaves out none."""
    removed = (run.rows == rows[:, None]) & (rows != NO_DOCUMENT)[:, None]
    order = np.argsort(removed, axis=1, kind="stable")  # moves what is removed to the end
    return Run(
        np.take_along_axis(np.where(removed, NO_DOCUMENT, run.rows), order, axis=1),
        np.take_along_axis(np.where(removed, -np.inf, run.scores), order, axis=1).astype(np.float32),
    )


def fuse(runs: Sequence[Run], depth: int) -> Run:
    """Fuse runs by reciprocal ranks: a document has the sum of 1 / (RANK_CONSTANT + rank) over the runs that retrieved it.

    Args:
        runs: Runs of the same queries.
        depth: The number of ranks that are returned.
    """
    count = len(runs[0].rows)
    fused = Run(np.full((count, depth), NO_DOCUMENT, np.int64), np.zeros((count, depth), np.float32))
    for query in range(count):
        ranked = [run.rows[query][run.rows[query] != NO_DOCUMENT] for run in runs]
        votes = np.concatenate([1 / (RANK_CONSTANT + np.arange(1, len(rows) + 1)) for rows in ranked])
        rows, row_of = np.unique(np.concatenate(ranked), return_inverse=True)
        scores = np.bincount(row_of, votes, len(rows)).astype(np.float32)
        best = np.lexsort((rows, -scores))[:depth]
        fused.rows[query, : len(best)], fused.scores[query, : len(best)] = rows[best], scores[best]
    return fused
