"""A static table without training: whitened components, weights by rarity, special tokens at zero."""

import numpy as np

from jax_sentemb.distillation.token_table import sif_weights, token_table, whitened

RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(50, 8)) @ RANDOM.normal(size=(8, 8)) + 3
COUNTS = RANDOM.integers(1, 1000, 50).astype(float)


def test_sif_weights_are_a_by_a_plus_share():
    np.testing.assert_allclose(sif_weights(np.array([3.0, 1.0, 0.0]), 0.25), [0.25, 0.5, 1.0])
    np.testing.assert_array_equal(sif_weights(COUNTS, 0.0), np.ones(50))


def test_whitened_rows_have_unit_covariance_under_their_importance():
    found = whitened(VECTORS, COUNTS, 5)
    weights = COUNTS / COUNTS.sum()
    np.testing.assert_allclose(weights @ found, np.zeros(5), atol=1e-10)
    np.testing.assert_allclose((found * weights[:, None]).T @ found, np.eye(5), atol=1e-10)


def test_components_come_in_the_order_of_their_variance():
    wide = np.diag([3.0, 2.0, 1.0]) @ RANDOM.normal(size=(3, 400))
    found = whitened(wide.T, np.ones(400), 2)
    assert abs(np.corrcoef(found[:, 0], wide[0])[0, 1]) > 0.9


def test_directions_without_variance_are_zero():
    flat = np.concatenate([VECTORS[:, :2], np.ones((50, 1))], axis=1)
    assert (whitened(flat, COUNTS, 3)[:, 2] == 0).all()


def test_specials_are_zero_and_do_not_count():
    table = token_table(VECTORS, COUNTS, [0, 7], 4, 1e-3)
    assert table.dtype == np.float32
    assert (table[[0, 7]] == 0).all()
    other = VECTORS.copy()
    other[[0, 7]] = 99
    np.testing.assert_allclose(token_table(other, COUNTS, [0, 7], 4, 1e-3), table, atol=1e-6)
