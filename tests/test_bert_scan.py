"""Layers under a scan, and states in bfloat16: the same encoder."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.models.bert import Bert
from jax_sentemb.types import Rows
from tests.tiny_models import bert_config

CONFIG = bert_config(
    vocab_size=50, hidden_size=32, num_hidden_layers=3, intermediate_size=64, max_position_embeddings=16, initializer_range=0.02
)
ROWS = Rows(np.arange(5 * 8, dtype=np.int32).reshape(5, 8) % 50, np.arange(8) < np.array([8, 3, 8, 5, 1])[:, None])
SEEDS = np.arange(5, dtype=np.uint32)


@pytest.fixture(scope="module")
def params():
    return jax.jit(Bert(CONFIG).init)(jax.random.key(0), Rows(*map(jnp.asarray, ROWS)))["params"]


def loss_and_gradients(params, first_token_only=False, **options):
    def loss(params):
        found = Bert(CONFIG, **options).apply({"params": params}, ROWS, SEEDS, first_token_only=first_token_only)
        return jnp.sin(found.hidden[-1]).sum() + jnp.cos(found.hidden[1]).sum(), found.hidden

    (value, hidden), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    return value, hidden, gradients


def test_scanned_layers_are_the_layers_recomputed_or_not(params):
    plain = loss_and_gradients(params, True)
    for options in ({}, {"remat": True}):
        scanned = loss_and_gradients(params, True, scan=True, **options)
        for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(scanned), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_scanned_layers_are_compiled_once(params):
    def products(layers, scan):
        encoder = Bert(dataclasses.replace(CONFIG, num_hidden_layers=layers), scan=scan)
        shapes = jax.eval_shape(encoder.init, jax.random.key(0), Rows(*map(jnp.asarray, ROWS)))
        return jax.jit(encoder.apply).lower(shapes, ROWS, SEEDS).as_text().count("stablehlo.dot_general")

    assert products(8, True) == products(4, True) < products(4, False) < products(8, False)


def test_states_in_bfloat16_are_near_and_their_gradients_too(params):
    exact, short = (
        loss_and_gradients(params, scan=True, dtype=jnp.bfloat16, activations=kind) for kind in (jnp.float32, jnp.bfloat16)
    )
    assert short[1][-1].dtype == jnp.float32
    np.testing.assert_allclose(short[1][-1], exact[1][-1], atol=0.06)
    for one, other in zip(jax.tree.leaves(exact[2]), jax.tree.leaves(short[2]), strict=True):
        assert one.dtype == other.dtype == jnp.float32
        difference = np.linalg.norm(one - other) / max(np.linalg.norm(one), 1e-3)
        assert difference < 0.1


def test_what_is_kept_for_the_backward_pass(params):
    """No mask, no attention map, no float32 state: of each scanned layer its input, projections, inner sums and outer sum."""

    def run(params):
        encoder = Bert(CONFIG, jnp.bfloat16, activations=jnp.bfloat16, scan=True)
        return encoder.apply({"params": params}, ROWS, SEEDS).hidden[-1].sum()

    saved = jax.tree.leaves(jax.eval_shape(lambda params: jax.vjp(run, params)[1], params))
    stacked = sorted(leaf.shape[1:] for leaf in saved if leaf.shape[:2] == (2, 5))
    assert stacked == [(5, 8, 32)] * 5 + [(5, 8, 64)]
    assert {leaf.dtype for leaf in saved if leaf.shape[:2] == (2, 5)} == {jnp.dtype("bfloat16")}
