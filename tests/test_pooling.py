"""Pooling modes against sums over the real tokens."""

import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.models.pooling import pool

HIDDEN = [jnp.array(np.random.default_rng(layer).normal(size=(2, 4, 3)), jnp.float32) for layer in range(4)]
LENGTHS = (4, 2)
MASK = jnp.arange(4) < jnp.array(LENGTHS)[:, None]


@pytest.mark.parametrize(
    ("mode", "states"), [("mean", HIDDEN[3]), ("first_last", (HIDDEN[1] + HIDDEN[3]) / 2)]
)  # HIDDEN[0] are the embeddings
def test_means_are_over_real_tokens(mode, states):
    expected = [np.asarray(row)[:length].mean(axis=0) for row, length in zip(states, LENGTHS, strict=True)]
    np.testing.assert_allclose(pool(HIDDEN, MASK, mode), expected, rtol=1e-5, atol=1e-6)


def test_cls_is_the_first_token_of_the_last_layer():
    np.testing.assert_array_equal(pool(HIDDEN, MASK, "cls"), HIDDEN[3][:, 0])


def test_a_row_without_tokens_is_zero():
    np.testing.assert_array_equal(pool(HIDDEN, jnp.zeros((2, 4), bool), "mean"), np.zeros((2, 3)))
