"""Compare classes with clusters, and scores with the labels 0 and 1."""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int, Shaped


def contingency(
    classes: Int[np.ndarray, " items"], clusters: Int[np.ndarray, " items"], shape: tuple[int, int]
) -> Int[np.ndarray, "classes clusters"]:
    """Return how many items each class and cluster have in common; both are numbered from 0, and `shape` has their counts."""
    return np.bincount(classes * shape[1] + clusters, minlength=shape[0] * shape[1]).reshape(shape)


def v_measure(table: Int[np.ndarray, "classes clusters"]) -> float:
    """Return the harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg 2007), from 0 to 1."""
    joint, of_class, of_cluster = (scipy.stats.entropy(counts) for counts in (table.ravel(), table.sum(1), table.sum(0)))
    shared = max(of_class + of_cluster - joint, 0.0)
    return float(2 * shared / (of_class + of_cluster)) if of_class + of_cluster > 0 else 1.0


def adjusted_rand_index(table: Int[np.ndarray, "classes clusters"]) -> float:
    """Return the share of pairs of items on which classes and clusters agree, adjusted for chance (Hubert and Arabie 1985).

    1 is the same partition; a random one has 0 on average.
    """
    both, in_class, in_cluster, pairs = (
        float((counts * (counts - 1.0) / 2).sum()) for counts in (table, table.sum(1), table.sum(0), table.sum())
    )
    expected = in_class * in_cluster / pairs if pairs else 0.0
    most = (in_class + in_cluster) / 2
    return (both - expected) / (most - expected) if most != expected else 1.0


class BestF1(NamedTuple):
    """The threshold from which on pairs count as positive, and the F1 that it reaches."""

    f1: float
    threshold: float


def average_precision(scores: Float[np.ndarray, " items"], positive: Shaped[np.ndarray, " items"]) -> float:
    """Return the mean precision at the recalls that the thresholds reach; equal scores share a threshold.

    The items need a positive one.
    """
    _, hits, chosen = _thresholds(scores, positive)
    gained = np.diff(hits, prepend=0) / hits[-1]
    return float((gained * hits / chosen).sum())


def best_f1(scores: Float[np.ndarray, " items"], positive: Shaped[np.ndarray, " items"]) -> BestF1:
    """Return the largest F1 of all thresholds, with the threshold halfway to the next lower score."""
    values, hits, chosen = _thresholds(scores, positive)
    f1 = 2 * hits / (chosen + hits[-1])
    best = int(f1.argmax())
    return BestF1(float(f1[best]), float((values[best] + values[min(best + 1, len(values) - 1)]) / 2))


def _thresholds(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct scores, the highest first, and how many positive and how many items are at or above each."""
    order = np.argsort(-scores, kind="stable")
    sorted_scores = scores[order]
    ends = np.flatnonzero(np.r_[sorted_scores[1:] != sorted_scores[:-1], True])
    return sorted_scores[ends], np.cumsum(positive[order])[ends], ends + 1
