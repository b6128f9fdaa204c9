"""The batched logistic regression against scikit-learn's Newton solver."""

import numpy as np
import pytest

from jax_sentemb.errors import NumericsError
from jax_sentemb.evaluation import logistic

linear_model = pytest.importorskip("sklearn.linear_model")

C = np.array([0.25, 2.0, 32.0])


def data(rows, width, classes, scale=1.0, seed=0):
    """Correlated features with a large mean, as embeddings are, and a constant column."""
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(width, width)) * np.exp(-6 * np.arange(width) / width)
    features = random.normal(size=(rows, width)) @ mixing + 5 * random.normal(size=width)
    features[:, 1] = 3.0
    scores = (features - features.mean(0)) @ random.normal(size=(width, classes))
    scores = scores / scores.std() + random.normal(size=(rows, classes))
    return (features * scale).astype(np.float32), scores.argmax(axis=1)


def agree(features, labels, rows):
    found = logistic.fit(features, labels, rows, C)
    for number, strength in enumerate(C):
        chosen = rows[number]
        solver = linear_model.LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-10, max_iter=1000)
        solver.fit(features[chosen].astype(np.float64), labels[chosen])
        size = np.abs(solver.coef_).max()
        np.testing.assert_allclose(found.weight[number] / size, solver.coef_ / size, atol=2e-4)
        ours = logistic.probabilities(found.weight[number], found.bias[number], features)
        theirs = solver.predict_proba(features.astype(np.float64))
        np.testing.assert_allclose(ours, theirs, atol=2e-4)
        assert abs((ours.argmax(1) == labels).mean() - (theirs.argmax(1) == labels).mean()) <= 1e-3
    return found


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("scale", [1.0, 50.0, 0.02])
def test_coefficients_are_those_of_scikit_learn(classes, scale):
    features, labels = data(300, 12, classes, scale)
    agree(features, labels, np.random.default_rng(1).random((3, 300)) < 0.8)


def test_fewer_rows_than_columns():
    features, labels = data(30, 50, 2)
    agree(features, labels, np.arange(30) % np.array([[5], [6], [7]]) > 0)


def test_wide_features_and_portions_give_the_same(monkeypatch):
    features, labels = data(300, 12, 2)
    rows = np.random.default_rng(1).random((3, 300)) < 0.8
    expected = logistic.fit(features, labels, rows, C)
    monkeypatch.setattr(logistic, "SCORES", 300)  # one fit at a time
    portions = logistic.fit(features, labels, rows, C)
    np.testing.assert_allclose(portions.weight, expected.weight, atol=1e-4 * np.abs(expected.weight).max())
    monkeypatch.setattr(logistic, "AXES", 5)  # not turned into principal axes
    agree(features, labels, rows)


def test_what_cannot_be_fitted():
    features, labels = data(300, 12, 2)
    rows = np.ones((3, 300), bool)
    rows[1] = labels == 1
    with pytest.raises(NumericsError, match="one class only"):
        logistic.fit(features, labels, rows, C)
    features[7, 3] = np.inf
    with pytest.raises(NumericsError, match="not finite"):
        logistic.fit(features, labels, np.ones((3, 300), bool), C)
