"""Measure how much of a teacher a student keeps: cosine, order of pair similarities, nearest neighbours. No labels are needed."""

from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from jax_sentemb.cosines import unit_length
from jax_sentemb.errors import RETRAIN, NumericsError

AGREEMENT = "agreement/"  # prefix of the measures' names in metrics.jsonl
SELECTING = "agreement/neighbours"  # the measure that selects weights
NEIGHBOURS = 10
MAX_SENTENCES = 2048  # sentences that are compared with each other: 2 million pairs


def agreement(
    student: Float[np.ndarray, "n width"], teacher: Float[np.ndarray, "n target"], mapped: Float[np.ndarray, "n target"] | None
) -> dict[str, float]:
    """Return measures of the agreement of two models on the same sentences; 100 is full agreement.

    Args:
        student: The student's vectors.
        teacher: The teacher's vectors.
        mapped: The student's vectors in the space of the teacher; None if there is no map to it.

    Returns:
        "pairs": Spearman correlation x 100 of the cosines of all pairs of sentences. "neighbours": the share in percent of the ten
        nearest other sentences by the teacher that the student also has among its ten nearest. "cosine", with `mapped`: the mean
        cosine x 100 of the student's and the teacher's vector of a sentence.

    Raises:
        NumericsError: A vector is not finite.
    """
    student_cosines, teacher_cosines = _cosines(student), _cosines(teacher)
    above = np.triu_indices(len(student_cosines), k=1)
    values = {
        "pairs": 100 * _rank_correlation(student_cosines[above], teacher_cosines[above]),
        "neighbours": _shared_neighbours(student_cosines, teacher_cosines),
    }
    if mapped is not None:
        values["cosine"] = float(100 * (_unit(mapped) * _unit(teacher)).sum(1).mean())
    return values


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's correlation; 0 if all values of a side are equal."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    correlation: Any = scipy.stats.spearmanr(first, second)  # SciPy declares no attributes
    return float(correlation.statistic)


def _shared_neighbours(student_cosines: np.ndarray, teacher_cosines: np.ndarray) -> float:
    """Return the percentage of the teacher's nearest neighbours that the student also has."""
    count = min(NEIGHBOURS, len(student_cosines) - 1)
    nearest = []
    for cosines in (student_cosines, teacher_cosines):
        others = cosines.copy()
        np.fill_diagonal(others, -np.inf)
        is_neighbour = np.zeros(others.shape, bool)
        np.put_along_axis(is_neighbour, np.argpartition(-others, count - 1, axis=1)[:, :count], True, axis=1)
        nearest.append(is_neighbour)
    return float(100 * (nearest[0] & nearest[1]).sum(1).mean() / count)


def _cosines(vectors: np.ndarray) -> np.ndarray:
    unit = _unit(vectors)
    return unit @ unit.T


def _unit(vectors: np.ndarray) -> np.ndarray:
    values = np.asarray(vectors, np.float32)
    if not np.isfinite(values).all():
        raise NumericsError(
            f"{(~np.isfinite(values).all(1)).sum()} of {len(values)} embeddings are not finite (NaN or Inf); {RETRAIN}"
        )
    return unit_length(values)
