"""Score semantic textual similarity: correlate similarities with gold scores.

A score is one correlation over all pairs of a year ("all"), or the mean or weighted mean over the subsets of the year. Papers
report different scores: see PROTOCOLS.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy  # imports its submodules when they are used, which saves a second at every start
from jaxtyping import Float, Real

from jax_sentemb.cosines import unit_length
from jax_sentemb.errors import RETRAIN, ConfigError, DataError, NumericsError
from jax_sentemb.evaluation.postprocess import remove_first_component
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask
from jax_sentemb.formats.encode_settings import SIMILARITIES
from jax_sentemb.inference.views import NO_VIEWS, Views

SAME_COSINE = 1e-9  # smaller differences of cosines are float32 rounding errors of equal vectors
Embed = Callable[[Sequence[str]], Float[np.ndarray, "sentences width"]]
# A model that may have prompts: its first argument is the role of the texts, "query", "document", or "" for any other.
EmbedAs = Callable[[str, Sequence[str]], Float[np.ndarray, "sentences width"]]


class StsProtocol(NamedTuple):
    """The correlation of a set that is its score."""

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
    """Return the cosine of every pair. `embed` gets each distinct sentence once.

    Raises:
        NumericsError: An embedding is not finite.
    """
    sides = (side for task in tasks.values() for pairs in task.subsets.values() for side in (pairs.first, pairs.second))
    row_of = {sentence: index for index, sentence in enumerate(dict.fromkeys(s for side in sides for s in side))}
    vectors = _unit_length(np.asarray(embed(list(row_of)), np.float64), ", ".join(tasks))

    def cosines(pairs: ScoredPairs) -> np.ndarray:
        first, second = ([row_of[sentence] for sentence in side] for side in (pairs.first, pairs.second))
        return similarity(vectors[first], vectors[second], "dot")

    return _of_subsets(cosines, tasks)


def task_pair_scores(
    score: Callable[[Sequence[tuple[str, str]]], Float[np.ndarray, " pairs"]], tasks: dict[str, StsTask]
) -> TaskSimilarities:
    """Return the same as `task_cosines`, for a model that maps pairs of sentences to scores."""

    def scores(pairs: ScoredPairs) -> np.ndarray:
        values = np.asarray(score(list(zip(pairs.first, pairs.second, strict=True))), np.float64)
        if not np.isfinite(values).all():
            raise NumericsError(f"{', '.join(tasks)}: scores of pairs are not finite (NaN or Inf); {RETRAIN}")
        return values

    return _of_subsets(scores, tasks)


def score_of_pair(outputs: Float[np.ndarray, "pairs outputs"]) -> Float[np.ndarray, " pairs"]:
    """Return one score for each pair of a cross-encoder: its single output, or the log probability of the first class."""
    return outputs[:, 0] if outputs.shape[1] == 1 else scipy.special.log_softmax(np.asarray(outputs, np.float64), axis=1)[:, 0]


def correlate_tasks(similarities: TaskSimilarities, tasks: dict[str, StsTask]) -> dict[str, dict[str, Any]]:
    """Correlate the similarities of every set with its gold scores.

    Args:
        similarities: The similarities of each set, as `task_cosines` returns them.
        tasks: The sets with their gold scores.

    Returns:
        {"n": pairs, "spearman": {...}, "pearson": {...}} for each set, with correlations x 100: "all" (one correlation over all
        pairs), "mean" and "wmean" (over the subsets, unweighted and weighted by pairs) and "subsets" {subset: correlation}.

    Raises:
        NumericsError: All similarities of a set or subset are equal.
    """
    return {
        name: _correlations(name, {subset: (similarities[name][subset], pairs.gold) for subset, pairs in task.subsets.items()})
        for name, task in tasks.items()
    }


def _of_subsets(similarities: Callable[[ScoredPairs], np.ndarray], tasks: dict[str, StsTask]) -> TaskSimilarities:
    return {name: {subset: similarities(pairs) for subset, pairs in task.subsets.items()} for name, task in tasks.items()}


Similarities = dict[str, dict[str, Float[np.ndarray, " _"]]]  # element of SIMILARITIES -> subset -> float64 [pairs]


def pair_similarities(
    vectors: Real[np.ndarray, "sentences width"],
    row_of: dict[str, int],
    task: StsTask,
    protocol: StsProtocol,
    views: Views = NO_VIEWS,
) -> Similarities:
    """Return all SIMILARITIES of the pairs of one set.

    Args:
        vectors: The embeddings of the distinct sentences. If embeddings consist of views, the views; the first component is then
            removed from each view.
        row_of: The row of each sentence.
        task: The set.
        protocol: Whether to remove the first component.
        views: The views of which the embeddings consist.

    Raises:
        NumericsError: An embedding is not finite.
    """
    vectors = np.asarray(vectors, np.float64)
    _unit_length(vectors, task.name)  # raises NumericsError for vectors that are not finite
    if not protocol.remove_first_component:
        vectors = views.joined(vectors)
    by_measure: Similarities = {measure: {} for measure in SIMILARITIES}
    for subset, pairs in task.subsets.items():
        first, second = (vectors[[row_of[sentence] for sentence in side]] for side in (pairs.first, pairs.second))
        if protocol.remove_first_component:
            sides = (views.joined(views.each(remove_first_component, side)) for side in (first, second))
            first, second = (_unit_length(side, task.name) for side in sides)
        for measure in SIMILARITIES:
            by_measure[measure][subset] = similarity(first, second, measure)
    return by_measure


def score_protocol(task: StsTask, similarities: Similarities, protocol: StsProtocol, resamples: int = 1000) -> dict[str, Any]:
    """Score one set under a protocol, and under all other choices.

    The score uses the cosine. All values are x 100.

    Args:
        task: The set.
        similarities: The similarities that `pair_similarities` returns.
        protocol: The correlation that is the score.
        resamples: Bootstrap draws of pairs, within each subset for the means.

    Returns:
        {"score", "interval" [low, high] (95 %, percentiles over the draws; absent with 0 draws), "sizes" {subset: pairs}, and for
        each of SIMILARITIES {"spearman", "pearson"} as in `correlate_tasks`}.

    Raises:
        NumericsError: All pairs are equally similar.
    """
    sizes = {subset: len(pairs.gold) for subset, pairs in task.subsets.items()}
    values = {
        measure: {subset: (subset_values, task.subsets[subset].gold) for subset, subset_values in subsets.items()}
        for measure, subsets in similarities.items()
    }
    result = {measure: _correlations(task.name, subsets) for measure, subsets in values.items()}
    score = result["cosine"][protocol.correlation][protocol.aggregate]
    interval = {"interval": _bootstrap(list(values["cosine"].values()), protocol, resamples)} if resamples else {}
    return {"score": score, **interval, "sizes": sizes, **result}


def similarity(
    first: Real[np.ndarray, "pairs width"], second: Real[np.ndarray, "pairs width"], measure: str = "cosine"
) -> Float[np.ndarray, " pairs"]:
    """Return the similarity of each pair of rows, float64. Distances are negated, so a greater value is more similar."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if measure == "cosine":
        first, second = _unit_length(first, "cosine"), _unit_length(second, "cosine")
    if measure in ("cosine", "dot"):
        # Rounding makes the similarities of equal sentences exactly equal, so they are ties in a rank correlation.
        return np.einsum("ne,ne->n", first, second).round(12)
    if measure == "euclidean":
        return -np.linalg.norm(first - second, axis=1).round(12)
    if measure == "manhattan":
        return -np.abs(first - second).sum(axis=1).round(12)
    raise ConfigError(f"similarity={measure!r}: must be one of {', '.join(SIMILARITIES)}")


def _bootstrap(subsets: list[tuple[np.ndarray, np.ndarray]], protocol: StsProtocol, resamples: int) -> list[float]:
    """Return the 2.5th and 97.5th percentile of the protocol's score over draws of pairs with replacement."""
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
            drawn_values, drawn_gold = values[rows], gold[rows]
            if protocol.correlation == "spearman":
                drawn_values, drawn_gold = scipy.stats.rankdata(drawn_values, axis=1), scipy.stats.rankdata(drawn_gold, axis=1)
            drawn_values = drawn_values - drawn_values.mean(axis=1, keepdims=True)
            drawn_gold = drawn_gold - drawn_gold.mean(axis=1, keepdims=True)
            norm = np.sqrt(np.square(drawn_values).sum(axis=1) * np.square(drawn_gold).sum(axis=1))
            draws.append((drawn_values * drawn_gold).sum(axis=1) / np.where(norm > 0, norm, 1.0))
        scores.append(np.concatenate(draws))
    low, high = np.percentile(np.average(scores, axis=0, weights=weights), [2.5, 97.5])
    return [100 * float(low), 100 * float(high)]


def _correlations(name: str, subsets: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    all_pairs = tuple(np.concatenate(side) for side in zip(*subsets.values(), strict=True))
    counts = [len(gold) for _, gold in subsets.values()]
    result: dict[str, Any] = {"n": sum(counts)}
    for key, correlation in (("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)):
        scores = {subset: _correlate(correlation, f"{name} {subset}", *pair) for subset, pair in subsets.items()}
        result[key] = {
            "all": _correlate(correlation, name, *all_pairs),
            "mean": float(np.mean(list(scores.values()))),
            "wmean": float(np.average(list(scores.values()), weights=counts)),
            "subsets": scores,
        }
    return result


def _correlate(correlation: Callable[..., Any], name: str, cosine: np.ndarray, gold: np.ndarray) -> float:
    if np.ptp(gold) == 0:
        raise DataError(f"{name}: all {len(gold)} pairs have the gold score {gold[0]:g}: give pairs with different scores")
    if np.ptp(cosine) < SAME_COSINE:
        raise NumericsError(
            f"{name}: all {len(cosine)} pairs have the similarity {cosine[0]:.6f}: the embeddings collapsed; {RETRAIN}"
        )
    return 100 * float(correlation(cosine, gold).statistic)


def _unit_length(vectors: np.ndarray, name: str) -> np.ndarray:
    """Return rows of length 1. A zero row stays zero, so its cosines are 0, as in SentEval.

    Raises:
        NumericsError: A row is not finite.
    """
    is_bad = ~np.isfinite(vectors).all(axis=-1)
    if is_bad.any():
        raise NumericsError(f"{name}: {is_bad.sum()} of {len(vectors)} sentence embeddings are not finite (NaN or Inf); {RETRAIN}")
    return unit_length(vectors)
