"""The train step and the measure with a method of one number: what is updated, counted and measured."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb.methods.base import Learned, Method
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig
from jax_sentemb.parallel import make_mesh
from jax_sentemb.training.step import create_state, make_measure, make_step
from jax_sentemb.types import Batch

BATCH = Batch(np.ones((4, 3), np.int32), np.ones((4, 3), bool))
MESH = make_mesh(4, jax.devices()[:1])


class Encoded(NamedTuple):
    value: jax.Array


class OneNumber(Method):
    """loss = 3 w + the step; the seeds and the step that it saw are metrics; `post_update` keeps what it was handed."""

    pooling = "mean"

    def check(self, encoder, batch_size):
        pass

    def init(self, encoder, loaded, key):
        return Learned({"w": jnp.array([2.0])}, {"w": jnp.zeros(1)})

    def encode(self, encoder, params, state, batch, seeds):
        return Encoded(params["w"] * jnp.ones(4) + 0.0 * seeds)

    def objective(self, params, state, encoded):
        return 3 * encoded.value.mean() + state.step, ({"step": state.step.astype(float)}, encoded.value[0])

    def post_update(self, state, carry):
        return state._replace(ema_params={"w": state.params["w"] + 100 * carry})


@pytest.fixture(scope="module")
def trained():
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.5, momentum=0.5))
    encoder = make_encoder(WordsConfig(3, 2))
    state, metrics = create_state(OneNumber(), encoder, optimizer, {FROZEN: {}}, 0, MESH), []
    step = make_step(OneNumber(), encoder, optimizer, MESH)
    for _ in range(3):
        state, found = step(state, BATCH)
        metrics.append({name: float(value) for name, value in found.items()})
    return encoder, state, metrics


def test_metrics_are_of_the_step_before_its_update_and_the_norm_is_that_before_clipping(trained):
    weights = [2.0, 1.5, 0.75]  # updates of 0.5, 0.75, 0.875: momentum goes on from step to step
    for number, (found, weight) in enumerate(zip(trained[2], weights, strict=True)):
        assert found == {"loss": pytest.approx(3 * weight + number), "grad_norm": pytest.approx(3.0), "step": number}


def test_the_method_sees_the_new_parameters_and_its_carry(trained):
    state = trained[1]
    assert int(state.step) == 3
    assert state.params["w"].tolist() == pytest.approx([-0.125])
    assert state.ema_params["w"].tolist() == pytest.approx([-0.125 + 100 * 0.75])


def test_a_measure_is_the_same_at_every_step(trained):
    encoder, state, _ = trained
    measure = make_measure(OneNumber(), encoder, MESH)
    for step in (0, 7):
        found = measure(state._replace(step=jnp.int32(step)), BATCH)
        assert {name: float(value) for name, value in found.items()} == {"loss": pytest.approx(-0.375), "step": 0}
