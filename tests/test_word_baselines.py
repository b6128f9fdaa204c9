"""QuickThoughts, InferSent and the language model: their losses against loops over NumPy, and by finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import neighbour_loss, sampled_softmax_loss
from jax_sentemb.methods.infer_sent import EncodedPairs, InferSent
from jax_sentemb.methods.language_model import LanguageModel
from jax_sentemb.methods.quick_thoughts import QuickThoughts
from jax_sentemb.methods.word_average import WordAverage
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.word_vectors import WordsConfig, WordVectors
from jax_sentemb.types import Batch, TrainState

NO_STATE = TrainState({}, None, None, None, None, None)
SEEDS = np.zeros(8, np.uint32)  # of dropout, which these encoders do not have

RANDOM = np.random.default_rng(0)
ENCODER = WordVectors(WordsConfig(20, 4))
LOADED = {"frozen": {"vectors": RANDOM.normal(size=(20, 4)).astype(np.float32)}}
MASK = np.arange(5) < np.array([[5], [1], [3], [4]])
BATCH = Batch(np.where(MASK, RANDOM.integers(2, 20, (4, 5)), 0).astype(np.int32), MASK)


def state(params, step=0):
    key = jax.random.key_data(jax.random.key(0))
    return TrainState(params, None, None, None, key, jnp.array(step, jnp.int32))


def encode(method, params):
    return jax.jit(lambda params: method.encode(ENCODER, params, state(params), BATCH, SEEDS[:4]))(params)


def objective(method, params, encoded, step=0):
    return jax.jit(lambda params, encoded, now: method.objective(params, now, encoded))(params, encoded, state(params, step))


def embed(method, params):
    return jax.jit(lambda params: method.embed(ENCODER, params, BATCH.rows))(params)


@pytest.mark.parametrize("itself", ["zero", "excluded"])
@pytest.mark.parametrize("context", [1, 2])
def test_neighbours_share_the_target_evenly(itself, context):
    scores = RANDOM.normal(size=(6, 6)) * 2
    losses, hits = [], 0
    for i in range(6):
        row = scores[i].copy()
        row[i] = 0.0 if itself == "zero" else -np.inf
        near = [j for j in range(6) if 0 < abs(i - j) <= context]
        log_probability = row - np.log(np.exp(row).sum())
        losses.append(-np.mean([log_probability[j] for j in near]))
        hits += row.argmax() in near
    unit_vectors = jnp.eye(6)  # the products with them are the scores
    ours = jax.jit(lambda values: neighbour_loss(values, unit_vectors, context, itself))
    loss, accuracy = ours(jnp.array(scores))
    assert float(loss) == pytest.approx(np.mean(losses), rel=1e-5)
    assert float(accuracy) == pytest.approx(hits / 6)
    step = RANDOM.normal(size=(6, 6))
    ends = [float(ours(jnp.array(scores + sign * 1e-2 * step))[0]) for sign in (1, -1)]
    gradient = jax.jit(jax.grad(lambda values: ours(values)[0]))(jnp.array(scores))
    assert float((gradient * step).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-2, rel=2e-2)


def test_the_right_word_against_others():
    right, others, mask = RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(2, 3, 4)), np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    others[0, 0, 1] = -np.inf
    losses = [
        np.log(np.exp(right[b, t]) + np.exp(others[b, t]).sum()) - right[b, t] for b in range(2) for t in range(3) if mask[b, t]
    ]
    ours = jax.value_and_grad(lambda values: sampled_softmax_loss(jnp.array(right), values, jnp.array(mask)))
    found, gradient = jax.jit(ours)(jnp.array(others))
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)
    assert np.isfinite(gradient).all()


def test_the_language_model_predicts_each_next_word_from_the_ones_before():
    method = LanguageModel(hidden=3, candidates=0)
    params = jax.device_get(method.init(ENCODER, LOADED, jax.random.key(1)).params)
    params["word_bias"] = RANDOM.normal(size=20).astype(np.float32)
    encoded = encode(method, params)
    vectors, losses = LOADED["frozen"]["vectors"], []
    for row in range(4):
        for place in range(MASK[row].sum() - 1):
            inner = np.array(encoded.states)[row, place] @ params["output"]["kernel"] + params["output"]["bias"]
            scores = vectors @ inner + params["word_bias"]
            losses.append(np.log(np.exp(scores).sum()) - scores[BATCH.tokens[row, place + 1]])
    loss, _ = objective(method, params, encoded)
    assert float(loss) == pytest.approx(np.mean(losses), rel=1e-5)
    assert len(losses) == 4 + 0 + 2 + 3
    last = np.array(encoded.states)[np.arange(4), MASK.sum(1) - 1]
    np.testing.assert_allclose(embed(method, params), last, atol=1e-6)


def test_a_sampled_softmax_is_the_whole_one_on_average():
    whole, sampled = LanguageModel(hidden=3, candidates=0), LanguageModel(hidden=3, candidates=12)
    params = whole.init(ENCODER, LOADED, jax.random.key(1)).params
    encoded = encode(whole, params)
    expected = float(objective(whole, params, encoded)[0])
    loss_at = jax.jit(lambda params, now: sampled.objective(params, now, encoded)[0])
    losses = [float(loss_at(params, state(params, step))) for step in range(60)]
    assert np.mean(losses) == pytest.approx(expected, abs=0.1)  # 0.5 apart without the logarithm of the expected count
    assert np.std(losses) > 0


def test_infer_sent_compares_in_four_ways():
    method = InferSent(hidden=2, classifier_width=3)
    params = jax.device_get(method.init(ENCODER, LOADED, jax.random.key(1)).params)
    first, second = RANDOM.normal(size=(2, 5, 4)).astype(np.float32)
    label = np.array([0, 2, 1, 1, 0], np.float32)
    values = np.concatenate([first, second, abs(first - second), first * second], axis=1)
    for name in ("first", "second", "output"):
        values = values @ params["classifier"][name]["kernel"] + params["classifier"][name]["bias"]
    expected = np.mean([np.log(np.exp(row).sum()) - row[int(right)] for row, right in zip(values, label, strict=True)])
    loss, (metrics, _) = objective(method, params, EncodedPairs(*map(jnp.array, (first, second, label))))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(metrics["accuracy"]) == pytest.approx((values.argmax(1) == label).mean())


def test_quick_thoughts_embeds_by_both_encoders():
    method = QuickThoughts(hidden=3)
    params = method.init(ENCODER, LOADED, jax.random.key(1)).params
    encoded = encode(method, params)
    np.testing.assert_allclose(embed(method, params), np.concatenate(encoded, axis=1), rtol=1e-6, atol=1e-7)
    assert not np.allclose(encoded.source, encoded.target)
    expected, _ = neighbour_loss(encoded.source @ encoded.target.T, jnp.eye(len(encoded.source)), 1, "zero")
    assert float(objective(method, params, encoded)[0]) == pytest.approx(float(expected), rel=1e-5)


def test_the_word_average_counts_unknown_words_as_zero():
    vectors = LOADED["frozen"]["vectors"]
    found = WordAverage().embed(ENCODER, LOADED, BATCH.rows)
    expected = [vectors[row[:length]].mean(0) for row, length in zip(BATCH.tokens, MASK.sum(1), strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (QuickThoughts(itself="x"), "is not one of zero, excluded"),
        (QuickThoughts(context=8), "below data.batch_size=8"),
        (QuickThoughts(pooling="mean"), "is not one of last"),
        (LanguageModel(candidates=-1), "must be at least 0"),
        (InferSent(classes=("a",)), "at least two different names"),
        (InferSent(hidden=0), "must be at least 1"),
        (WordAverage(pooling="max"), "is not one of mean"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(method, says):
    with pytest.raises(ConfigError, match=says) as caught:
        method.check(ENCODER, 8)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="works on word vectors"):
        type(method)().check(Bert(BertConfig()), 8)
