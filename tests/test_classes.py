"""Clusters against classes and scores against 0 and 1: the numbers of scikit-learn and sentence-transformers."""

import numpy as np
import pytest

from jax_sentemb.evaluation.classes import adjusted_rand_index, average_precision, best_f1, contingency, v_measure

metrics = pytest.importorskip("sklearn.metrics")


@pytest.mark.parametrize(("classes", "clusters"), [(3, 4), (5, 2), (1, 3), (4, 1), (1, 1)])
def test_clusters_are_compared_as_in_scikit_learn(classes, clusters):
    random = np.random.default_rng(0)
    truth, found = random.integers(classes, size=80), random.integers(clusters, size=80)
    found[:40] = truth[:40] % clusters
    table = contingency(truth, found, (classes, clusters))
    assert v_measure(table) == pytest.approx(metrics.v_measure_score(truth, found), abs=1e-9)
    assert adjusted_rand_index(table) == pytest.approx(metrics.adjusted_rand_score(truth, found), abs=1e-9)


def test_the_same_partition_has_the_best_values():
    table = contingency(np.array([0, 0, 1, 2]), np.array([2, 2, 0, 1]), (3, 3))
    assert (v_measure(table), adjusted_rand_index(table)) == pytest.approx((1, 1))


@pytest.mark.parametrize("levels", [4, 1000])
def test_average_precision_is_that_of_scikit_learn(levels):
    random = np.random.default_rng(levels)
    positive = random.random(200) < 0.3
    scores = (random.integers(levels, size=200) + positive * levels / 3) / levels
    assert average_precision(scores, positive) == pytest.approx(metrics.average_precision_score(positive, scores), abs=1e-9)
    candidates = [metrics.f1_score(positive, scores >= threshold) for threshold in np.unique(scores)]
    best = best_f1(scores, positive)
    assert best.f1 == pytest.approx(max(candidates), abs=1e-9)
    assert metrics.f1_score(positive, scores >= best.threshold) == pytest.approx(best.f1, abs=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_f1_and_threshold_are_those_of_sentence_transformers():
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    find = evaluation.BinaryClassificationEvaluator.find_best_f1_and_threshold
    random = np.random.default_rng(5)
    positive = random.random(100) < 0.4
    scores = random.random(100) + 0.5 * positive
    f1, _, _, threshold = find(scores, positive, True)
    assert best_f1(scores, positive) == pytest.approx((f1, threshold))


def test_the_lowest_score_may_be_the_threshold():
    assert best_f1(np.array([0.5, 0.2]), np.array([True, True])) == (1.0, 0.2)
