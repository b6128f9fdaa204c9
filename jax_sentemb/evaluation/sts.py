"""Semantic textual similarity: correlation of similarities with gold scores.

One correlation over all pairs of a year ("all") next to mean and weighted mean over the year's subsets; papers
differ in which of these they print: see PROTOCOLS.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax
from scipy.stats import pearsonr, rankdata, spearmanr

from jax_sentemb.errors import NumericsError
from jax_sentemb.evaluation.postprocess import remove_first_component
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask
from jax_sentemb.inference.views import NO_VIEWS, Views

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
SAME_COSINE = 1e-9  # cosines that differ by less come from float32 rounding of equal vectors: their order means nothing


class StsProtocol(NamedTuple):
    """Which of a set's correlations is its score."""

    name: str
    correlation: str  # "spearman" or "pearson"
    aggregate: str  # "all", "mean" or "wmean"
    remove_first_component: bool = False  # of each side of the pairs of a subset, then unit length
    smt: bool = False  # STS13 counts its subset SMT, where the files are there


PROTOCOLS = {
    # Gao et al. 2021, and Reimers and Gurevych 2019, IS-BERT, miCSE.
    "simcse": StsProtocol("simcse", "spearman", "all"),
    # Conneau and Kiela 2018.
    "senteval": StsProtocol("senteval", "pearson", "mean"),
    # Tang and de Sa 2019.
    "multiview": StsProtocol("multiview", "pearson", "mean", remove_first_component=True, smt=True),
}


def score_sts(embed: Callable[[Sequence[str]], np.ndarray], task: StsTask) -> dict:
    """The scores of one set; see `score_tasks`."""
    return score_tasks(embed, {task.name: task})[task.name]


def score_tasks(embed: Callable[[Sequence[str]], np.ndarray], tasks: dict[str, StsTask]) -> dict[str, dict]:
    """Correlations x 100 of cosine with gold for every set; each distinct sentence of all goes to `embed` once.

    A set's result is {"n": pairs, "spearman": {...}, "pearson": {...}}, each with "all" (one correlation over all
    pairs), "mean" and "wmean" (over the subsets, plain and weighted by pairs) and "subsets" {subset: correlation}.
    NumericsError where embeddings are not finite or all cosines agree, so that no correlation exists.
    """
    return correlate_tasks(task_cosines(embed, tasks), tasks)


TaskSimilarities = dict[str, dict[str, np.ndarray]]  # set -> subset -> float64 [pairs]


def task_cosines(embed: Callable[[Sequence[str]], np.ndarray], tasks: dict[str, StsTask]) -> TaskSimilarities:
    """The cosine of every pair; each distinct sentence goes to `embed` once. NumericsError where embeddings are not finite."""
    every = (side for task in tasks.values() for pairs in task.subsets.values() for side in (pairs.first, pairs.second))
    place = {sentence: index for index, sentence in enumerate(dict.fromkeys(s for side in every for s in side))}
    vectors = _unit_length(np.asarray(embed(list(place)), np.float64), ", ".join(tasks))

    def cosines(pairs: ScoredPairs) -> np.ndarray:
        first, second = ([place[sentence] for sentence in side] for side in (pairs.first, pairs.second))
        return similarity(vectors[first], vectors[second], "dot")

    return _of_subsets(cosines, tasks)


def task_pair_scores(score: Callable[[Sequence[tuple[str, str]]], np.ndarray], tasks: dict[str, StsTask]) -> TaskSimilarities:
    """As `task_cosines`, of a model that maps pairs of sentences to scores [N]."""

    def scores(pairs: ScoredPairs) -> np.ndarray:
        found = np.asarray(score(list(zip(pairs.first, pairs.second, strict=True))), np.float64)
        if not np.isfinite(found).all():
            raise NumericsError(f"{', '.join(tasks)}: scores of pairs are not finite (NaN or Inf)")
        return found

    return _of_subsets(scores, tasks)


def score_of_pair(outputs: np.ndarray) -> np.ndarray:
    """One score a pair [N] of a cross-encoder: its output [N, 1], or of logits [N, C] the log probability of the first class."""
    return outputs[:, 0] if outputs.shape[1] == 1 else log_softmax(np.asarray(outputs, np.float64), axis=1)[:, 0]


def correlate_tasks(found: TaskSimilarities, tasks: dict[str, StsTask]) -> dict[str, dict]:
    """The results of `score_tasks` from similarities of the pairs."""
    return {
        name: _correlations(name, {subset: (found[name][subset], pairs.gold) for subset, pairs in task.subsets.items()})
        for name, task in tasks.items()
    }


def _of_subsets(similarities: Callable[[ScoredPairs], np.ndarray], tasks: dict[str, StsTask]) -> TaskSimilarities:
    return {name: {subset: similarities(pairs) for subset, pairs in task.subsets.items()} for name, task in tasks.items()}


Similarities = dict[str, dict[str, np.ndarray]]  # kind -> subset -> float64 [pairs]


def pair_similarities(
    vectors: np.ndarray, place: dict[str, int], task: StsTask, protocol: StsProtocol, views: Views = NO_VIEWS
) -> Similarities:
    """Every kind of similarity of the pairs of one set; `place` maps a sentence to its row of `vectors` [n, E].

    Where embeddings consist of views, `vectors` are these, and a protocol's removal is of each view. NumericsError where embeddings
    are not finite.
    """
    vectors = np.asarray(vectors, np.float64)
    _unit_length(vectors, task.name)  # refuses what is not finite
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
    """The score of one set under a protocol, its 95 % bootstrap interval, and what every other choice would have given.

    {"score", "interval" [low, high] (percentiles over `resamples` draws of pairs, within each subset for the means; none
    with 0 draws), "sizes" {subset: pairs}, and for each kind of similarity {"spearman", "pearson"} as in `score_tasks`}.
    The score is that of the cosine. All x 100. NumericsError where all pairs are equally similar.
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


def similarity(first: np.ndarray, second: np.ndarray, kind: str = "cosine") -> np.ndarray:
    """Similarity of each pair of rows, float64 [N]; distances are negated, so that more is more alike."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if kind == "cosine":
        first, second = _unit_length(first, "cosine"), _unit_length(second, "cosine")
    if kind in ("cosine", "dot"):
        # Rounded, so that a sentence with itself is exactly as similar as any other with itself: a tie, not noise.
        return np.einsum("ne,ne->n", first, second).round(12)
    if kind == "euclidean":
        return -np.linalg.norm(first - second, axis=1).round(12)
    if kind == "manhattan":
        return -np.abs(first - second).sum(axis=1).round(12)
    raise ValueError(f"similarity {kind!r} is not one of {', '.join(SIMILARITIES)}")


def _bootstrap(subsets: list[tuple[np.ndarray, np.ndarray]], protocol: StsProtocol, resamples: int) -> list[float]:
    """The 2.5th and 97.5th percentile of the protocol's score over draws of pairs with replacement."""
    random = np.random.default_rng(0)
    if protocol.aggregate == "all":
        subsets = [tuple(np.concatenate(side) for side in zip(*subsets, strict=True))]  # type: ignore[list-item]
    weights = [len(gold) if protocol.aggregate == "wmean" else 1 for _, gold in subsets]
    scores = []
    for values, gold in subsets:
        draws = []
        for first in range(0, resamples, 100):  # in portions: a draw needs a row of memory
            rows = random.integers(len(gold), size=(min(100, resamples - first), len(gold)))
            found, wanted = values[rows], gold[rows]
            if protocol.correlation == "spearman":
                found, wanted = rankdata(found, axis=1), rankdata(wanted, axis=1)
            found = found - found.mean(axis=1, keepdims=True)
            wanted = wanted - wanted.mean(axis=1, keepdims=True)
            norm = np.sqrt(np.square(found).sum(axis=1) * np.square(wanted).sum(axis=1))
            draws.append((found * wanted).sum(axis=1) / np.where(norm > 0, norm, 1.0))
        scores.append(np.concatenate(draws))
    low, high = np.percentile(np.average(scores, axis=0, weights=weights), [2.5, 97.5])
    return [100 * float(low), 100 * float(high)]


def _correlations(name: str, subsets: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict:
    everything = tuple(np.concatenate(side) for side in zip(*subsets.values(), strict=True))
    counts = [len(gold) for _, gold in subsets.values()]
    result: dict[str, Any] = {"n": sum(counts)}
    for key, correlation in (("spearman", spearmanr), ("pearson", pearsonr)):
        scores = {subset: _correlate(correlation, f"{name} {subset}", *pair) for subset, pair in subsets.items()}
        result[key] = {
            "all": _correlate(correlation, name, *everything),
            "mean": float(np.mean(list(scores.values()))),
            "wmean": float(np.average(list(scores.values()), weights=counts)),
            "subsets": scores,
        }
    return result


def _correlate(correlation: Callable, where: str, cosine: np.ndarray, gold: np.ndarray) -> float:
    if np.ptp(cosine) < SAME_COSINE:
        raise NumericsError(f"{where}: all {len(cosine)} pairs are equally similar, {cosine[0]:.6f}: the embeddings collapsed")
    return 100 * float(correlation(cosine, gold).statistic)


def _unit_length(vectors: np.ndarray, where: str) -> np.ndarray:
    """Rows of length 1; a zero row stays zero, so that its cosines are 0, as in SentEval."""
    bad = ~np.isfinite(vectors).all(axis=-1)
    if bad.any():
        raise NumericsError(f"{where}: {bad.sum()} of {len(vectors)} sentence embeddings are not finite (NaN or Inf)")
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
