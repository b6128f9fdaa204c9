"""TSDAE: loss and gradients against transformers' decoder, what the decoder may see, and the export."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.weight_table import to_torch
from jax_sentemb.methods import tsdae
from jax_sentemb.methods.tsdae import TSDAE
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.decoder import decode
from jax_sentemb.models.modern_bert import ModernBert, ModernBertConfig
from jax_sentemb.models.pooling import sentence_embedding
from jax_sentemb.types import Batch, TrainState
from tests.tiny_models import bert_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
CONFIG = bert_config(num_hidden_layers=2, max_position_embeddings=16)
ENCODER = Bert(CONFIG, jnp.float32, 0.0)
STATE = TrainState({}, None, None, None, None, jnp.int32(0))
METHOD = TSDAE()


def batch_of(size=4, width=9):
    """Sentences and copies of them that lack some tokens."""
    random = np.random.default_rng(0)
    tokens, lengths = np.zeros((size, 2, width), np.int32), np.array([9, 5, 7, 3])
    for row, length in enumerate(lengths):
        whole = random.integers(5, 40, length)
        kept = whole[np.sort(random.choice(length, max(2, length // 2), replace=False))]
        tokens[row, 0, :length], tokens[row, 1, : len(kept)] = whole, kept
    return Batch(tokens, tokens > 0)


@pytest.fixture(scope="module")
def params():
    encoder = jax.jit(ENCODER.init)(jax.random.key(0), batch_of().rows)["params"]
    params = METHOD.init(ENCODER, {"encoder": encoder}, jax.random.key(1)).params
    return jax.tree.map(
        lambda leaf: leaf + 0.05 * np.random.default_rng(leaf.size).normal(size=leaf.shape).astype(np.float32), params
    )


def loss_of(params, batch, seeds=None, encoder=ENCODER):
    seeds = jnp.arange(len(batch.tokens), dtype=jnp.uint32) if seeds is None else seeds
    return METHOD.objective(params, STATE, METHOD.encode(encoder, params, STATE, batch, seeds))[0]


def torch_run(params, pooling="cls"):
    """(loss, encoder, decoder) of transformers, whose encoder and decoder have equal weights."""
    sizes = {
        "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 16, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    encoder = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False)
    decoder = transformers.BertLMHeadModel(transformers.BertConfig(**sizes, is_decoder=True, add_cross_attention=True))
    weights = {key: torch.tensor(np.array(value)) for key, value in to_torch(CONFIG, jax.device_get(params["encoder"])).items()}
    encoder.load_state_dict(weights, strict=False)
    decoder.bert.load_state_dict(weights, strict=False)
    head, cross = params["decoder_head"], params["cross_attention"]

    def copy(target, values, turned=False):
        target.data.copy_(torch.tensor(np.array(values).T if turned else np.array(values)))

    prediction = decoder.cls.predictions
    copy(prediction.transform.dense.weight, head["transform"]["kernel"], True)
    copy(prediction.transform.dense.bias, head["transform"]["bias"])
    copy(prediction.transform.LayerNorm.weight, head["norm"]["scale"])
    copy(prediction.transform.LayerNorm.bias, head["norm"]["bias"])
    copy(prediction.decoder.weight, params["encoder"]["embeddings"]["word"])
    copy(prediction.bias, head["bias"])
    prediction.decoder.bias = prediction.bias
    for number, layer in enumerate(decoder.bert.encoder.layer):
        own = cross[f"layer_{number}"]
        for module, name in ((layer.crossattention.self.value, "value"), (layer.crossattention.output.dense, "output")):
            copy(module.weight, own[name]["kernel"], True)
            copy(module.bias, own[name]["bias"])
        copy(layer.crossattention.output.LayerNorm.weight, own["norm"]["scale"])
        copy(layer.crossattention.output.LayerNorm.bias, own["norm"]["bias"])
    batch = batch_of()
    whole, copies = (torch.tensor(batch.tokens[:, view]).long() for view in (0, 1))
    vectors = encoder(copies, attention_mask=(copies > 0).long()).last_hidden_state[:, 0]
    logits = decoder(
        whole[:, :-1],
        attention_mask=(whole[:, :-1] > 0).long(),
        encoder_hidden_states=vectors[:, None],
        encoder_attention_mask=torch.ones(4, 1),
    ).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 40), whole[:, 1:].reshape(-1), ignore_index=0)
    return loss, encoder, decoder


def test_loss_and_gradients_are_those_of_transformers(params):
    found, gradients = jax.jit(jax.value_and_grad(loss_of))(params, batch_of())
    loss, encoder, decoder = torch_run(params)
    loss.backward()
    assert float(found) == pytest.approx(loss.item(), rel=1e-5)
    both = {name: value.grad for name, value in encoder.named_parameters()}
    written = {name: value.grad for name, value in decoder.bert.named_parameters()}
    words = decoder.cls.predictions.decoder.weight
    shared = words is decoder.bert.embeddings.word_embeddings.weight
    for name, ours in to_torch(CONFIG, jax.device_get(gradients["encoder"])).items():
        expected = both[name] + written[name]
        if name == "embeddings.word_embeddings.weight" and not shared:
            expected = expected + words.grad
        np.testing.assert_allclose(ours, expected, rtol=2e-3, atol=2e-6, err_msg=name)
    for number, layer in enumerate(decoder.bert.encoder.layer):
        own = gradients["cross_attention"][f"layer_{number}"]
        np.testing.assert_allclose(own["value"]["kernel"].T, layer.crossattention.self.value.weight.grad, rtol=2e-3, atol=2e-6)
        np.testing.assert_allclose(own["output"]["bias"], layer.crossattention.output.dense.bias.grad, rtol=2e-3, atol=2e-6)
        np.testing.assert_allclose(own["norm"]["scale"], layer.crossattention.output.LayerNorm.weight.grad, rtol=2e-3, atol=2e-6)
        assert layer.crossattention.self.query.weight.grad.abs().max() < 1e-8  # of one vector: left out here
    head = decoder.cls.predictions
    np.testing.assert_allclose(gradients["decoder_head"]["bias"], head.bias.grad, rtol=2e-3, atol=2e-6)
    kernel = gradients["decoder_head"]["transform"]["kernel"]
    np.testing.assert_allclose(kernel.T, head.transform.dense.weight.grad, rtol=2e-3, atol=2e-6)


def losses_of_tokens(params, batch):
    """The loss of each token of the first sentence: the summed loss of all rows that begin with it, one longer than the other."""
    whole, copy = batch.tokens[0]
    lengths = np.arange(2, 10)
    tokens = np.stack([np.stack([np.where(np.arange(9) < length, whole, 0), copy]) for length in lengths])
    mask = np.stack([np.stack([np.arange(9) < length, copy > 0]) for length in lengths])
    seeds = jnp.arange(len(lengths), dtype=jnp.uint32)
    encoded = jax.jit(lambda params: METHOD.encode(ENCODER, params, STATE, Batch(tokens, mask), seeds))(params)
    return np.diff(np.asarray(encoded.loss), prepend=0.0)


def test_the_decoder_sees_only_earlier_tokens_and_the_embedding_of_the_copy(params):
    batch = batch_of()
    plain = losses_of_tokens(params, batch)
    later = batch.tokens.copy()
    later[0, 0, 6] = 39
    changed = losses_of_tokens(params, batch._replace(tokens=later))
    np.testing.assert_allclose(changed[:5], plain[:5], atol=1e-5)  # the first five predictions come before the change
    assert (np.abs(changed[5:] - plain[5:]) > 1e-3).all()
    other = batch.tokens.copy()
    other[0, 1, 1] = 39
    assert (np.abs(losses_of_tokens(params, batch._replace(tokens=other)) - plain) > 1e-5).all()


def test_dropout_drops_weights_of_the_cross_attention_and_differs_from_the_encoder_pass(params):
    dropped = Bert(CONFIG, jnp.float32, 0.3)
    seeds = [jnp.full(4, seed, jnp.uint32) for seed in (0, 1)]
    measured = jax.jit(lambda own: loss_of(params, batch_of(), own, dropped))
    losses = [float(measured(own)) for own in seeds]
    assert losses[0] != losses[1]
    assert losses[0] == float(measured(seeds[0]))
    assert all(np.isfinite(losses))


def test_each_pass_has_its_own_dropout(monkeypatch, params):
    used = []

    def embed(*arguments, seeds):
        used.append(seeds)
        return sentence_embedding(*arguments, seeds=seeds)

    def write(encoder, weights, rows, vectors, seeds):
        used.append(seeds)
        return decode(encoder, weights, rows, vectors, seeds)

    monkeypatch.setattr(tsdae, "sentence_embedding", embed)
    monkeypatch.setattr(tsdae, "decode", write)
    loss_of(params, batch_of())
    assert len(np.unique(np.concatenate(used))) == 8


@pytest.mark.parametrize("options", [{"remat": True}, {"attention_block": 4}, {"dtype": jnp.bfloat16, "activations": jnp.bfloat16}])
def test_memory_and_precision_change_no_result(params, options):
    encoder = dataclasses.replace(ENCODER, **options)
    found, gradients = jax.jit(jax.value_and_grad(lambda params: loss_of(params, batch_of(), None, encoder)))(params)
    expected, exact = jax.jit(jax.value_and_grad(lambda params: loss_of(params, batch_of())))(params)
    tolerance = 0.05 if "dtype" in options else 1e-5
    assert float(found) == pytest.approx(float(expected), rel=tolerance)
    for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(exact), strict=True):
        assert np.linalg.norm(one - other) <= tolerance * 4 * max(float(np.linalg.norm(other)), 1e-2)


def test_the_head_of_the_start_is_used_and_other_architectures_are_refused(params):
    head = params["decoder_head"]
    loaded = {"encoder": params["encoder"], "token_head": head}
    assert METHOD.init(ENCODER, loaded, jax.random.key(0)).params["decoder_head"] is head
    modern = ModernBert(ModernBertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    says = r"encoder\.weights: the layers of a ModernBERT cannot decode; start from a BERT or a RoBERTa"
    with pytest.raises(ConfigError, match=says):
        METHOD.check(modern, 8)
