"""The queue of the momentum encoder: which entries count, and that no sentence is a negative of itself."""

import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ModelFileError
from jax_sentemb.formats.checkpoint import Checkpoints
from jax_sentemb.losses import info_nce
from jax_sentemb.methods import simcse
from jax_sentemb.methods.simcse import Momentum, SimCSE, SimCSEViews
from jax_sentemb.methods.views import TwoViews
from jax_sentemb.types import ROW_NUMBERS, TrainState


def state_of(queue, queue_rows, step):
    moved = {"encoder": jnp.zeros(1)}
    rows = jnp.array(queue_rows, jnp.int32)
    return TrainState(moved, jnp.zeros(1), jnp.array(queue, jnp.float32), None, None, jnp.int32(step), rows)


def encoded_of(first, second, row):
    views = TwoViews(jnp.array(first), jnp.array(second), jnp.ones(len(first)))
    return SimCSEViews(views, None, None, None, jnp.array(row, jnp.float32))


@pytest.mark.parametrize("pairs", [2**22, 8])  # all at once, and some rows at a time
def test_a_sentence_is_no_negative_of_itself(monkeypatch, pairs):
    monkeypatch.setattr("jax_sentemb.losses.PAIRS", pairs)
    random = np.random.default_rng(0)
    first, second, queue = (random.normal(size=(count, 3)).astype(np.float32) for count in (4, 4, 6))
    rows, in_queue, valid = np.array([5, 6, 7, 8]), np.array([6, 1, 8, 6, 2, 5]), np.array([1, 1, 1, 1, 1, 0], bool)

    def unit(vectors):
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    losses = []
    for i, anchor in enumerate(unit(first)):
        negatives = [entry for entry, row, counts in zip(unit(queue), in_queue, valid, strict=True) if counts and row != rows[i]]
        scores = np.exp(np.array([anchor @ other for other in [*unit(second), *negatives]]) / 0.5)
        losses.append(-np.log(scores[i] / scores.sum()))
    found, _ = info_nce(first, second, 0.5, queue, valid, True, (jnp.array(rows, jnp.float32), jnp.array(in_queue)))
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)
    assert float(found) < 0.99 * float(info_nce(first, second, 0.5, queue, valid)[0])


def test_the_objective_leaves_out_the_anchors_own_sentence_and_no_other():
    method = SimCSE(temperature=0.5, momentum=Momentum(queue_size=3))
    last = ROW_NUMBERS - 1
    first = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)

    def loss(queue, queue_rows):
        return float(method.objective({}, state_of(queue, queue_rows, 9), encoded_of(first, first, [last, 3]))[0])

    other = np.array([[0.3, -1.0, 0.2]])
    alone = loss(np.repeat(other, 3, 0), [1, 2, 4])
    queue = np.concatenate([first[:1], np.repeat(other, 2, 0)])
    assert loss(queue, [last, 2, 4]) < loss(queue, [last - 1, 2, 4])
    assert loss(np.repeat(other, 3, 0), [-1, -1, -1]) == alone  # numbers that are not known are nobody's


@pytest.mark.parametrize(
    ("batch_size", "step", "valid"),
    [(4, 0, 0), (4, 1, 4), (4, 2, 8), (4, 3, 10), (16, 1, 10), (65_536, 32_767, 10), (65_536, 32_768, 10), (65_536, 2**31 - 1, 10)],
)
def test_the_queue_counts_what_has_entered_it_at_any_step(monkeypatch, batch_size, step, valid):
    """32,768 batches of 65,536 sentences are 2^31: their number is none of int32."""
    asked = []

    def spy(first, second, temperature, queue, queue_valid, *more):
        asked.append(queue_valid.tolist())
        return jnp.zeros(()), jnp.zeros(())

    monkeypatch.setattr(simcse, "info_nce", spy)
    views = np.ones((batch_size, 1), np.float32)
    encoded = encoded_of(views, views, np.arange(batch_size))
    SimCSE(momentum=Momentum(queue_size=10)).objective({}, state_of(np.ones((10, 1)), np.zeros(10), step), encoded)
    assert asked == [[True] * valid + [False] * (10 - valid)]


def test_newest_sentences_stand_first_with_their_numbers():
    method = SimCSE(momentum=Momentum(queue_size=5))
    state = state_of(np.zeros((5, 2)), [-1] * 5, 0)
    for number in range(3):
        vectors = jnp.full((2, 2), number + 1.0)
        state = method.post_update(state, (vectors, jnp.array([10.0 * number, ROW_NUMBERS - 1 - number])))
    assert state.queue[:, 0].tolist() == [3, 3, 2, 2, 1]
    assert state.queue_rows.tolist() == [20, ROW_NUMBERS - 3, 10, ROW_NUMBERS - 2, 0]
    assert state.queue_rows.dtype == jnp.int32
    unknown = method.post_update(state, (vectors, None))
    assert unknown.queue_rows.tolist() == [-1, -1, 20, ROW_NUMBERS - 3, 10]


def test_a_checkpoint_without_the_numbers_of_the_queue_is_refused_in_one_line(tmp_path):
    state = state_of(np.zeros((5, 2)), [-1] * 5, 4)._replace(rng=jnp.zeros(2, jnp.uint32), opt_state={"a": jnp.zeros(1)})
    old = Checkpoints(tmp_path)
    old.save(4, state._replace(queue_rows=None), {"seed": 0})
    old.wait()
    with pytest.raises(ModelFileError, match=r"queue_rows absent there, int32\[5\] here") as caught:
        Checkpoints(tmp_path).restore(state, {"seed": 0})
    assert "\n" not in str(caught.value)


def test_an_earlier_checkpoint_that_names_no_grouping_was_sorted(tmp_path):
    state = state_of(np.zeros((5, 2)), [-1] * 5, 4)._replace(rng=jnp.zeros(2, jnp.uint32), opt_state={"a": jnp.zeros(1)})
    old = Checkpoints(tmp_path)
    old.save(4, state, {"seed": 0})
    old.wait()
    assert Checkpoints(tmp_path).restore(state, {"seed": 0, "data.length_grouping": 32, "before.data.length_grouping": 32})
    with pytest.raises(ModelFileError, match=r"written with data\.length_grouping=32, this run has 1"):
        Checkpoints(tmp_path).restore(state, {"seed": 0, "data.length_grouping": 1})
