"""SimCSE and miCSE: the momentum view and its queue, and the masked-language-model term."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.formats.checkpoint import Checkpoints
from jax_sentemb.losses import info_nce, rank_consistency
from jax_sentemb.methods import simcse
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.simcse import Momentum, SimCSE, SimCSEViews
from jax_sentemb.methods.views import TwoViews
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.heads import apply_head
from jax_sentemb.types import ROW_NUMBERS, Batch, Rows, TrainState
from tests.tiny_models import bert_config

ENCODER = Bert(bert_config(vocab_size=20, hidden_size=8, intermediate_size=16, max_position_embeddings=6), jnp.float32, 0.4)
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
    embed = jax.jit(lambda params: apply_head(learned.params["head"], method.embed(ENCODER, {"encoder": params}, BATCH.rows)))
    np.testing.assert_allclose(encoded.momentum, embed(learned.ema_params), atol=1e-6)
    _, dropped = encode(learned, 0.6)
    assert np.abs(dropped.momentum - encoded.momentum).max() > 0.01


def test_the_momentum_view_has_its_own_dropout_masks(learned):
    _, encoded = encode(learned, ENCODER.dropout)  # all three views differ by their masks alone
    views = [np.asarray(view) for view in (*encoded.views[:2], encoded.momentum)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (np.abs(views[one] - views[other]).max(axis=1) > 1e-3).all(), (one, other)


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_the_divergence_of_the_similarity_lists_is_added_with_its_weight(weight):
    views = [jnp.array(np.random.default_rng(number).normal(size=(4, 3)), jnp.float32) for number in (0, 1)]
    encoded = SimCSEViews(TwoViews(*views, jnp.ones(4)), None, None, None, None)
    state = TrainState({}, None, None, None, None, jnp.int32(0), None)
    plain, added = (SimCSE(head=False, rank_consistency=share, rank_temperature=0.2) for share in (0.0, weight))
    loss, (metrics, _) = added.objective({}, state, encoded)
    divergence = float(rank_consistency(*views, 0.2))
    assert float(loss) == pytest.approx(float(plain.objective({}, state, encoded)[0]) + weight * divergence, rel=1e-6)
    assert float(metrics["rank_consistency"]) == pytest.approx(divergence)


def test_an_order_needs_two_other_sentences():
    with pytest.raises(
        ConfigError, match=r"rank_consistency=1.0 compares the order of other sentences; give at least .*batch_size=3"
    ):
        SimCSE(rank_consistency=1.0).check(ENCODER, 2)


@pytest.mark.parametrize("weight", [0.25, 3.0])
def test_the_masked_language_model_loss_is_added_with_its_weight(weight):
    views = [jnp.array(np.random.default_rng(number).normal(size=(4, 3)), jnp.float32) for number in (0, 1)]
    masked_loss, count = jnp.array([3.0, 0.0, 5.0, 1.0]), jnp.array([2.0, 0.0, 1.0, 1.0])
    encoded = SimCSEViews(TwoViews(*views, jnp.ones(4)), None, masked_loss, count, None)
    state = TrainState({}, None, None, None, None, jnp.int32(0), None)
    loss, (metrics, _) = SimCSE(head=False, mlm_weight=weight).objective({}, state, encoded)
    assert float(metrics["mlm"]) == pytest.approx(9 / 4)
    assert float(loss) == pytest.approx(float(metrics["contrastive"]) + weight * 9 / 4)


def test_the_momentum_encoder_is_the_moving_average_of_the_trained_one(learned):
    trained = jax.tree.map(lambda leaf: leaf + 1.0, learned.params)
    state = TrainState(trained, learned.ema_params, learned.queue, None, None, jnp.int32(0), learned.queue_rows)
    moved = SimCSE(momentum=Momentum(queue_size=4, decay=0.75)).post_update(state, (jnp.ones((2, 8)), None))
    distance = jax.tree.map(lambda new, old: new - old - 0.25, moved.ema_params, learned.ema_params)
    assert float(optax.tree.norm(distance)) < 1e-4


# The queue of the momentum encoder: which entries count, and that no sentence is a negative of itself


def state_of(queue, queue_rows, step):
    moved = {"encoder": jnp.zeros(1)}
    rows = jnp.array(queue_rows, jnp.int32)
    return TrainState(moved, jnp.zeros(1), jnp.array(queue, jnp.float32), None, None, jnp.int32(step), rows)


def encoded_of(first, second, row):
    views = TwoViews(jnp.array(first), jnp.array(second), jnp.ones(len(first)))
    return SimCSEViews(views, None, None, None, jnp.array(row, jnp.float32))


@pytest.mark.parametrize("pairs", [2**22, 8])  # all at once, and some rows at a time
def test_a_sentence_is_no_negative_of_itself(monkeypatch, pairs):
    monkeypatch.setattr("jax_sentemb.losses.arrays.PAIRS", pairs)
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
    found, _ = info_nce(first, second, 0.5, queue, valid, (jnp.array(rows, jnp.float32), jnp.array(in_queue)))
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)
    assert float(found) < 0.99 * float(info_nce(first, second, 0.5, queue, valid)[0])


def test_the_objective_leaves_out_the_anchors_own_sentence_and_no_other():
    method = SimCSE(temperature=0.5, head=False, momentum=Momentum(queue_size=3))
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
    """32,768 batches of 65,536 sentences are 2^31: their number exceeds int32."""
    asked = []

    def spy(first, second, temperature, queue, queue_valid, *more):
        asked.append(queue_valid.tolist())
        return jnp.zeros(()), jnp.zeros(())

    monkeypatch.setattr(simcse, "info_nce", spy)
    views = np.ones((batch_size, 1), np.float32)
    encoded = encoded_of(views, views, np.arange(batch_size))
    SimCSE(head=False, momentum=Momentum(queue_size=10)).objective({}, state_of(np.ones((10, 1)), np.zeros(10), step), encoded)
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
    old = Checkpoints(tmp_path, {"seed": 0})
    old.save(4, state._replace(queue_rows=None), {"seed": 0})
    old.wait()
    with pytest.raises(ModelFileError, match=r"queue_rows is absent, expected int32\[5\]") as caught:
        Checkpoints(tmp_path, {"seed": 0}).restore(state)
    assert "\n" not in str(caught.value)


class Asked:
    """Stands for a corpus: answers with what it was asked for."""

    def plain(self):
        return "plain"

    def word_repeated(self, rate, seed):
        return rate, seed


def test_it_reads_repeated_words_only_where_there_is_repetition():
    examples = inspect.unwrap(SimCSE.examples)  # without the check of types, which refuses what stands for a corpus
    assert examples(SimCSE(repetition=0.32), Asked(), 3) == (0.32, 3)
    assert examples(SimCSE(), Asked(), 3) == "plain"


def test_with_repetition_the_views_are_the_two_texts_and_momentum_and_masks_read_the_first(learned, monkeypatch):
    random = np.random.default_rng(2)
    tokens, mask = random.integers(5, 20, (3, 2, 6)).astype(np.int32), np.arange(6) < random.integers(3, 7, (3, 2, 1))
    quiet = Bert(ENCODER.config, jnp.float32, 0.0)
    method = SimCSE(pooling="mean", head=False, repetition=0.3, momentum=Momentum(4, dropout=0.0), mlm_weight=1.0)
    seen = []
    monkeypatch.setattr(simcse, "masked_lm_loss", lambda encoder, params, rows, *_: (seen.append(rows), (None, None, None))[1])
    state = TrainState(learned.params, learned.ema_params, learned.queue, None, None, jnp.int32(0), learned.queue_rows)
    encoded = method.encode(quiet, learned.params, state, Batch(tokens, mask), SEEDS)
    texts = [method.embed(quiet, learned.params, Rows(tokens[:, text], mask[:, text])) for text in (0, 1)]
    for found, expected in zip((encoded.views.first, encoded.views.second, encoded.momentum), (*texts, texts[0]), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(seen[0].tokens, tokens[:, 0])


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (SimCSE(repetition=-0.1), r"method\.repetition=-0.1 must be at least 0 and at most 1"),
        (SimCSE(repetition=1.5), r"method\.repetition=1.5 must be at least 0 and at most 1"),
        (SimCSE(repetition=0.3, ami=AttentionMI()), r"method\.ami .*set method\.repetition=0"),
        (SimCSE(negatives=False, momentum=Momentum()), r"method\.momentum is a queue of negatives.* set method\.momentum=None"),
    ],
)
def test_settings_that_exclude_each_other_are_refused_in_one_line(method, says):
    with pytest.raises(ConfigError, match=says) as caught:
        method.check(ENCODER, 8)
    assert "\n" not in str(caught.value)
