"""Mirror-BERT: NT-Xent against a NumPy loop over 2B anchors and at its edges, what it reads, and what excludes what."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb import losses
from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.models.bert import Bert
from jax_sentemb.types import Batch, Rows, TrainState
from tests.tiny_models import bert_config

NO_STATE = TrainState({}, None, None, None, None, None)
nt_xent = jax.jit(losses.nt_xent, static_argnums=2)

CONFIG = bert_config(num_hidden_layers=2)
ENCODER = Bert(CONFIG, jnp.float32, 0.1)
TOKENS = np.random.default_rng(0).integers(5, 40, (3, 6)).astype(np.int32)
MASK = np.arange(6) < np.array([[6], [3], [5]])


@pytest.fixture(scope="module")
def params():
    return {"encoder": jax.jit(ENCODER.init)(jax.random.key(0), Rows(TOKENS, MASK))["params"]}


def encode(method, params, batch):
    return jax.jit(lambda params: method.encode(ENCODER, params, NO_STATE, batch, jnp.arange(3, dtype=jnp.uint32)))(params)


def drawn(batch=5, width=7, seed=0):
    return tuple(np.random.default_rng(seed).normal(size=(2, batch, width)))


def numpy_nt_xent(first, second, temperature):
    """(loss, accuracy), anchor by anchor."""
    rows = [row / np.linalg.norm(row) for row in (*first, *second)]
    terms, right = [], []
    for anchor, row in enumerate(rows):
        mirror = (anchor + len(first)) % len(rows)
        scores = {other: row @ rows[other] / temperature for other in range(len(rows)) if other != anchor}
        terms.append(np.log(sum(np.exp(score) for score in scores.values())) - scores[mirror])
        right.append(scores[mirror] == max(scores.values()))
    return np.mean(terms), np.mean(right)


@pytest.mark.parametrize("temperature", [0.04, 0.5])
def test_nt_xent_is_a_loop_over_both_views_as_anchors(temperature):
    first, second = drawn()
    second = first + second  # some mirrors rank first, some do not
    loss, accuracy = nt_xent(jnp.array(first), jnp.array(second), temperature)
    expected, share = numpy_nt_xent(first, second, temperature)
    assert 0 < share < 1
    assert loss == pytest.approx(expected, rel=2e-5)
    assert accuracy == pytest.approx(share)


def test_nt_xent_does_not_know_which_view_is_first():
    first, second = (jnp.array(rows) for rows in drawn())
    assert nt_xent(first, second, 0.2)[0] == pytest.approx(float(nt_xent(second, first, 0.2)[0]), rel=1e-5)


def test_gradient_by_finite_differences():
    with jax.enable_x64():
        first, second = (jnp.array(rows) for rows in drawn())
        direction = jnp.array(drawn(seed=1)[0])
        to_first, to_second = jax.jit(jax.grad(lambda one, other: nt_xent(one, other, 0.3)[0], (0, 1)))(first, second)

        def difference(function, at, step=1e-5):
            return float((function(at + step * direction) - function(at - step * direction)) / (2 * step))

        expected = difference(lambda at: nt_xent(at, second, 0.3)[0], first)
        assert float((to_first * direction).sum()) == pytest.approx(expected, rel=1e-6)
        expected = difference(lambda at: nt_xent(first, at, 0.3)[0], second)
        assert float((to_second * direction).sum()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("batch", [1, 4])
def test_one_sentence_and_identical_vectors_are_finite(batch):
    """Every one of the 2B - 1 others is as near as the mirror."""
    rows = jnp.broadcast_to(jnp.array(drawn()[0][:1]), (batch, 7))
    both = jax.value_and_grad(lambda *views: nt_xent(*views, 0.04), (0, 1), has_aux=True)
    (loss, accuracy), gradients = jax.jit(both)(rows, rows)
    assert loss == pytest.approx(np.log(2 * batch - 1), abs=1e-4)
    assert accuracy == 1.0
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_zero_vectors_are_finite():
    loss, gradient = jax.jit(jax.value_and_grad(lambda rows: nt_xent(rows, rows, 0.04)[0]))(jnp.zeros((3, 7)))
    assert loss == pytest.approx(np.log(5), abs=1e-5)
    assert np.isfinite(gradient).all()


def test_attention_information_and_a_masked_span_exclude_each_other():
    with pytest.raises(ConfigError, match=r"method\.ami .* \(method\.span=5\).*set method\.span=0") as caught:
        MirrorBERT(ami=AttentionMI(), span=5).check(ENCODER, 8)
    assert "\n" not in str(caught.value)
    MirrorBERT(ami=AttentionMI(), span=0).check(ENCODER, 8)
    with pytest.raises(ConfigError, match=r"method\.ami\.layers"):
        MirrorBERT(ami=AttentionMI(layers=(1, 3)), span=0).check(ENCODER, 8)


@pytest.mark.parametrize("field", [{"temperature": 0.0}, {"temperature": -1.0}, {"pooling": "max"}, {"span": -1}])
def test_settings_out_of_range_are_named_in_one_line(field):
    with pytest.raises(ConfigError, match=rf"method\.{next(iter(field))}=") as caught:
        MirrorBERT(**field).check(ENCODER, 8)
    assert "\n" not in str(caught.value)


class Asked:
    """Stands for a corpus: answers with what it was asked for."""

    def plain(self):
        return "plain"

    def span_masked(self, span, seed):
        return span, seed


def test_it_reads_masked_copies_only_where_there_is_a_span():
    examples = inspect.unwrap(MirrorBERT.examples)  # without the check of types, which refuses what stands for a corpus
    assert examples(MirrorBERT(), Asked(), 3) == (5, 3)
    assert examples(MirrorBERT(span=0), Asked(), 3) == "plain"


def test_both_texts_have_dropout_of_their_own(params):
    twice = Batch(np.stack([TOKENS, TOKENS], axis=1), np.stack([MASK, MASK], axis=1))
    spans, plain = encode(MirrorBERT(), params, twice), encode(MirrorBERT(span=0), params, Batch(TOKENS, MASK))
    for view in ("first", "second"):  # the same sentence twice is what a method without a span makes of it
        np.testing.assert_allclose(getattr(spans, view), getattr(plain, view), atol=1e-5)
    assert (np.abs(spans.first - spans.second).max(axis=1) > 0.05).all()
    np.testing.assert_array_equal(spans.lengths, [6, 3, 5])


def test_a_sentence_and_its_copy_are_told_apart(params):
    random = np.random.default_rng(1)
    tokens, mask = random.integers(5, 40, (3, 2, 6)).astype(np.int32), np.arange(6) < random.integers(3, 7, (3, 2, 1))
    quiet, method = Bert(CONFIG, jnp.float32, 0.0), MirrorBERT(pooling="mean")

    @jax.jit
    def embedded(params):
        encoded = method.encode(quiet, params, NO_STATE, Batch(tokens, mask), jnp.zeros(3, jnp.uint32))
        return encoded, [method.embed(quiet, params, Rows(tokens[:, text], mask[:, text])) for text in (0, 1)]

    encoded, (first, second) = embedded(params)
    np.testing.assert_allclose(encoded.first, first, atol=1e-5)
    np.testing.assert_allclose(encoded.second, second, atol=1e-5)


def test_the_loss_takes_the_information_off(params):
    method = MirrorBERT(span=0, ami=AttentionMI(samples=20, weight=0.5, density=False), temperature=0.3)
    encoded = encode(method, params, Batch(TOKENS, MASK))
    loss, (metrics, _) = method.objective(params, NO_STATE, encoded)
    contrastive, _ = numpy_nt_xent(np.asarray(encoded.first), np.asarray(encoded.second), 0.3)
    assert metrics["contrastive"] == pytest.approx(contrastive, rel=1e-4)
    assert metrics["attention_mi"] == pytest.approx(float(encoded.information.mean()), rel=1e-5)
    assert loss == pytest.approx(contrastive - 0.5 * float(encoded.information.mean()), rel=1e-4)
