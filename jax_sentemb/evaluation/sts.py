"""Semantic textual similarity: correlation of similarities with gold scores.

A score is one correlation over all pairs of a year ("all"), or the mean or weighted mean over the subsets of the year. Papers
report different ones of these: see PROTOCOLS.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy  # which imports its parts when they are used: a second of every start
from jaxtyping import Float, Real

from jax_sentemb.cosines import unit_length
from jax_sentemb.errors import ConfigError, DataError, NumericsError
from jax_sentemb.evaluation.postprocess import remove_first_component
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask
from jax_sentemb.inference.views import NO_VIEWS, Views

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
SAME_COSINE = 1e-9  # smaller differences of cosines are float32 rounding errors of equal vectors
Embed = Callable[[Sequence[str]], Float[np.ndarray, "sentences width"]]


class StsProtocol(NamedTuple):
    """Defines which of the correlations of a set is its score."""

    name: str
    correlation: str  # "spearman" or "pearson"
    aggregate: str  # "all", "mean" or "wmean"
    remove_first_component: bool = False  # of each side of the pairs of a subset, before scaling to unit length
    smt: bool = False  # include the subset SMT of STS13 if its files are present


PROTOCOLS = {
    # Gao et al. 2021, and Reimers and Gurevych 2019, IS-BERT, miCSE.
    "simcse": StsProtocol("simcse", "spearman", "all"),
    # Conneau and Kiela 2018.
    "senteval": StsProtocol("senteval", "pearson", "mean"),
    # Tang and de Sa 2019.
    "multiview": StsProtocol("multiview", "pearson", "mean", remove_first_component=True, smt=True),
}


TaskSimilarities = dict[str, dict[str, Float[np.ndarray, " _"]]]  # set -> subset -> float64 [pairs]


def task_cosines(embed: Embed, tasks: dict[str, StsTask]) -> TaskSimilarities:
    """The cosine of every pair. `embed` gets each distinct sentence once. NumericsError if embeddings are not finite."""
    every = (side for task in tasks.values() for pairs in task.subsets.values() for side in (pairs.first, pairs.second))
    place = {sentence: index for index, sentence in enumerate(dict.fromkeys(s for side in every for s in side))}
    vectors = _unit_length(np.asarray(embed(list(place)), np.float64), ", ".join(tasks))

    def cosines(pairs: ScoredPairs) -> np.ndarray:
        first, second = ([place[sentence] for sentence in side] for side in (pairs.first, pairs.second))
        return similarity(vectors[first], vectors[second], "dot")

    return _of_subsets(cosines, tasks)


def task_pair_scores(
    score: Callable[[Sequence[tuple[str, str]]], Float[np.ndarray, " pairs"]], tasks: dict[str, StsTask]
) -> TaskSimilarities:
    """Same as `task_cosines`, for a model that maps pairs of sentences to scores."""

    def scores(pairs: ScoredPairs) -> np.ndarray:
        found = np.asarray(score(list(zip(pairs.first, pairs.second, strict=True))), np.float64)
        if not np.isfinite(found).all():
            raise NumericsError(f"{', '.join(tasks)}: scores of pairs are not finite (NaN or Inf)")
        return found

    return _of_subsets(scores, tasks)


def score_of_pair(outputs: Float[np.ndarray, "pairs outputs"]) -> Float[np.ndarray, " pairs"]:
    """One score for each pair of a cross-encoder: its single output, or the log probability of the first class."""
    return outputs[:, 0] if outputs.shape[1] == 1 else scipy.special.log_softmax(np.asarray(outputs, np.float64), axis=1)[:, 0]


def correlate_tasks(found: TaskSimilarities, tasks: dict[str, StsTask]) -> dict[str, dict[str, Any]]:
    """Correlations x 100 of similarities with gold scores for every set.

    The result of a set is {"n": pairs, "spearman": {...}, "pearson": {...}}, each with "all" (one correlation over all pairs),
    "mean" and "wmean" (over the subsets, unweighted and weighted by pairs) and "subsets" {subset: correlation}. NumericsError if
    all similarities of a set or subset are equal.
    """
    return {
        name: _correlations(name, {subset: (found[name][subset], pairs.gold) for subset, pairs in task.subsets.items()})
        for name, task in tasks.items()
    }


def _of_subsets(similarities: Callable[[ScoredPairs], np.ndarray], tasks: dict[str, StsTask]) -> TaskSimilarities:
    return {name: {subset: similarities(pairs) for subset, pairs in task.subsets.items()} for name, task in tasks.items()}


Similarities = dict[str, dict[str, Float[np.ndarray, " _"]]]  # kind -> subset -> float64 [pairs]


def pair_similarities(
    vectors: Real[np.ndarray, "sentences width"],
    place: dict[str, int],
    task: StsTask,
    protocol: StsProtocol,
    views: Views = NO_VIEWS,
) -> Similarities:
    """Every kind of similarity of the pairs of one set; `place` maps a sentence to its row of `vectors`.

    If embeddings consist of views, `vectors` has the views, and the first component is removed from each view. NumericsError if
    embeddings are not finite.
    """
    vectors = np.asarray(vectors, np.float64)
    _unit_length(vectors, task.name)  # raises NumericsError for vectors that are not finite
    if not protocol.remove_first_component:
        vectors = views.joined(vectors)
    found: Similarities = {kind: {} for kind in SIMILARITIES}
    for subset, pairs in task.subsets.items():
        first, second = (vectors[[place[sentence] for sentence in side]] for side in (pairs.first, pairs.second))
        if protocol.remove_first_component:
            sides = (views.joined(views.each(remove_first_component, side)) for side in (first, second))
            first, second = (_unit_length(side, task.name) for side in sides)
        for kind in SIMILARITIES:
            found[kind][subset] = similarity(first, second, kind)
    return found


def score_protocol(task: StsTask, similarities: Similarities, protocol: StsProtocol, resamples: int = 1000) -> dict[str, Any]:
    """The score of one set under a protocol, its 95 % bootstrap interval, and the scores under all other choices.

    {"score", "interval" [low, high] (percentiles over `resamples` draws of pairs, within each subset for the means; absent with 0
    draws), "sizes" {subset: pairs}, and for each kind of similarity {"spearman", "pearson"} as in `correlate_tasks`}. The score
    uses the cosine. All values are x 100. NumericsError if all pairs are equally similar.
    """
    sizes = {subset: len(pairs.gold) for subset, pairs in task.subsets.items()}
    values = {
        kind: {subset: (found, task.subsets[subset].gold) for subset, found in subsets.items()}
        for kind, subsets in similarities.items()
    }
    result = {kind: _correlations(task.name, subsets) for kind, subsets in values.items()}
    score = result["cosine"][protocol.correlation][protocol.aggregate]
    interval = {"interval": _bootstrap(list(values["cosine"].values()), protocol, resamples)} if resamples else {}
    return {"score": score, **interval, "sizes": sizes, **result}


def similarity(
    first: Real[np.ndarray, "pairs width"], second: Real[np.ndarray, "pairs width"], kind: str = "cosine"
) -> Float[np.ndarray, " pairs"]:
    """Similarity of each pair of rows, float64. Distances are negated, so a greater value is more similar."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if kind == "cosine":
        first, second = _unit_length(first, "cosine"), _unit_length(second, "cosine")
    if kind in ("cosine", "dot"):
        # Rounding makes the similarities of equal sentences exactly equal, so that they are ties in a rank correlation.
        return np.einsum("ne,ne->n", first, second).round(12)
    if kind == "euclidean":
        return -np.linalg.norm(first - second, axis=1).round(12)
    if kind == "manhattan":
        return -np.abs(first - second).sum(axis=1).round(12)
    raise ConfigError(f"similarity={kind!r}: must be one of {', '.join(SIMILARITIES)}")


def _bootstrap(subsets: list[tuple[np.ndarray, np.ndarray]], protocol: StsProtocol, resamples: int) -> list[float]:
    """The 2.5th and 97.5th percentile of the protocol's score over draws of pairs with replacement."""
    random = np.random.default_rng(0)
    if protocol.aggregate == "all":
        values, gold = (np.concatenate(side) for side in zip(*subsets, strict=True))
        subsets = [(values, gold)]
    weights = [len(gold) if protocol.aggregate == "wmean" else 1 for _, gold in subsets]
    scores = []
    for values, gold in subsets:
        draws = []
        for first in range(0, resamples, 100):  # in portions, because each draw needs a row of memory
            rows = random.integers(len(gold), size=(min(100, resamples - first), len(gold)))
            found, wanted = values[rows], gold[rows]
            if protocol.correlation == "spearman":
                found, wanted = scipy.stats.rankdata(found, axis=1), scipy.stats.rankdata(wanted, axis=1)
            found = found - found.mean(axis=1, keepdims=True)
            wanted = wanted - wanted.mean(axis=1, keepdims=True)
            norm = np.sqrt(np.square(found).sum(axis=1) * np.square(wanted).sum(axis=1))
            draws.append((found * wanted).sum(axis=1) / np.where(norm > 0, norm, 1.0))
        scores.append(np.concatenate(draws))
    low, high = np.percentile(np.average(scores, axis=0, weights=weights), [2.5, 97.5])
    return [100 * float(low), 100 * float(high)]


def _correlations(name: str, subsets: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    everything = tuple(np.concatenate(side) for side in zip(*subsets.values(), strict=True))
    counts = [len(gold) for _, gold in subsets.values()]
    result: dict[str, Any] = {"n": sum(counts)}
    for key, correlation in (("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)):
        scores = {subset: _correlate(correlation, f"{name} {subset}", *pair) for subset, pair in subsets.items()}
        result[key] = {
            "all": _correlate(correlation, name, *everything),
            "mean": float(np.mean(list(scores.values()))),
            "wmean": float(np.average(list(scores.values()), weights=counts)),
            "subsets": scores,
        }
    return result


def _correlate(correlation: Callable[..., Any], where: str, cosine: np.ndarray, gold: np.ndarray) -> float:
    if np.ptp(gold) == 0:
        raise DataError(f"{where}: all {len(gold)} pairs have the gold score {gold[0]:g}: give pairs with different scores")
    if np.ptp(cosine) < SAME_COSINE:
        raise NumericsError(f"{where}: all {len(cosine)} pairs have the similarity {cosine[0]:.6f}: the embeddings collapsed")
    return 100 * float(correlation(cosine, gold).statistic)


def _unit_length(vectors: np.ndarray, where: str) -> np.ndarray:
    """Rows of length 1. A zero row stays zero, so its cosines are 0, as in SentEval. NumericsError for rows that are not finite."""
    bad = ~np.isfinite(vectors).all(axis=-1)
    if bad.any():
        raise NumericsError(f"{where}: {bad.sum()} of {len(vectors)} sentence embeddings are not finite (NaN or Inf)")
    return unit_length(vectors)
