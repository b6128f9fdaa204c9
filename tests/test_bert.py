"""Attention in blocks and recomputed layers: the same states, gradients and attention mutual information in less memory."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.bert import Bert, Capture
from jax_sentemb.types import Rows
from tests.tiny_models import bert_config

CONFIG = bert_config(vocab_size=50, num_hidden_layers=2, max_position_embeddings=600, initializer_range=0.02)
WIDTH = 11
LENGTHS = np.array([11, 4, 7])
RANDOM = np.random.default_rng(0)
ROWS = Rows(
    np.repeat(RANDOM.integers(5, 50, (3, WIDTH)), 2, 0).astype(np.int32), np.repeat(np.arange(WIDTH) < LENGTHS[:, None], 2, 0)
)
SEEDS = jnp.arange(6, dtype=jnp.uint32) + 100
PARAMS = jax.jit(Bert(CONFIG).init)(jax.random.key(0), ROWS)["params"]
AMI = AttentionMI(samples=60)
WEIGHTS = RANDOM.normal(size=16).astype(np.float32)


def measured(model, seeds=SEEDS):
    """(token states, mutual information, gradients of a loss of both), with dropout on unless `seeds` is None."""
    layers = AMI.chosen_layers(2)
    positions = AMI.sample(jnp.arange(3, dtype=jnp.uint32), jnp.array(LENGTHS), WIDTH, AMI.slices(layers, 2))
    capture = AMI.capture_attention(positions, layers, 2)

    def loss(params):
        output = model.apply({"params": params}, ROWS, seeds, capture=capture)
        information, valid = AMI.mutual_information(output.observed, positions)
        states = jnp.where(ROWS.mask[..., None], output.hidden[-1], 0.0)
        return (states * WEIGHTS).sum() + 10 * information.sum(), (states, information, valid)

    (_, found), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(PARAMS)
    return found, gradients


@pytest.fixture(scope="module")
def plain():
    return measured(Bert(CONFIG, dropout=0.2))


@pytest.mark.parametrize("settings", [{"attention_block": 4}, {"attention_block": 64}, {"attention_block": 4, "remat": True}])
def test_states_information_and_gradients_are_the_same(plain, settings):
    valid = plain[0][2]
    check_same(plain, measured(Bert(CONFIG, dropout=0.2, **settings)))
    assert 0.4 < float(valid.mean()) < 0.9  # the same entries survive dropout


def check_same(one, other):
    (states, information, valid), gradients = one
    found, others = other
    np.testing.assert_allclose(found[0], states, atol=1e-5)
    np.testing.assert_allclose(found[1], information, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found[2], valid)
    for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(other, one, atol=2e-4 * max(1.0, float(jnp.abs(one).max())))


def test_a_fused_kernel_is_attention_without_dropout_on_its_weights(plain):
    check_same(measured(Bert(CONFIG), None), measured(Bert(CONFIG, fused_attention="xla"), None))
    (states, _, valid), _ = measured(Bert(CONFIG, dropout=0.2, fused_attention="xla"))
    assert bool((valid == 1).all())
    assert not np.allclose(states[0], states[1], atol=0.05)  # hidden states keep their dropout: two views differ


def test_on_an_nvidia_gpu_it_is_the_kernel_of_cudnn_forwards_and_backwards(monkeypatch):
    checks = "jax._src.cudnn.fused_attention_stablehlo.check"  # of the hardware at hand: there is none, and nothing is run
    monkeypatch.setattr(f"{checks}_cudnn_version", lambda: 91000)
    monkeypatch.setattr(f"{checks}_compute_capability", lambda least: True)
    model = Bert(
        bert_config(
            vocab_size=50,
            hidden_size=128,
            num_hidden_layers=2,
            intermediate_size=256,
            max_position_embeddings=600,
            initializer_range=0.02,
        ),
        jnp.bfloat16,
        fused_attention="cudnn",
    )
    params = jax.eval_shape(lambda: Bert(model.config).init(jax.random.key(0), ROWS))
    loss = lambda params: model.apply(params, ROWS, SEEDS).hidden[-1].sum()  # noqa: E731
    lowered = jax.jit(jax.grad(loss)).trace(params).lower(lowering_platforms=("cuda",)).as_text()
    assert len(re.findall(r"custom_call @__cudnn\$fmhaSoftmax\(", lowered)) == 2  # layers
    assert len(re.findall(r"custom_call @__cudnn\$fmhaSoftmaxBackward\(", lowered)) == 2


@pytest.mark.parametrize(
    ("settings", "observed_layers"),
    [({}, ()), ({}, (1, 2)), ({"attention_block": 4, "remat": True}, (1, 2)), ({"fused_attention": "xla"}, (1, 2))],
)
def test_the_first_token_alone_is_what_all_tokens_have(settings, observed_layers):
    place = jnp.array(RANDOM.integers(0, 4, (6, 2, 9)))

    def look(_, attention):
        return attention.log_normalizer, attention.kept_at(place, place)

    def found(**more):
        model = Bert(CONFIG, dropout=0.2, **settings)

        def loss(params):
            output = model.apply({"params": params}, ROWS, SEEDS, capture=Capture(observed_layers, look), **more)
            return (output.hidden[-1][:, 0] * WEIGHTS).sum(), output

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(PARAMS)

    (_, whole), gradients = found()
    (_, first), others = found(first_token_only=True)
    assert first.hidden[-1].shape == (6, 1, 16)
    np.testing.assert_allclose(first.hidden[-1], whole.hidden[-1][:, :1], atol=1e-5)
    for layer in observed_layers:
        np.testing.assert_allclose(first.observed[layer][0], whole.observed[layer][0], atol=1e-5)
        np.testing.assert_array_equal(first.observed[layer][1], whole.observed[layer][1])
    for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-5 * max(1.0, float(jnp.abs(one).max())))


@pytest.mark.parametrize("without_dropout", [True, False])
def test_positions_look_up_what_the_map_has(without_dropout):
    seeds = None if without_dropout else SEEDS
    query, key = (jnp.array(RANDOM.integers(0, 4, (6, 2, 9))) for _ in range(2))

    def look(_, attention):
        return attention.log_probability_at(query, key), attention.kept_at(query, key)

    def observed(block):
        model = Bert(CONFIG, dropout=0.3, attention_block=block)
        return jax.jit(lambda params: model.apply({"params": params}, ROWS, seeds, capture=Capture((2,), look)).observed[2])(PARAMS)

    found = [observed(block) for block in (0, 3)]
    np.testing.assert_allclose(found[1][0], found[0][0], atol=1e-5)
    np.testing.assert_array_equal(found[1][1], found[0][1])
    assert bool(found[0][1].all()) == without_dropout


def test_memory_grows_with_the_length_and_not_with_its_square():
    config = bert_config(vocab_size=50, num_hidden_layers=2, max_position_embeddings=600, initializer_range=0.02)

    def temporary(width, **settings):
        model = Bert(config, dropout=0.1, **settings)
        rows = Rows(jnp.ones((4, width), jnp.int32), jnp.ones((4, width), bool))
        params = jax.eval_shape(model.init, jax.random.key(0), rows)["params"]

        def loss(params):
            return model.apply({"params": params}, rows, SEEDS[:4]).hidden[-1].sum()

        return jax.jit(jax.grad(loss)).lower(params).compile().memory_analysis().temp_size_in_bytes

    whole, blocks = temporary(512), temporary(512, attention_block=32)
    assert blocks < whole / 4
    assert blocks < 3 * temporary(256, attention_block=32)


def test_recomputed_layers_keep_their_inputs_only():
    # On CPUs the compiler merges the second computation with the first again, so what is kept is read before it.
    def kept_maps(model):
        def states(params):
            return model.apply({"params": params}, ROWS, SEEDS).hidden[-1].sum()

        kept = jax.eval_shape(lambda params: jax.vjp(states, params)[1], PARAMS)
        return [leaf.shape for leaf in jax.tree.leaves(kept) if leaf.shape[-2:] == (WIDTH, WIDTH)]

    assert not kept_maps(Bert(CONFIG, dropout=0.1, remat=True))
    assert kept_maps(Bert(CONFIG))
