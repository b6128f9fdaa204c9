"""IS-BERT's loss against loops in NumPy, its convolution and a whole step against torch, and its memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.modules import convolution_to_torch
from jax_sentemb.formats.weight_table import to_torch
from jax_sentemb.losses import token_sentence_jsd
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.types import Batch, TrainState
from tests.tiny_models import bert_config


@pytest.mark.parametrize("other", [Convolution((1, 3), 5), Convolution((1, 3, 7), 4), Convolution((1, 3), 4)])
def test_a_convolution_that_does_not_fit_that_of_the_directory_is_refused(other):
    """Otherwise windows would be left out, or missing, and the export would fail after the training."""
    cnn = Convolution((1, 3, 5), 4).init(jax.random.key(0), 16)
    assert Convolution((1, 3, 5), 4).loaded_or_new(cnn, jax.random.key(1), 16) is cnn
    remedy = r"set method\.convolution\.windows=1,3,5 and method\.convolution\.filters=4$"
    with pytest.raises(ConfigError, match=f"do not fit .* {remedy}"):
        other.loaded_or_new(cnn, jax.random.key(1), 16)


NO_STATE = TrainState({}, None, None, None, None, None)

CONFIG = bert_config(num_hidden_layers=2)
LENGTHS = (4, 1, 6)


def softplus(x):
    return np.log1p(np.exp(-abs(x))) + max(x, 0.0)


def loop(local, lengths, sentence, over):
    """Pair by pair: (loss, E_pos, E_neg)."""
    batch, log2 = len(sentence), np.log(2.0) if over == "pairs" else 0.0
    positive = negative = 0.0
    for one, length in enumerate(lengths):
        for token in local[one, :length]:
            for other, vector in enumerate(sentence):
                score = float(token @ vector)
                if one == other:
                    positive += log2 - softplus(-score)
                else:
                    negative += softplus(score) - log2
    count = sum(lengths) if over == "pairs" else batch
    positive, negative = positive / count, negative / (count * (batch - 1))
    return negative - positive, positive, negative


@pytest.fixture(scope="module")
def drawn():
    random = np.random.default_rng(0)
    local, sentence = random.normal(0, 1, (3, 6, 5)), random.normal(0, 1, (3, 5))
    mask = np.arange(6) < np.array(LENGTHS)[:, None]
    return local.astype(np.float32), mask.astype(np.float32), sentence.astype(np.float32)


@pytest.mark.parametrize("over", ["pairs", "sentences"])
def test_the_loss_is_that_of_a_loop_over_pairs(drawn, over):
    local, mask, sentence = drawn
    found = token_sentence_jsd(local, mask, sentence, over)
    np.testing.assert_allclose(found, loop(local, LENGTHS, sentence, over), rtol=1e-5)


@pytest.mark.parametrize("over", ["pairs", "sentences"])
def test_gradients_are_those_of_finite_differences(drawn, over):
    local, mask, sentence = drawn
    to_local, to_sentence = jax.jit(jax.grad(lambda a, b: token_sentence_jsd(a, mask, b, over)[0], (0, 1)))(local, sentence)
    random = np.random.default_rng(1)
    for gradient, place in ((to_local, 0), (to_sentence, 1)):
        arrays = [local.astype(np.float64), sentence.astype(np.float64)]
        step = random.normal(size=gradient.shape)
        ends = []
        for sign in (1, -1):
            moved = list(arrays)
            moved[place] = arrays[place] + sign * 1e-5 * step
            ends.append(loop(moved[0], LENGTHS, moved[1], over)[0])
        assert float((gradient * step).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4)
    assert not np.asarray(to_local)[~mask.astype(bool)].any()  # padding has no part in it


def test_the_worked_example():
    # Tokens (1,0), (0,1) of sentence (.5,.5), token (1,1) of sentence (1,1): scores .5 .5 | 1 1 and 2 | 1.
    local = np.array([[[1, 0], [0, 1]], [[1, 1], [9, 9]]], np.float32)
    mask = np.array([[1, 1], [1, 0]], np.float32)
    found = token_sentence_jsd(local, mask, np.array([[0.5, 0.5], [1, 1]], np.float32))
    np.testing.assert_allclose(found, (0.2853280, 0.3347865, 0.6201145), atol=1e-6)


def test_it_is_zero_where_all_scores_are_and_finite_for_one_sentence(drawn):
    local, mask, sentence = drawn
    np.testing.assert_allclose(token_sentence_jsd(0 * local, mask, sentence), 0.0, atol=1e-7)
    assert np.isfinite(token_sentence_jsd(local[:1], mask[:1], sentence[:1])).all()


def test_a_large_batch_needs_less_than_a_gigabyte():
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((512, 64, 768), (512, 64), (512, 768))]
    step = jax.jit(jax.value_and_grad(lambda local, mask, sentence: token_sentence_jsd(local, mask, sentence)[0], (0, 2)))
    memory = step.lower(*shapes).compile().memory_analysis()
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes < 1e9  # with the gradients; 0.3 GB


def test_windows_that_cannot_be_are_named():
    with pytest.raises(ConfigError, match="different odd numbers"):
        ISBERT(Convolution((2,))).check(Bert(CONFIG), 8)


def test_loss_and_gradient_are_torchs_through_the_whole_model():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    random = np.random.default_rng(3)
    mask = np.arange(8) < np.array([[8], [3], [5], [6]])
    batch = Batch(random.integers(5, 40, mask.shape).astype(np.int32), mask)
    encoder, method = Bert(CONFIG, jnp.float32, 0.0), ISBERT(Convolution((1, 3), 4))
    loaded = {"encoder": jax.jit(encoder.init)(jax.random.key(0), batch.rows)["params"]}
    params = jax.device_get(method.init(encoder, loaded, jax.random.key(1)).params)

    def loss_of(params):
        encoded = method.encode(encoder, params, NO_STATE, batch, jnp.zeros(4, jnp.uint32))
        return method.objective(params, NO_STATE, encoded)[0]

    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(params)
    names = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=12)
    rates = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager")
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=40, **names, **rates), add_pooling_layer=False)
    bert.load_state_dict({name: torch.tensor(np.array(value)) for name, value in to_torch(CONFIG, params["encoder"]).items()})
    tensors = convolution_to_torch(method.convolution, params["cnn"])
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in tensors.items()}
    real = torch.tensor(mask)
    states = bert(torch.tensor(batch.tokens).long(), attention_mask=real.long()).last_hidden_state * real[..., None]
    local = torch.cat(
        [
            torch.nn.functional.conv1d(states.mT, weights[f"convs.{n}.weight"], weights[f"convs.{n}.bias"], padding=n).mT
            for n in (0, 1)
        ],
        dim=-1,
    )
    sentence = (local * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    scores = torch.einsum("bte,se->bts", local, sentence)
    own = torch.eye(4, dtype=bool)[:, None, :] & real[..., None]
    others = ~torch.eye(4, dtype=bool)[:, None, :] & real[..., None]
    expected = (
        torch.nn.functional.softplus(scores)[others].mean() + torch.nn.functional.softplus(-scores)[own].mean() - 2 * np.log(2)
    )
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
    for name, gradient in convolution_to_torch(method.convolution, gradients["cnn"]).items():
        np.testing.assert_allclose(gradient, weights[name].grad.numpy(), atol=1e-4, rtol=1e-4)
    theirs = bert.encoder.layer[0].output.dense.weight.grad.numpy()
    np.testing.assert_allclose(gradients["encoder"]["layer_0"]["output"]["kernel"], theirs.T, atol=1e-4, rtol=1e-3)
