"""The anchor to the start: its term, its gradient, the frozen start, for every method that embeds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb.config import Config, Data, Encoder
from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.anchor import ANCHOR, Anchored, anchored
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.crops import Crops
from jax_sentemb.methods.distillation import TEACHER, Distillation
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.methods.masked_lm import MaskedLM
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.neighbours import Neighbours
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.methods.sct import SCT
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.methods.tsdae import TSDAE
from jax_sentemb.models.bert import Bert
from jax_sentemb.parallel import make_mesh
from jax_sentemb.training.starting_encoder import check_anchor
from jax_sentemb.training.step import create_state, loss_and_gradients, make_step, parts_of
from jax_sentemb.types import Batch
from tests.tiny_models import bert_config

RANDOM = np.random.default_rng(0)
ENCODER = Bert(bert_config(hidden_size=8, intermediate_size=16, max_position_embeddings=20, initializer_range=0.02), dropout=0.1)
BATCH = Batch(RANDOM.integers(5, 40, (4, 6)).astype(np.int32), np.ones((4, 6), bool))
WEIGHT = 3.0
PAIRS = Batch(BATCH.tokens.reshape(2, 2, 6), BATCH.mask.reshape(2, 2, 6), np.ones(2, np.float32))
TAUGHT = BATCH._replace(label=np.ones((4, 5), np.float32))
TEACHER_VECTORS = {"vectors": np.ones((3, 5), np.float32), "rows": np.arange(3, dtype=np.int32)}
METHODS = [
    SimCSE(), SimCSE(rank_consistency=1.0), MirrorBERT(span=0), ContrastiveTension(), ContrastiveTension(keep="second"), SBERT(),
    ISBERT(), MaskedLM(), SCT(queue_size=8), Crops(), TSDAE(), Neighbours(), Distillation(), Distillation(congen=1.0, rank=1.0),
]  # fmt: skip


@pytest.fixture(scope="module")
def state():
    """A state of SimCSE with an anchor whose encoder has moved from the start."""
    found = create_state(SimCSE(anchor=WEIGHT), ENCODER, optax.sgd(0.1), {}, 0, make_mesh(4, jax.devices()[:1]))
    moved = jax.tree.map(lambda leaf: leaf + 0.1 * jnp.sin(jnp.arange(leaf.size)).reshape(leaf.shape), found.params["encoder"])
    return found._replace(params={**found.params, "encoder": moved})


def found_with(method, state, chunk=0):
    key = jax.random.key(1)
    return jax.jit(lambda state: loss_and_gradients(method, ENCODER, state, parts_of(BATCH), key, chunk))(state)


def test_the_term_is_the_weighted_distance_to_the_frozen_start(state):
    method = SimCSE(anchor=WEIGHT)
    loss, metrics, _, gradients = found_with(anchored(method), state)
    alone, _, _, before = found_with(method, state)
    vectors = [np.asarray(method.embed(ENCODER, params, BATCH.rows)) for params in (state.params, state.params[ANCHOR])]
    one, other = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in vectors)
    distance = (1 - (one * other).sum(1)).mean()
    assert distance > 0.01
    np.testing.assert_allclose(metrics["anchor"], distance, rtol=1e-4)
    np.testing.assert_allclose(loss, alone + WEIGHT * distance, rtol=1e-5)
    assert ANCHOR not in gradients
    change = jax.tree.map(lambda new, old: float(jnp.abs(new - old).max()), gradients["encoder"], before["encoder"])
    assert max(jax.tree.leaves(change)) > 1e-3


@pytest.mark.parametrize("keep", ["better", "second"])
def test_both_encoders_of_contrastive_tension_are_held(keep):
    method = anchored(ContrastiveTension(anchor=WEIGHT, keep=keep))
    start = create_state(method.inner, ENCODER, optax.sgd(0.1), {}, 0, make_mesh(4, jax.devices()[:1]))
    for part in ("encoder", "first"):
        moved = jax.tree.map(lambda leaf: leaf + 0.1 * jnp.sin(jnp.arange(leaf.size)).reshape(leaf.shape), start.params[part])
        state = start._replace(params={**start.params, part: moved})
        assert found_with(method, state)[1]["anchor"] > 0.005


def test_gradient_caching_gives_the_same(state):
    whole, parts = (found_with(anchored(SimCSE(anchor=WEIGHT)), state, chunk) for chunk in (0, 2))
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-5)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-5), parts[3], whole[3])


def test_a_step_keeps_the_start(state):
    start = jax.device_get(state.params[ANCHOR])
    copy = jax.tree.map(jnp.copy, state)  # the step donates its state
    step = make_step(SimCSE(anchor=WEIGHT), ENCODER, optax.sgd(0.1), make_mesh(4, jax.devices()[:1]))
    after, metrics = step(copy, BATCH)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(after.params[ANCHOR]), start)
    assert metrics["anchor"] > 0


@pytest.mark.parametrize("method", METHODS, ids=lambda one: type(one).__name__)
def test_every_method_that_embeds_has_the_setting(method, state):
    assert anchored(method) is method
    with_anchor = anchored(dataclasses.replace(method, anchor=1.0))
    assert isinstance(with_anchor, Anchored)
    loaded = {"encoder": jax.eval_shape(ENCODER.init, jax.random.key(0), BATCH.rows)["params"], TEACHER: TEACHER_VECTORS}
    learned = jax.eval_shape(lambda loaded: with_anchor.init(ENCODER, loaded, jax.random.key(0)), loaded)
    batch = PAIRS if isinstance(method, SBERT | Crops | TSDAE | Neighbours) else BATCH
    batch = TAUGHT if isinstance(method, Distillation) else batch
    seeds = jnp.arange(len(batch.tokens), dtype=jnp.uint32)
    first = state._replace(params=learned.params, queue=learned.queue, queue_rows=learned.queue_rows)

    def compute(first):
        encoded = with_anchor.encode(ENCODER, first.params, first, batch, seeds)
        return encoded.distance, with_anchor.objective(first.params, first, encoded)

    distance, (loss, (metrics, _)) = jax.eval_shape(compute, first)
    assert distance.shape == seeds.shape
    assert (loss.shape, metrics["anchor"].shape) == ((), ())


def test_an_anchor_needs_a_start():
    with pytest.raises(ConfigError, match=r"encoder\.weights"):
        check_anchor(Config(SimCSE(anchor=1.0), Data(files="x.txt"), Encoder()))
