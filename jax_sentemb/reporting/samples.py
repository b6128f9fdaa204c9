"""Collect samples of an encoder for the report: nearest neighbours, cosines of any two sentences, similarities over gold scores.

They are numbers and texts, small enough for JSON. The report is drawn from them without a model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jax_sentemb.cosines import unit_length
from jax_sentemb.evaluation.sts import TaskSimilarities
from jax_sentemb.evaluation.sts_data import StsTask
from jax_sentemb.reporting.plots import gold_ranges

QUERIES, NEAREST = 8, 3  # sentences that are shown, and neighbours of each
LONGEST = 300  # characters of a sentence that are stored
BINS = 50  # of the histogram, over cosines from -1 to 1
DOTS = 300  # pairs of a set that are stored; ranges include all pairs


def collect_samples(
    vectors: Mapping[str, Float[np.ndarray, " width"]],
    similarities: TaskSimilarities,
    tasks: Mapping[str, StsTask],
) -> dict[str, Any]:
    """Return {"neighbours", "cosines", "pairs"} of an encoder, from the functions `neighbours`, `cosines` and `against_gold`.

    Args:
        vectors: Sentence -> its embedding. If it is empty, the result has only "pairs".
        similarities: Those of the sets that are shown.
        tasks: The sets, with their gold scores.
    """
    samples: dict[str, Any] = {}
    if len(vectors) > NEAREST:
        unit = unit_length(np.stack([*vectors.values()]).astype(np.float32))
        samples = {"neighbours": neighbours(unit, [*vectors]), "cosines": cosines(unit)}
    gold = {name: np.concatenate([pairs.gold for pairs in task.subsets.values()]) for name, task in tasks.items()}
    return {
        **samples,
        "pairs": {name: against_gold(np.concatenate([*subsets.values()]), gold[name]) for name, subsets in similarities.items()},
    }


def neighbours(vectors: Float[np.ndarray, "sentences width"], sentences: Sequence[str]) -> dict[str, Any]:
    """Return the nearest neighbours of sentences that are spread evenly over all sentences.

    Args:
        vectors: Unit vectors.
        sentences: Their texts.

    Returns:
        {"among": number of sentences, "queries": [{"sentence", "nearest": [[cosine, sentence], ...]}]}, the nearest neighbour
        first.
    """
    queries = np.unique(np.linspace(0, len(sentences) - 1, QUERIES).astype(int))
    cosine = vectors[queries] @ vectors.T
    cosine[np.arange(len(queries)), queries] = -np.inf
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :NEAREST]
    return {
        "among": len(sentences),
        "queries": [
            {
                "sentence": sentences[query][:LONGEST],
                "nearest": [[round(float(row[neighbour]), 4), sentences[neighbour][:LONGEST]] for neighbour in nearest],
            }
            for query, row, nearest in zip(queries.tolist(), cosine, order.tolist(), strict=True)
        ],
    }


def cosines(vectors: Float[np.ndarray, "sentences width"]) -> dict[str, Any]:
    """Return {"mean", "counts" [BINS]}: the histogram from -1 to 1 of the cosine of all pairs of unit vectors [N, E]."""
    counts, total = np.zeros(BINS, int), 0.0
    for row in range(len(vectors) - 1):  # one row at a time, so that little memory is needed
        values = vectors[row + 1 :] @ vectors[row]
        counts += np.histogram(np.clip(values, -1, 1), BINS, (-1, 1))[0]
        total += float(values.sum(dtype=np.float64))
    return {"mean": total / int(counts.sum()), "counts": counts.tolist()}


def against_gold(values: Float[np.ndarray, " pairs"], gold: Float[np.ndarray, " pairs"]) -> dict[str, Any]:
    """Return similarities and gold scores of a set's pairs, ready to draw.

    Returns:
        {"n", "dots" [[gold, similarity], ...], "ranges" [[centre, pairs, [5, 25, 50, 75, 95th percentile]], ...]}. Dots are up to
        DOTS pairs, drawn at random. Ranges of gold scores contain all pairs.
    """
    dot_rows = np.sort(np.random.default_rng(0).choice(len(gold), min(DOTS, len(gold)), replace=False))
    _, centres, range_of = gold_ranges(gold)
    return {
        "n": len(gold),
        "dots": [[float(f"{value:.5g}") for value in (gold[row], values[row])] for row in dot_rows],
        "ranges": [
            [
                float(centres[number]),
                int((range_of == number).sum()),
                np.percentile(values[range_of == number], [5, 25, 50, 75, 95]).tolist(),
            ]
            for number in np.unique(range_of)
        ],
    }
