"""Supervised baselines: SBERT's two objectives against NumPy, the cross-encoder against transformers, settings that do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.data.pairs import JoinedPairs
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import pad
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation.sts import score_of_pair
from jax_sentemb.formats.weight_table import to_torch
from jax_sentemb.methods import cross_encoder
from jax_sentemb.methods.cross_encoder import CrossEncoder
from jax_sentemb.methods.labelled_pairs import EncodedPairs
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.heads import pair_score
from jax_sentemb.types import Batch, Rows, TrainState

NO_STATE = TrainState({}, None, None, None, None, None)

TOKENIZER = Tokenizer.train(["a man and a dog .", "it rains , it is wet ."] * 3, 60)
SIZES = dict(
    vocab_size=TOKENIZER.vocab_size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=12,
)  # fmt: skip
CONFIG = BertConfig(**SIZES, initializer_range=0.3, sep_token_id=TOKENIZER.sep_id)
ENCODER = Bert(CONFIG, jnp.float32, 0.2)
PAIRS = [("a man", "a dog and a man ."), ("it is wet", "it"), ("rains", "a man and a dog . it is wet"), (".", "a dog , a dog")]


@pytest.fixture(scope="module")
def weights():
    return jax.jit(ENCODER.init)(jax.random.key(0), Rows(np.ones((1, 3), np.int32), np.ones((1, 3), bool)))["params"]


def two_texts():
    random = np.random.default_rng(0)
    return random.integers(5, CONFIG.vocab_size, (4, 2, 8)).astype(np.int32), np.arange(8) < random.integers(3, 9, (4, 2, 1))


@pytest.mark.parametrize("top_score", [5.0, 4.0])
def test_scores_are_compared_with_cosines_by_their_squared_difference(top_score):
    first, second = np.random.default_rng(0).normal(size=(2, 6, 4))
    gold = np.array([0.0, 4.0, 2.5, 1.0, 3.2, 0.4])
    total = 0.0
    for one, other, score in zip(first, second, gold, strict=True):
        total += (one @ other / np.sqrt(one @ one) / np.sqrt(other @ other) - score / top_score) ** 2
    encoded = EncodedPairs(jnp.array(first), jnp.array(second), jnp.array(gold, jnp.float32))
    loss, _ = SBERT(top_score=top_score).objective({}, NO_STATE, encoded)
    assert loss == pytest.approx(total / 6, rel=1e-5)


def test_classes_are_a_softmax_over_both_vectors_and_their_distance():
    random = np.random.default_rng(1)
    first, second = random.normal(size=(2, 6, 4))
    kernel, bias, labels = random.normal(size=(12, 3)), random.normal(size=3), [0, 2, 1, 1, 0, 2]
    losses, right = [], []
    for one, other, label in zip(first, second, labels, strict=True):
        logits = one @ kernel[:4] + other @ kernel[4:8] + abs(one - other) @ kernel[8:] + bias
        losses.append(np.log(np.exp(logits).sum()) - logits[label])
        right.append(logits.argmax() == label)
    params = {"classifier": {"kernel": jnp.array(kernel), "bias": jnp.array(bias)}}
    encoded = EncodedPairs(jnp.array(first), jnp.array(second), jnp.array(labels, jnp.float32))
    loss, (metrics, _) = SBERT("classes").objective(params, NO_STATE, encoded)
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert 0 < np.mean(right) < 1
    assert metrics["accuracy"] == pytest.approx(np.mean(right))


def test_its_parts_are_those_of_the_task_and_start_in_their_bounds(weights):
    loaded, key = {"encoder": weights}, jax.random.key(0)
    assert set(SBERT().init(ENCODER, loaded, key).params) == {"encoder"}
    method = SBERT("classes", convolution=Convolution((1, 3), 20))
    params = method.init(ENCODER, loaded, key).params
    assert set(params) == {"encoder", "cnn", "classifier"}
    kernel, bound = np.asarray(params["classifier"]["kernel"]), (3 * 40) ** -0.5
    assert kernel.shape == (3 * 40, 3)
    assert 0.95 * bound < np.abs(kernel).max() <= bound
    cnn = Convolution((1, 3), 20).init(jax.random.key(7), 16)
    assert method.init(ENCODER, {**loaded, "cnn": cnn}, key).params["cnn"] is cnn


@pytest.mark.parametrize("convolution", [None, Convolution((1, 3), 5)])
def test_both_texts_of_a_pair_are_embedded_by_one_encoder_with_dropout_of_their_own(weights, convolution):
    tokens, mask = two_texts()
    method, still = SBERT(convolution=convolution), Bert(CONFIG, jnp.float32, 0.0)
    params = method.init(still, {"encoder": weights}, jax.random.key(0)).params
    batch, seeds = Batch(tokens, mask, np.arange(4, dtype=np.float32)), jnp.arange(4, dtype=jnp.uint32)
    encoded = jax.jit(lambda params: method.encode(still, params, NO_STATE, batch, seeds))(params)
    embed = jax.jit(lambda rows: method.embed(ENCODER, params, rows))
    for side, vectors in enumerate((encoded.first, encoded.second)):
        rows = Rows(tokens[:, side], mask[:, side])
        np.testing.assert_allclose(vectors, embed(rows), atol=1e-5)
    np.testing.assert_array_equal(encoded.label, np.arange(4))
    same = Batch(tokens[:, [0, 0]], mask[:, [0, 0]], batch.label)
    loud = jax.jit(lambda params: method.encode(ENCODER, params, NO_STATE, same, seeds))(params)
    assert (np.abs(loud.first - loud.second).max(axis=1) > 0.02).all()


def test_a_cross_encoder_scores_joined_rows_as_transformers_does(weights, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    random = np.random.default_rng(0)
    pooler = {"kernel": random.normal(size=(16, 16)), "bias": random.normal(size=16)}
    classifier = {"kernel": random.normal(size=(16, 1)), "bias": random.normal(size=1)}
    params = {"encoder": weights, "pooler": pooler, "classifier": classifier}
    ids, cut = JoinedPairs(TOKENIZER).encode(PAIRS, 10)
    rows = pad(ids, 11, TOKENIZER.pad_id)
    ours = np.asarray(jax.jit(lambda params: pair_score(ENCODER, params, rows))(params))

    TOKENIZER.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    one, other = (list(side) for side in zip(*PAIRS, strict=True))
    assert 0 < cut == sum(len(row) > 10 for row in theirs(one, other)["input_ids"]) < len(PAIRS)
    given = theirs(
        one, other, truncation=True, max_length=10, padding="max_length", return_token_type_ids=True, return_tensors="pt"
    )
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZES, num_labels=1, attn_implementation="eager")
    ).eval()
    names = {f"bert.{name}": value for name, value in to_torch(CONFIG, weights).items()}
    names |= {"bert.pooler.dense.weight": pooler["kernel"].T, "bert.pooler.dense.bias": pooler["bias"]}
    names |= {"classifier.weight": classifier["kernel"].T, "classifier.bias": classifier["bias"]}
    model.load_state_dict({name: torch.tensor(np.array(value, np.float32)) for name, value in names.items()})
    with torch.no_grad():
        np.testing.assert_allclose(ours, model(**given).logits.numpy(), atol=2e-5)
        flat = model(**{**given, "token_type_ids": torch.zeros_like(given["token_type_ids"])}).logits.numpy()
    assert np.abs(ours - flat).min() > 1e-3  # the second sentence is told apart


def test_a_cross_encoder_learns_the_squared_difference_with_dropout_and_scores_without(weights):
    method = CrossEncoder(top_score=4.0)
    encoded = cross_encoder.PairScores(jnp.array([[0.5], [1.0], [-0.2]]), jnp.array([4.0, 2.0, 0.0]))
    assert method.objective({}, NO_STATE, encoded)[0] == pytest.approx((0.5**2 + 0.5**2 + 0.2**2) / 3, rel=1e-5)
    params = method.init(ENCODER, {"encoder": weights}, jax.random.key(0)).params
    rows = pad(JoinedPairs(TOKENIZER).encode(PAIRS, 10)[0], 11, TOKENIZER.pad_id)
    batch = Batch(*rows, np.arange(4, dtype=np.float32))
    encode = jax.jit(lambda seeds: method.encode(ENCODER, params, NO_STATE, batch, seeds))
    one, two = (encode(jnp.full(4, seed, jnp.uint32)).scores for seed in (0, 1))
    still = jax.jit(lambda params: method.embed(ENCODER, params, rows))(params)
    assert one.shape == still.shape == (4, 1)
    assert np.abs(one - two).min() > 0
    assert np.abs(one - still).min() > 0


def test_a_cross_encoder_learns_classes_and_another_one_goes_on_from_its_encoder_and_pooler(weights):
    method, logits = CrossEncoder("classes"), np.array([[2.0, 0.5, -1.0], [0.1, 0.3, 0.2]])
    loss, (metrics, _) = method.objective({}, NO_STATE, cross_encoder.PairScores(jnp.array(logits), jnp.array([0.0, 2.0])))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert loss == pytest.approx(-np.log(probabilities[[0, 1], [0, 2]]).mean(), rel=1e-5)
    assert metrics["accuracy"] == 0.5
    params = method.init(ENCODER, {"encoder": weights}, jax.random.key(0)).params
    rows = pad(JoinedPairs(TOKENIZER).encode(PAIRS, 10)[0], 11, TOKENIZER.pad_id)
    assert jax.eval_shape(lambda params: method.embed(ENCODER, params, rows), params).shape == (4, 3)
    after = CrossEncoder().init(ENCODER, params, jax.random.key(1)).params
    np.testing.assert_array_equal(after["pooler"]["kernel"], params["pooler"]["kernel"])
    assert after["classifier"]["kernel"].shape == (16, 1)


def test_the_score_of_a_pair_is_the_output_or_the_log_probability_of_the_first_class():
    logits = np.array([[2.0, 0.5, -1.0], [102.0, 103.0, 99.0]])
    expected = np.log([np.exp(2) / np.exp([2, 0.5, -1]).sum(), np.exp(2) / np.exp([2, 3, -1]).sum()])
    np.testing.assert_allclose(score_of_pair(logits), expected)
    np.testing.assert_array_equal(score_of_pair(np.array([[3.0], [4.0]])), [3.0, 4.0])


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (SBERT("ranks"), r"method\.task=ranks is not one of scores, classes"),
        (SBERT(classes=("a",)), r"method\.classes=a must be at least two different names"),
        (SBERT(classes=("a", "b", "A")), r"method\.classes="),
        (SBERT(top_score=0.0), r"method\.top_score=0\.0"),
        (SBERT(pooling="max"), r"method\.pooling=max is not one of cls, mean, first_last"),
        (SBERT(pooling="cls", convolution=Convolution()), r"method\.pooling=cls cannot follow a convolution: set"),
        (SBERT(convolution=Convolution((2,))), r"method\.convolution\.windows"),
        (CrossEncoder(top_score=-1.0), r"method\.top_score=-1\.0"),
        (CrossEncoder("ranks"), r"method\.task=ranks is not one of scores, classes"),
        (CrossEncoder("classes", ("a", "a")), r"method\.classes=a,a must be at least two different names"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(method, says):
    with pytest.raises(ConfigError, match=says) as caught:
        method.check(ENCODER, 8)
    assert "\n" not in str(caught.value)


def test_settings_that_fit_are_not_refused_but_a_roberta_as_cross_encoder_is():
    for method in (SBERT(), SBERT("classes", pooling="cls"), SBERT(convolution=Convolution()), CrossEncoder()):
        method.check(ENCODER, 8)
    with pytest.raises(ConfigError, match="cross-encoder of a roberta"):
        CrossEncoder().check(Bert(BertConfig(model_type="roberta")), 8)
