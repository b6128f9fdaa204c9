"""Contrastive Tension: the pairs of a batch written out, both losses against NumPy, two encoders that start alike and part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb import config as settings
from jax_sentemb import losses
from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.views import TwoViews
from jax_sentemb.models.bert import Bert
from jax_sentemb.parallel import make_mesh, shard_batch
from jax_sentemb.training.optimizer import make_optimizer
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.types import Batch, TrainState
from tests.tiny_models import bert_config

NO_STATE = TrainState({}, None, None, None, None, None)
contrastive_tension = jax.jit(losses.contrastive_tension, static_argnums=2)
symmetric_info_nce = jax.jit(losses.symmetric_info_nce)

CONFIG = bert_config()
ENCODER = Bert(CONFIG, jnp.float32, 0.2)  # the published method trains without dropout whatever the encoder has
BATCH, GROUP = 8, 4
POSITIVE = [(0, 0), (4, 4)]
# Sentence of the first encoder, sentence of the second: of two neighbours the later goes through the first encoder.
NEGATIVE = [(1, 7), (2, 1), (3, 2), (5, 3), (6, 5), (7, 6)]


def drawn(seed=0, width=16):
    return tuple(np.random.default_rng(seed).normal(0, 0.5, (2, BATCH, width)))


def batch():
    random = np.random.default_rng(0)
    return Batch(random.integers(5, 40, (BATCH, 8)).astype(np.int32), np.arange(8) < random.integers(3, 9, (BATCH, 1)))


@pytest.fixture(scope="module")
def loaded():
    return {"encoder": jax.jit(ENCODER.init)(jax.random.key(0), batch().rows)["params"]}


def test_each_of_the_two_encoders_may_be_the_one_that_embeds():
    one, two, scale = (np.full(1, value) for value in (1.0, 2.0, 3.0))
    params = {"encoder": one, "first": two, "logit_scale": scale}
    assert ContrastiveTension().encoders(params) == {
        "second": params,
        "first": {"encoder": two, "first": one, "logit_scale": scale},
    }
    assert ContrastiveTension(keep="second").encoders(params) == {"second": params}


def started(method, loaded):
    return method.init(ENCODER, loaded, jax.random.key(1)).params


def encode(method, params):
    seeds = jnp.arange(BATCH, dtype=jnp.uint32)
    return jax.jit(lambda params: method.encode(ENCODER, params, NO_STATE, batch(), seeds))(params)


def finite_difference(function, at, direction, step=1e-5):
    return float((function(at + step * direction) - function(at - step * direction)) / (2 * step))


def numpy_tension(first, second):
    total = 0.0
    for pairs, sign in ((POSITIVE, 1), (NEGATIVE, -1)):
        for one, other in pairs:
            total += np.log(1 + np.exp(-sign * (first[one] @ second[other])))
    return total / BATCH


def numpy_symmetric(first, second, scale):
    first, second = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second))
    total = 0.0
    for i in range(BATCH):
        positive = np.exp(scale * first[i] @ second[i])
        total -= np.log(positive / sum(np.exp(scale * first[i] @ other) for other in second)) / 2
        total -= np.log(positive / sum(np.exp(scale * other @ second[i]) for other in first)) / 2
    return total / BATCH


def test_the_pairs_are_positive_with_themselves_or_two_different_sentences_once_on_each_side():
    # With the unit matrix as second vectors and zero as first ones, a gradient is the sign of the pair at its place.
    signs = (
        2
        * BATCH
        * np.asarray(jax.jit(jax.grad(lambda rows: contrastive_tension(rows, jnp.eye(BATCH), GROUP)[0]))(jnp.zeros((8, 8))))
    )
    np.testing.assert_allclose(np.abs(signs).sum(), BATCH, rtol=1e-5)
    assert list(zip(*np.nonzero(signs < 0), strict=True)) == POSITIVE
    assert list(zip(*np.nonzero(signs > 0), strict=True)) == NEGATIVE
    assert all(one != other for one, other in NEGATIVE)
    for side in (0, 1):
        assert sorted(pair[side] for pair in NEGATIVE) == [1, 2, 3, 5, 6, 7]


def test_the_loss_of_pairs_is_numpys_with_its_accuracy():
    first, second = drawn()
    loss, accuracy = contrastive_tension(jnp.array(first), jnp.array(second), GROUP)
    assert loss == pytest.approx(numpy_tension(first, second), rel=1e-5)
    right = [first[i] @ second[j] > 0 for i, j in POSITIVE] + [first[i] @ second[j] <= 0 for i, j in NEGATIVE]
    assert 0 < np.mean(right) < 1
    assert accuracy == pytest.approx(np.mean(right))


def test_the_loss_of_the_batch_is_numpys_with_its_accuracy():
    first, second = drawn()
    loss, accuracy = symmetric_info_nce(jnp.array(first), jnp.array(second), jnp.float32(7.0))
    assert loss == pytest.approx(numpy_symmetric(first, second, 7.0), rel=1e-5)
    cosines = (first / np.linalg.norm(first, axis=1)[:, None]) @ (second / np.linalg.norm(second, axis=1)[:, None]).T
    assert accuracy == pytest.approx((cosines.argmax(1) == np.arange(BATCH)).mean())


@pytest.mark.parametrize("form", ["pairs", "in_batch"])
def test_gradients_by_finite_differences(form):
    with jax.enable_x64():
        first, second, direction = (jnp.array(rows) for rows in (*drawn(), drawn(1)[0]))

        def loss(one, other, scale=5.0):
            return (contrastive_tension(one, other, GROUP) if form == "pairs" else symmetric_info_nce(one, other, scale))[0]

        gradients = jax.jit(jax.grad(loss, (0, 1)))(first, second)
        slopes = [float((gradient * direction).sum()) for gradient in gradients]
        assert slopes[0] == pytest.approx(finite_difference(lambda at: loss(at, second), first, direction), rel=1e-6)
        assert slopes[1] == pytest.approx(finite_difference(lambda at: loss(first, at), second, direction), rel=1e-6)


def test_the_scale_is_the_exponential_of_a_trained_number_that_starts_as_set(loaded):
    method = ContrastiveTension(form="in_batch", scale=3.0)
    first, second = drawn()
    encoded = TwoViews(jnp.array(first), jnp.array(second), jnp.ones(BATCH))
    start = started(method, loaded)["logit_scale"]
    assert float(jnp.exp(start)) == pytest.approx(3.0)
    objective = jax.value_and_grad(lambda scale: method.objective({"logit_scale": scale}, NO_STATE, encoded)[0])
    loss, slope = jax.jit(objective)(start)
    assert loss == pytest.approx(numpy_symmetric(first, second, 3.0), rel=1e-5)
    expected = finite_difference(lambda scale: numpy_symmetric(first, second, np.exp(scale)), np.log(3.0), 1.0)
    assert slope == pytest.approx(expected, rel=1e-4)
    assert "logit_scale" not in started(ContrastiveTension(), loaded)


@pytest.mark.parametrize("batch_size", [2, 6, 9, 12, 15])
def test_a_batch_size_that_does_not_fit_the_group_is_refused_in_one_line(batch_size):
    with pytest.raises(ConfigError, match=rf"data\.batch_size={batch_size} must be a multiple of method\.group=8") as caught:
        ContrastiveTension().check(ENCODER, batch_size)
    assert "\n" not in str(caught.value)
    ContrastiveTension(form="in_batch").check(ENCODER, batch_size)  # which has no groups
    ContrastiveTension().check(ENCODER, 16)


@pytest.mark.parametrize(
    ("method", "batch_size", "says"),
    [
        (ContrastiveTension(group=2), 2, "at least 2 negative pairs"),
        (ContrastiveTension(group=1), 8, "must be at least 2"),
        (ContrastiveTension(form="triples"), 8, "is not one of pairs, in_batch"),
        (ContrastiveTension(scale=0.0), 8, "must be above 0"),
        (ContrastiveTension(pooling="max"), 8, "is not one of cls, mean"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(method, batch_size, says):
    with pytest.raises(ConfigError, match=says) as caught:
        method.check(ENCODER, batch_size)
    assert "\n" not in str(caught.value)


def test_two_copies_start_alike_and_differ_after_a_step(loaded):
    method, mesh = ContrastiveTension(group=GROUP), make_mesh(BATCH, jax.devices()[:1])
    params = started(method, loaded)
    jax.tree.map(np.testing.assert_array_equal, params["encoder"], params["first"])
    encoded = encode(method, params)
    np.testing.assert_allclose(encoded.first, encoded.second, atol=1e-6)  # no dropout, though the encoder has it
    np.testing.assert_array_equal(encoded.lengths, batch().mask.sum(1))
    optimizer = make_optimizer(settings.Optimizer(learning_rate=1e-2), 10)
    state = create_state(method, ENCODER, optimizer, loaded, 0, mesh)
    state, metrics = make_step(method, ENCODER, optimizer, mesh)(state, shard_batch(batch(), mesh))
    assert np.isfinite(float(metrics["loss"]))
    for part in ("encoder", "first"):
        moved = jax.tree.map(lambda new, old: np.abs(new - old).max(), state.params[part], params["encoder"])
        assert max(jax.tree.leaves(moved)) > 1e-3
    apart = jax.tree.map(lambda one, other: np.abs(one - other).max(), state.params["encoder"], state.params["first"])
    assert max(jax.tree.leaves(apart)) > 1e-3


def test_the_second_encoder_embeds_and_dropout_is_apart_for_each(loaded):
    method = ContrastiveTension(group=GROUP, dropout=True)
    params = started(method, loaded)
    params["first"] = jax.tree.map(lambda leaf: 1.1 * leaf, params["first"])
    quiet = encode(ContrastiveTension(group=GROUP), params)
    embedded = jax.jit(lambda params: method.embed(ENCODER, params, batch().rows))(params)
    np.testing.assert_allclose(embedded, quiet.second, atol=1e-5)
    assert np.abs(quiet.first - quiet.second).max() > 0.1
    loud = encode(method, started(method, loaded))
    assert (np.abs(loud.first - loud.second).max(axis=1) > 0.05).all()


def test_attention_information_of_equal_encoders_is_clamped_and_finite(loaded):
    method = ContrastiveTension(group=GROUP, ami=AttentionMI(samples=20, weight=1.0, layers=(1,), pairing="heads"))
    params, seeds = started(method, loaded), jnp.arange(BATCH, dtype=jnp.uint32)

    @jax.jit
    def step(params):
        return jax.value_and_grad(
            lambda params: method.objective(params, NO_STATE, method.encode(ENCODER, params, NO_STATE, batch(), seeds)),
            has_aux=True,
        )(params)

    (loss, (metrics, _)), gradients = step(params)
    assert float(metrics["attention_mi"]) == pytest.approx(-0.5 * np.log(1e-6), rel=1e-2)  # rho = 1 everywhere
    assert np.isfinite(loss)
    assert loss < metrics["contrastive"] - 1  # its term is subtracted
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
