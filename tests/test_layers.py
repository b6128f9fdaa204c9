"""The fast product and the counter dropout against their plain forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.methods import attention_mi, masked_lm
from jax_sentemb.models import attention as bert_attention
from jax_sentemb.models import bert, heads, layers
from jax_sentemb.models.attention import AttentionDropout, attend
from jax_sentemb.models.layers import dropout, keep_mask, layer_norm, matmul, random_bits
from jax_sentemb.parallel import batch_sharding, make_mesh
from jax_sentemb.types import Rows
from tests.tiny_models import bert_config

SEEDS = jnp.arange(6, dtype=jnp.uint32) * 977 + 5


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [((2, 3), 5, 9), ((2, 3), 9, 5), ((5,), 1, 3), ((1, 1), 4, 4)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_matmul_and_gradients_equal_the_plain_product(rows, inputs, outputs, dtype):
    random = np.random.default_rng(0)
    x, w, weight = (random.normal(size=s).astype("f") for s in ((*rows, inputs), (inputs, outputs), (*rows, outputs)))

    def loss(product, x, w):
        return (product(x, w) * weight).sum()

    ours = jax.jit(jax.value_and_grad(lambda x, w: loss(lambda a, b: matmul(a, b, dtype), x, w), (0, 1)))(x, w)
    plain = jax.jit(jax.value_and_grad(lambda x, w: loss(jnp.matmul, x, w), (0, 1)))(x, w)
    tolerance = 1e-5 if dtype == jnp.float32 else 3e-2
    for got, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, expected, atol=tolerance * (1 + np.abs(expected).max()))


def test_states_in_the_order_of_their_axes_stay_on_their_devices(eight_devices):
    mesh = make_mesh(8, eight_devices)
    states = jax.device_put(jnp.arange(8.0 * 3 * 5).reshape(8, 3, 5), batch_sharding(mesh))
    ordered = jax.jit(jax.value_and_grad(lambda states: (layers._ordered(jnp.sin(states)) ** 2).sum()))
    compiled = ordered.lower(states).compile()
    assert "all-gather" not in compiled.as_text()
    for found, expected in zip(
        compiled(states), jax.value_and_grad(lambda states: (jnp.sin(states) ** 2).sum())(states), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_dropout_keeps_the_mean_and_the_rate():
    ones = jnp.ones((6, 50, 64))
    dropped = dropout(ones, 0.3, SEEDS, 1)
    assert (dropped == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert dropped.mean() == pytest.approx(1.0, abs=0.02)
    assert (dropout(ones, 0.3, None, 1) == 1).all()
    assert (dropout(ones, 0.0, SEEDS, 1) == 1).all()


def test_masks_are_independent_between_rows_positions_and_streams():
    masks = np.array(keep_mask(0.5, SEEDS, 3, (40, 100))).reshape(6, -1)
    other = np.array(keep_mask(0.5, SEEDS, 4, (40, 100))).reshape(6, -1)
    correlations = np.corrcoef(np.concatenate([masks, other]))
    assert np.abs(correlations - np.eye(12)).max() < 0.07  # 4,000 draws: standard error 0.016
    shifted = np.corrcoef(masks[0][:-1], masks[0][1:])[0, 1]
    assert abs(shifted) < 0.07


def test_bits_are_uniform():
    bits = np.array(random_bits(SEEDS, 0, (20000,)))
    for bit in range(32):
        assert ((bits >> bit) & 1).mean() == pytest.approx(0.5, abs=0.01)


def test_bits_of_a_row_do_not_depend_on_the_batch_or_on_padding():
    strides = (64**2, 64, 1)
    small = random_bits(SEEDS[2:3], 7, (2, 5, 5), strides)
    large = random_bits(SEEDS, 7, (2, 9, 9), strides)
    np.testing.assert_array_equal(small[0], large[2][:, :5, :5])


def test_layer_norm_equals_numpy():
    x = np.random.default_rng(1).normal(3, 2, (4, 8)).astype("f")
    scale, bias = np.arange(8.0, dtype="f"), np.ones(8, "f")
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12) * scale + bias
    np.testing.assert_allclose(layer_norm(jnp.array(x), scale, bias, 1e-12), expected, atol=1e-5)


def test_attention_divides_the_weights_that_dropout_left_by_their_share():
    random = np.random.default_rng(0)
    query, key, value = (jnp.array(random.normal(size=(6, 2, 4, 3)), jnp.float32) for _ in range(3))
    mask = jnp.arange(4) < jnp.array([[4], [3], [4], [2], [4], [4]])
    context, attention = attend(query, key, value, mask, AttentionDropout(SEEDS, 0.3, 8))
    assert 0 < attention.kept.mean() < 1
    np.testing.assert_allclose(attention.probabilities.sum(-1), 1, rtol=1e-6)
    weights = np.where(attention.kept, np.asarray(attention.probabilities) / 0.7, 0)
    np.testing.assert_allclose(context, weights @ np.asarray(value), atol=1e-5)


def test_every_place_of_every_layer_has_a_dropout_stream_of_its_own(monkeypatch):
    streams = []

    def record(function, at):
        def recorded(*arguments):
            streams.append(arguments[at])
            return function(*arguments)

        return recorded

    monkeypatch.setattr(bert, "dropout", record(dropout, 3))
    monkeypatch.setattr(bert_attention, "keep_mask", record(keep_mask, 2))
    encoder = bert.Bert(
        bert_config(
            vocab_size=20,
            hidden_size=8,
            num_hidden_layers=3,
            intermediate_size=16,
            max_position_embeddings=6,
            initializer_range=0.02,
        )
    )
    rows = Rows(jnp.ones((6, 5), jnp.int32), jnp.ones((6, 5), bool))
    params = jax.eval_shape(encoder.init, jax.random.key(0), rows)
    streams.clear()
    jax.eval_shape(encoder.apply, params, rows, SEEDS)
    assert len(streams) == 1 + 3 * 3  # the embeddings; attention and the two blocks of each layer
    assert len(set(streams)) == len(streams)
    assert max(streams) < min(attention_mi.STREAM, masked_lm.MASK_STREAM, heads.PAIR_STREAM)
