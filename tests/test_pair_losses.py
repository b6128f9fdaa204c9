"""Losses of Contrastive Tension, Mirror-BERT and SBERT against loops in NumPy, finite differences, and their refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb import config as settings
from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.weight_table import to_torch
from jax_sentemb.losses import contrastive_tension, nt_xent, paired_cosine, softmax_cross_entropy, symmetric_info_nce
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.cross_encoder import CrossEncoder
from jax_sentemb.methods.labelled_pairs import LabelledPairs
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.methods.views import TwoViews
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.heads import pair_score
from jax_sentemb.parallel import make_mesh, shard_batch
from jax_sentemb.training.optimizer import make_optimizer
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.types import Batch, Rows, TrainState

NO_STATE = TrainState({}, None, None, None, None, None)

CONFIG = BertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=12, initializer_range=0.3, sep_token_id=3,
)  # fmt: skip
ENCODER = Bert(CONFIG, jnp.float32, 0.0)


def cosine(one, other):
    return one @ other / np.linalg.norm(one) / np.linalg.norm(other)


def tension_loop(first, second, group):
    """The pairs written out: positives, then every other sentence of the first encoder with the one before it of the second."""
    batch = len(first)
    others = [row for row in range(batch) if row % group]
    pairs = [(row, row, 1) for row in range(0, batch, group)]
    pairs += [(row, others[place - 1], 0) for place, row in enumerate(others)]
    assert all((one == other) == label for one, other, label in pairs)
    assert sorted(other for *_, other, _ in pairs) == list(range(batch))  # every sentence once on each side
    total = 0.0
    for one, other, label in pairs:
        probability = 1 / (1 + np.exp(-first[one] @ second[other]))
        total -= np.log(probability if label else 1 - probability)
    return total / batch


def nt_xent_loop(first, second, temperature):
    both, batch = np.concatenate([first, second]), len(first)
    total = 0.0
    for anchor in range(2 * batch):
        others = [other for other in range(2 * batch) if other != anchor]
        scores = {other: np.exp(cosine(both[anchor], both[other]) / temperature) for other in others}
        total -= np.log(scores[(anchor + batch) % (2 * batch)] / sum(scores.values()))
    return total / (2 * batch)


def symmetric_loop(first, second, scale):
    scores = np.array([[scale * cosine(one, other) for other in second] for one in first])
    rows = [np.log(np.exp(scores[i]).sum()) - scores[i, i] for i in range(len(first))]
    columns = [np.log(np.exp(scores[:, i]).sum()) - scores[i, i] for i in range(len(first))]
    return (np.mean(rows) + np.mean(columns)) / 2


LOSSES = {
    "tension": (lambda a, b: contrastive_tension(a, b, 4)[0], lambda a, b: tension_loop(a, b, 4)),
    "nt_xent": (lambda a, b: nt_xent(a, b, 0.2)[0], lambda a, b: nt_xent_loop(a, b, 0.2)),
    "in batch": (lambda a, b: symmetric_info_nce(a, b, jnp.float32(5.0))[0], lambda a, b: symmetric_loop(a, b, 5.0)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_those_of_a_loop(name):
    ours, loop = LOSSES[name]
    random = np.random.default_rng(0)
    first, second, step = (random.normal(size=(8, 5)) for _ in range(3))
    arrays = first.astype(np.float32), second.astype(np.float32)
    assert float(ours(*arrays)) == pytest.approx(loop(first, second), rel=1e-5)
    gradients = jax.grad(ours, (0, 1))(*arrays)
    for place, gradient in enumerate(gradients):
        ends = []
        for sign in (1, -1):
            moved = [first, second]
            moved[place] = moved[place] + sign * 1e-6 * step
            ends.append(loop(*moved))
        assert float((gradient * step).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=2e-3, abs=1e-5)


def test_accuracies_count_the_pairs_on_the_right_side():
    same = np.eye(4, dtype=np.float32)
    assert float(nt_xent(same, same, 0.1)[1]) == 1.0
    assert float(nt_xent(same, same[::-1], 0.1)[1]) == 0.0
    assert float(symmetric_info_nce(same, same[[1, 0, 2, 3]], jnp.float32(1.0))[1]) == 0.5
    assert float(contrastive_tension(5 * same, same, 2)[1]) == 1.0  # pairs (0, 0), (2, 2) above 0, (1, 3), (3, 1) not above


def test_the_trained_scale_has_the_gradient_of_its_logarithm():
    random = np.random.default_rng(1)
    first, second = random.normal(size=(2, 6, 4))

    def loss(log_scale):
        method = ContrastiveTension(form="in_batch")
        encoded = TwoViews(jnp.array(first), jnp.array(second), jnp.ones(6))
        return method.objective({"logit_scale": log_scale}, NO_STATE, encoded)[0]

    ends = [symmetric_loop(first, second, np.exp(1.0 + sign * 1e-5)) for sign in (1, -1)]
    assert float(jax.grad(loss)(1.0)) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-3)


def test_both_encoders_start_alike_and_part():
    method = ContrastiveTension(group=4, ami=AttentionMI(samples=20))  # without dropout rho is 1 at the start
    mesh = make_mesh(8, jax.devices()[:1])
    optimizer = make_optimizer(settings.Optimizer(learning_rate=1e-2), 10)
    state = create_state(method, ENCODER, optimizer, {}, 0, mesh)
    for one, other in zip(jax.tree.leaves(state.params["encoder"]), jax.tree.leaves(state.params["first"]), strict=True):
        np.testing.assert_array_equal(one, other)
    random = np.random.default_rng(0)
    batch = Batch(random.integers(5, 40, (8, 8)).astype(np.int32), np.arange(8) < random.integers(3, 9, (8, 1)))
    state, metrics = make_step(method, ENCODER, optimizer, mesh)(state, shard_batch(batch, mesh))
    assert np.isfinite([float(value) for value in metrics.values()]).all()
    assert float(metrics["attention_mi"]) > 5  # the clamp: 6.9 nats
    parted = jax.tree.map(lambda one, other: np.abs(one - other).max(), state.params["encoder"], state.params["first"])
    assert max(jax.tree.leaves(parted)) > 1e-3


@pytest.mark.parametrize(
    ("method", "batch_size", "says"),
    [
        (ContrastiveTension(group=8), 12, r"batch_size=12 must be a multiple of method\.group=8"),
        (ContrastiveTension(group=2), 2, "at least 2 negative pairs"),
        (ContrastiveTension(group=1), 8, "must be at least 2 pairs"),
        (ContrastiveTension(form="triples"), 8, "is not 'pairs' or 'in_batch'"),
        (ContrastiveTension(scale=0.0), 8, "must be greater than 0"),
        (ContrastiveTension(pooling="max"), 8, "is not one of cls, mean"),
        (MirrorBERT(ami=AttentionMI()), 8, r"span masking \(method\.span=5\).*set --config\.method\.span=0"),
        (MirrorBERT(temperature=0.0), 8, "must be greater than 0"),
        (MirrorBERT(span=-1), 8, "at least 0 characters"),
        (SBERT(task="ranks"), 8, "is not 'classes' or 'scores'"),
        (SBERT(classes=("a", "a")), 8, "two different names"),
        (SBERT(top_score=0.0), 8, "greater than 0"),
        (CrossEncoder(top_score=-1.0), 8, "greater than 0"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(method, batch_size, says):
    with pytest.raises(ConfigError, match=says) as caught:
        method.check(ENCODER, batch_size)
    assert "\n" not in str(caught.value)


def test_settings_that_fit_are_accepted():
    for method in (MirrorBERT(span=0, ami=AttentionMI(layers=(1, 2))), ContrastiveTension(), SBERT(), CrossEncoder()):
        method.check(ENCODER, 16)


def test_sbert_compares_cosines_with_scores():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 5, 4))
    gold = np.array([0.0, 5.0, 2.5, 1.0, 4.0])
    expected = np.mean([(cosine(first[i], second[i]) - gold[i] / 5) ** 2 for i in range(5)])
    loss, _ = SBERT().objective({}, NO_STATE, LabelledPairs(jnp.array(first), jnp.array(second), jnp.array(gold)))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(paired_cosine(first, second), [cosine(*pair) for pair in zip(first, second, strict=True)], atol=1e-6)


def test_sbert_classifies_both_vectors_and_their_distance():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 5, 4))
    kernel, bias, labels = random.normal(size=(12, 3)), random.normal(size=3), np.array([0, 2, 1, 1, 0])
    logits = np.concatenate([first, second, np.abs(first - second)], axis=1) @ kernel + bias
    chosen = [np.exp(row[label]) / np.exp(row).sum() for row, label in zip(logits, labels, strict=True)]
    params = {"classifier": {"kernel": jnp.array(kernel), "bias": jnp.array(bias)}}
    encoded = LabelledPairs(jnp.array(first), jnp.array(second), jnp.array(labels, jnp.float32))
    loss, (metrics, _) = SBERT(task="classes").objective(params, NO_STATE, encoded)
    assert float(loss) == pytest.approx(-np.log(chosen).mean(), rel=1e-5)
    assert float(metrics["accuracy"]) == pytest.approx((logits.argmax(1) == labels).mean())
    assert float(softmax_cross_entropy(jnp.zeros((2, 3)), jnp.array([0, 1]))[0]) == pytest.approx(np.log(3))


def test_a_cross_encoder_is_transformers_sequence_classifier():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    random = np.random.default_rng(0)
    params = {
        "encoder": jax.jit(ENCODER.init)(jax.random.key(0), Rows(np.ones((1, 3), np.int32), np.ones((1, 3), bool)))["params"],
        "pooler": {"kernel": random.normal(size=(16, 16)), "bias": random.normal(size=16)},
        "classifier": {"kernel": random.normal(size=(16, 1)), "bias": random.normal(size=1)},
    }
    tokens = np.array([[2, 7, 8, 3, 9, 3, 0, 0], [2, 6, 3, 11, 12, 13, 14, 3]], np.int32)
    mask = tokens > 0
    types = np.array([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1]])
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=12)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=40, num_labels=1, **sizes, attn_implementation="eager")
    ).eval()
    names = {f"bert.{name}": value for name, value in to_torch(CONFIG, params["encoder"]).items()}
    names |= {"bert.pooler.dense.weight": params["pooler"]["kernel"].T, "bert.pooler.dense.bias": params["pooler"]["bias"]}
    names |= {"classifier.weight": params["classifier"]["kernel"].T, "classifier.bias": params["classifier"]["bias"]}
    model.load_state_dict({name: torch.tensor(np.array(value, np.float32)) for name, value in names.items()})
    with torch.no_grad():
        theirs = model(
            torch.tensor(tokens).long(), attention_mask=torch.tensor(mask).long(), token_type_ids=torch.tensor(types).long()
        ).logits
    np.testing.assert_allclose(pair_score(ENCODER, params, Rows(tokens, mask)), theirs.numpy(), atol=2e-5)


@pytest.mark.parametrize("method", [SBERT(), MirrorBERT(pooling="mean"), MirrorBERT(pooling="mean", span=0), ContrastiveTension()])
def test_the_texts_of_a_sentence_are_told_apart(method):
    """Without dropout, what is compared are the embeddings of the first and of the second texts."""
    random = np.random.default_rng(0)
    tokens, mask = random.integers(5, 40, (4, 2, 6)).astype(np.int32), np.arange(6) < random.integers(3, 7, (4, 2, 1))
    single = isinstance(method, ContrastiveTension) or getattr(method, "span", 5) == 0
    batch = Batch(tokens[:, 0], mask[:, 0]) if single else Batch(tokens, mask, np.zeros(4, np.float32))
    loaded = {"encoder": jax.jit(ENCODER.init)(jax.random.key(0), batch.rows)["params"]}
    params = method.init(ENCODER, loaded, jax.random.key(1)).params
    encoded = method.encode(ENCODER, params, NO_STATE, batch, jnp.zeros(4, jnp.uint32))
    for text, vectors in ((0, encoded.first), (0 if single else 1, encoded.second)):
        np.testing.assert_allclose(vectors, method.embed(ENCODER, params, Rows(tokens[:, text], mask[:, text])), atol=1e-5)
