"""Neighbouring sentences as positives: the loss of hand-made embeddings, which text is which view, what it reads, its errors."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.neighbours import Neighbours
from jax_sentemb.methods.views import TwoViews
from jax_sentemb.models.bert import Bert
from jax_sentemb.types import Batch, Rows, TrainState
from tests.tiny_models import bert_config

NO_STATE = TrainState({}, None, None, None, None, None)
CONFIG = bert_config()
RANDOM = np.random.default_rng(0)
TOKENS, MASK = RANDOM.integers(5, 40, (3, 2, 6)).astype(np.int32), np.arange(6) < RANDOM.integers(3, 7, (3, 2, 1))


def embedded(encoder, method=Neighbours()):
    params = {"encoder": encoder.init(jax.random.key(0), Rows(TOKENS[:, 0], MASK[:, 0]))["params"]}
    encoded = method.encode(encoder, params, NO_STATE, Batch(TOKENS, MASK), jnp.arange(3, dtype=jnp.uint32))
    return encoded, [method.embed(encoder, params, Rows(TOKENS[:, text], MASK[:, text])) for text in (0, 1)]


def test_each_sentence_of_a_pair_is_a_view():
    encoded, (first, second) = embedded(Bert(CONFIG, jnp.float32, 0.0))
    np.testing.assert_allclose(encoded.first, first, atol=1e-5)
    np.testing.assert_allclose(encoded.second, second, atol=1e-5)


def test_both_have_dropout():
    encoded, (first, second) = embedded(Bert(CONFIG, jnp.float32, 0.3))
    assert np.abs(encoded.first - first).max() > 0.05
    assert np.abs(encoded.second - second).max() > 0.05


def test_the_loss_ranks_the_neighbour_in_both_directions():
    first, second = RANDOM.normal(size=(2, 5, 7))
    second += first
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second)]
    logits = unit[0] @ unit[1].T / 0.2
    terms = [np.log(np.exp(scores).sum(axis=1)) - np.diag(logits) for scores in (logits, logits.T)]
    loss, (metrics, carry) = Neighbours(temperature=0.2).objective(
        {}, NO_STATE, TwoViews(jnp.array(first), jnp.array(second), jnp.ones(5))
    )
    assert loss == pytest.approx(np.mean(terms), rel=1e-5)
    assert metrics["accuracy"] == pytest.approx((logits.argmax(axis=1) == np.arange(5)).mean())
    assert metrics["alignment"] == pytest.approx(np.square(unit[0] - unit[1]).sum(axis=1).mean(), rel=1e-5)
    assert carry is None


def test_it_reads_neighbours():
    class Asked:
        def neighbours(self):
            return "neighbours"

    assert inspect.unwrap(Neighbours.examples)(Neighbours(), Asked(), 0) == "neighbours"


@pytest.mark.parametrize("field", [{"temperature": 0.0}, {"pooling": "max"}])
def test_settings_out_of_range_are_named_in_one_line(field):
    with pytest.raises(ConfigError, match=rf"method\.{next(iter(field))}=") as caught:
        Neighbours(**field).check(Bert(CONFIG, jnp.float32, 0.1), 8)
    assert "\n" not in str(caught.value)
