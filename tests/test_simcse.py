"""SimCSE and miCSE: what the settings of the momentum view and of the masked-language-model term do."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb.methods.simcse import Momentum, SimCSE, SimCSEViews
from jax_sentemb.methods.views import TwoViews
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.heads import apply_head
from jax_sentemb.types import Batch, TrainState

ENCODER = Bert(BertConfig(20, 8, 1, 2, 16, max_position_embeddings=6, initializer_range=0.3), jnp.float32, 0.4)
BATCH = Batch(np.full((3, 5), 7, np.int32), np.ones((3, 5), bool))
SEEDS = jnp.arange(3, dtype=jnp.uint32)


@pytest.fixture(scope="module")
def learned():
    encoder = jax.jit(ENCODER.init)(jax.random.key(0), BATCH.rows)["params"]
    return SimCSE(momentum=Momentum(queue_size=4)).init(ENCODER, {"encoder": encoder}, jax.random.key(1))


def encode(learned, dropout):
    method = SimCSE(momentum=Momentum(queue_size=4, dropout=dropout))
    state = TrainState(learned.params, learned.ema_params, learned.queue, None, None, jnp.int32(0), learned.queue_rows)
    run = jax.jit(lambda params, state: method.encode(ENCODER, params, state, BATCH, SEEDS))
    return method, run(learned.params, state)


def test_the_momentum_view_has_its_own_dropout_rate(learned):
    method, encoded = encode(learned, 0.0)
    plain = method.embed(ENCODER, {"encoder": learned.ema_params}, BATCH.rows)
    np.testing.assert_allclose(encoded.momentum, apply_head(learned.params["head"], plain), atol=1e-6)
    _, dropped = encode(learned, 0.6)
    assert np.abs(dropped.momentum - encoded.momentum).max() > 0.01


def test_the_momentum_view_has_its_own_dropout_masks(learned):
    _, encoded = encode(learned, ENCODER.dropout)  # all three views differ by their masks alone
    views = [np.asarray(view) for view in (*encoded.views[:2], encoded.momentum)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (np.abs(views[one] - views[other]).max(axis=1) > 1e-3).all(), (one, other)


@pytest.mark.parametrize("weight", [0.25, 3.0])
def test_the_masked_language_model_loss_is_added_with_its_weight(weight):
    views = [jnp.array(np.random.default_rng(number).normal(size=(4, 3)), jnp.float32) for number in (0, 1)]
    masked_loss, count = jnp.array([3.0, 0.0, 5.0, 1.0]), jnp.array([2.0, 0.0, 1.0, 1.0])
    encoded = SimCSEViews(TwoViews(*views, jnp.ones(4)), None, masked_loss, count, None)
    state = TrainState({}, None, None, None, None, jnp.int32(0), None)
    loss, (metrics, _) = SimCSE(mlm_weight=weight).objective({}, state, encoded)
    assert float(metrics["mlm"]) == pytest.approx(9 / 4)
    assert float(loss) == pytest.approx(float(metrics["contrastive"]) + weight * 9 / 4)


def test_the_momentum_encoder_is_the_moving_average_of_the_trained_one(learned):
    trained = jax.tree.map(lambda leaf: leaf + 1.0, learned.params)
    state = TrainState(trained, learned.ema_params, learned.queue, None, None, jnp.int32(0), learned.queue_rows)
    moved = SimCSE(momentum=Momentum(queue_size=4, decay=0.75)).post_update(state, (jnp.ones((2, 8)), None))
    distance = jax.tree.map(lambda new, old: new - old - 0.25, moved.ema_params, learned.ema_params)
    assert float(optax.tree.norm(distance)) < 1e-4
