"""Exports with more than an encoder: convolutions, masked-language-model heads, cross-encoders; read back by torch and by us."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from jax_sentemb.data.pairs import JoinedPairs
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.files import write_json
from jax_sentemb.formats.huggingface import read_parts
from jax_sentemb.formats.model_card import Card
from jax_sentemb.formats.modules import read_convolution
from jax_sentemb.formats.run_dir import convolution_of
from jax_sentemb.formats.sentence_transformers import SentenceModel, pooling_config
from jax_sentemb.formats.weight_table import from_torch, table
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.export import export
from jax_sentemb.inference.load import load, load_cross_encoder
from jax_sentemb.inference.verify import PROBES
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.heads import init_token_head, pair_score, token_states
from jax_sentemb.models.pooling import sentence_embedding
from jax_sentemb.types import Rows
from tests.tiny_models import bert_config

LENGTH = 24
PLAIN = [sentence for sentence in PROBES if "[" not in sentence]  # torch's tokenizers make a special token of the text "[SEP]"
PAIRS = list(zip(PLAIN, reversed(PLAIN), strict=True))


@pytest.fixture(scope="module")
def made():
    """A tokenizer, an architecture, parameters of every part, normally distributed and not small."""
    tokenizer = Tokenizer.train([*PROBES, "caf\u00e9 tables and more words for the vocabulary"] * 5, 120)
    config = bert_config(
        vocab_size=tokenizer.vocab_size,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=20,
        max_position_embeddings=40,
        initializer_range=0.02,
        pad_token_id=tokenizer.pad_id,
        sep_token_id=tokenizer.sep_id,
    )
    random = np.random.default_rng(0)
    tensors = {row.torch: random.normal(0, 0.3, row.shape).astype(np.float32) for row in table(config)}
    parts = {
        "encoder": from_torch(config, tensors, "here"),
        "token_head": init_token_head(jax.random.key(0), config),
        "pooler": {"kernel": random.normal(0, 1, (16, 16)), "bias": np.zeros(16)},
        "classifier": {"kernel": random.normal(0, 3, (16, 1)), "bias": np.zeros(1)},
    }
    return tokenizer, config, jax.tree.map(lambda leaf: (leaf + random.normal(0, 0.1, leaf.shape)).astype(np.float32), parts)


def embedder(made, convolution):
    tokenizer, config, parts = made
    params = {"encoder": parts["encoder"], "cnn": convolution.init(jax.random.key(3), 16)}

    def embed(params, rows):
        return sentence_embedding(Bert(config), params, rows, "mean", convolution)

    run = Embedder(embed, tokenizer, LENGTH, batch_size=16, buckets=())
    return params, lambda sentences: run(params, sentences)


@pytest.fixture(scope="module")
def is_bert(made, tmp_path_factory):
    tokenizer, config, _ = made
    convolution = Convolution((1, 3, 5), 6)
    params, embed = embedder(made, convolution)
    folder = tmp_path_factory.mktemp("is_bert") / "export"
    export(folder, SentenceModel(config, params, tokenizer, pooling="mean", max_seq_length=LENGTH, convolution=convolution), embed)
    return folder, params, embed


def test_a_convolution_reads_back_as_it_was(is_bert):
    folder, params, embed = is_bert
    convolution, read = read_convolution(folder)
    assert convolution == Convolution((1, 3, 5), 6)
    jax.tree.map(np.testing.assert_array_equal, read, params["cnn"])
    assert read_parts(folder)[1].keys() == {"encoder", "cnn"}
    np.testing.assert_allclose(load(folder, batch_size=3)(PROBES), embed(PROBES), atol=1e-5)


def test_sentence_transformers_convolves_to_the_same_vectors_whatever_the_padding(is_bert):
    transformers = pytest.importorskip("sentence_transformers")
    folder, _, embed = is_bert
    model = transformers.SentenceTransformer(str(folder), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "WordWeights", "CNN", "Pooling"]
    for batch_size in (1, 7, len(PLAIN)):
        np.testing.assert_allclose(model.encode(PLAIN, batch_size=batch_size), embed(PLAIN), atol=1e-5)


def test_a_reference_convolution_says_that_padding_matters_and_it_does(made, tmp_path):
    tokenizer, config, _ = made
    convolution = Convolution((1, 3, 5), 6, reference=True)
    params, embed = embedder(made, convolution)
    export(
        tmp_path / "export",
        SentenceModel(config, params, tokenizer, pooling="mean", max_seq_length=LENGTH, convolution=convolution),
        embed,
    )
    assert read_convolution(tmp_path / "export")[0].reference
    assert "depends on how much its batch is padded" in (tmp_path / "export" / "README.md").read_text()
    transformers = pytest.importorskip("sentence_transformers")
    model = transformers.SentenceTransformer(str(tmp_path / "export"), device="cpu")
    alone, together = (model.encode(PLAIN, batch_size=size) for size in (1, len(PLAIN)))
    assert np.abs(alone - together).max() > 1e-3


def test_a_convolution_with_an_activation_cannot_be_exported(made, tmp_path):
    tokenizer, config, _ = made
    convolution = Convolution((1, 3), 4, relu=True)
    params, embed = embedder(made, convolution)
    with pytest.raises(ConfigError, match="has no activation"):
        export(
            tmp_path / "x",
            SentenceModel(config, params, tokenizer, pooling="mean", max_seq_length=LENGTH, convolution=convolution),
            embed,
        )
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("2_CNN/cnn_config.json", {"kernel_sizes": [1, 4, 5]}, "cannot be used"),
        ("2_CNN/cnn_config.json", {"stride_sizes": [1, 2, 1]}, "cannot be used"),
        ("2_CNN/cnn_config.json", {"out_channels": 7}, "is missing or lacks the shape"),
        ("1_WordWeights/config.json", {"unknown_word_weight": 2}, "different word weights"),
        ("1_WordWeights/wordweights_config.json", {"word_weights": {"the": 0.5}}, "different word weights"),
    ],
)
def test_a_changed_convolution_is_refused_in_one_line(is_bert, tmp_path, name, change, says):
    folder = tmp_path / "changed"
    shutil.copytree(is_bert[0], folder)
    (folder / "jax_sentemb.json").unlink()
    file = folder / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ModelFileError, match=says) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def first_last(made, tmp_path_factory):
    tokenizer, config = made[0], dataclasses.replace(made[1], num_hidden_layers=3)
    random = np.random.default_rng(1)
    tensors = {row.torch: random.normal(0, 0.3, row.shape).astype(np.float32) for row in table(config)}
    run = Embedder(lambda params, rows: sentence_embedding(Bert(config), params, rows, "first_last"), tokenizer, LENGTH, 16, ())
    folder, params = tmp_path_factory.mktemp("first_last") / "export", {"encoder": from_torch(config, tensors, "here")}
    model = SentenceModel(config, params, tokenizer, pooling="first_last", max_seq_length=LENGTH)
    export(folder, model, lambda sentences: run(params, sentences))
    return folder, run(params, PLAIN)


def test_the_mean_of_layer_1_and_the_last_is_that_of_sentence_transformers(first_last):
    folder, expected = first_last
    assert load(folder).metadata["pooling"] == "first_last"
    np.testing.assert_allclose(load(folder)(PLAIN), expected, atol=1e-5)
    transformers = pytest.importorskip("sentence_transformers")
    model = transformers.SentenceTransformer(str(folder), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "WeightedLayerPooling", "Pooling"]
    np.testing.assert_allclose(model.encode(PLAIN, batch_size=3), expected, atol=1e-5)


@pytest.mark.parametrize("change", [{"layer_start": 0}, {"num_hidden_layers": 4}, {"num_hidden_layers": "3"}, "weights", "cls"])
def test_another_mean_over_layers_is_refused_in_one_line(first_last, tmp_path, change):
    folder = tmp_path / "changed"
    shutil.copytree(first_last[0], folder)
    (folder / "jax_sentemb.json").unlink()
    if change == "weights":
        save_file({"layer_weights": np.array([1, 1, 1], np.float32)}, folder / "1_WeightedLayerPooling" / "model.safetensors")
    elif change == "cls":
        write_json(folder / "1_Pooling" / "config.json", pooling_config(16, "cls", include_prompt=True))
    else:
        file = folder / "1_WeightedLayerPooling" / "config.json"
        write_json(file, {**json.loads(file.read_text()), **change})
    with pytest.raises(ModelFileError, match="mean") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_masked_language_model_is_the_one_that_transformers_reads(made, tmp_path):
    tokenizer, config, parts = made
    params = {part: parts[part] for part in ("encoder", "token_head")}

    def embed(sentences):
        run = Embedder(lambda p, rows: sentence_embedding(Bert(config), p, rows, "mean"), tokenizer, LENGTH)
        return run(params, sentences)

    export(tmp_path / "mlm", SentenceModel(config, params, tokenizer, pooling="mean", max_seq_length=LENGTH), embed)
    jax.tree.map(np.testing.assert_array_equal, read_parts(tmp_path / "mlm")[1], jax.tree.map(np.float32, params))
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "mlm", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    tokens = np.random.default_rng(1).integers(5, config.vocab_size, (2, 9)).astype(np.int32)
    with torch.no_grad():
        theirs = model.eval()(torch.tensor(tokens).long()).logits.numpy()
    rows = Rows(tokens, np.ones_like(tokens, bool))
    states = jax.jit(lambda params: Bert(config).apply({"params": params}, rows).hidden[-1])(params["encoder"])
    head, words = params["token_head"], params["encoder"]["embeddings"]["word"]
    ours = token_states(head, states, Bert(config)) @ words.T + head["bias"]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.fixture(scope="module")
def cross_encoder(made, tmp_path_factory):
    tokenizer, config, parts = made
    params = {part: parts[part] for part in ("encoder", "pooler", "classifier")}
    run = Embedder(lambda p, rows: pair_score(Bert(config), p, rows), JoinedPairs(tokenizer), LENGTH, batch_size=16, buckets=())
    folder = tmp_path_factory.mktemp("cross") / "export"
    export(folder, SentenceModel(config, params, tokenizer, pooling="cls", max_seq_length=LENGTH), lambda pairs: run(params, pairs))
    return folder, run(params, PAIRS)


def test_a_cross_encoder_scores_the_same_in_sentence_transformers(cross_encoder):
    folder, scores = cross_encoder
    np.testing.assert_allclose(load_cross_encoder(folder, batch_size=5)(PAIRS), scores, atol=1e-5)
    assert np.ptp(scores) > 0.05
    transformers = pytest.importorskip("sentence_transformers")
    model = transformers.CrossEncoder(str(folder), device="cpu")
    np.testing.assert_allclose(model.predict(PAIRS, batch_size=7), scores[:, 0], atol=1e-5)


def test_a_cross_encoder_with_classes_has_their_names_in_its_export(made, tmp_path):
    tokenizer, config, parts = made
    random = np.random.default_rng(1)
    top = {"kernel": random.normal(0, 3, (16, 3)).astype(np.float32), "bias": random.normal(0, 1, 3).astype(np.float32)}
    params = {"encoder": parts["encoder"], "pooler": parts["pooler"], "classifier": top}
    run = Embedder(lambda p, rows: pair_score(Bert(config), p, rows), JoinedPairs(tokenizer), LENGTH, batch_size=16, buckets=())
    card = Card(training={"method.classes": ("entailment", "neutral", "contradiction")})
    folder = tmp_path / "export"
    export(
        folder,
        SentenceModel(config, params, tokenizer, pooling="cls", max_seq_length=LENGTH),
        lambda pairs: run(params, pairs),
        card=card,
    )
    stated = json.loads((folder / "config.json").read_text())
    assert stated["id2label"] == {"0": "entailment", "1": "neutral", "2": "contradiction"}
    logits = run(params, PAIRS)
    assert logits.shape == (len(PAIRS), 3)
    np.testing.assert_allclose(load_cross_encoder(folder)(PAIRS), logits, atol=1e-5)
    np.testing.assert_array_equal(read_parts(folder)[1]["classifier"]["kernel"], top["kernel"])
    transformers = pytest.importorskip("sentence_transformers")
    model = transformers.CrossEncoder(str(folder), device="cpu")
    np.testing.assert_allclose(model.predict(PAIRS, batch_size=7), logits, atol=1e-5)


def test_a_cross_encoder_has_no_embedding(cross_encoder, is_bert):
    with pytest.raises(ModelFileError, match="is a cross-encoder"):
        load(cross_encoder[0])
    with pytest.raises(ModelFileError, match="is not a cross-encoder"):
        load_cross_encoder(is_bert[0])


def test_the_facts_of_a_run_tell_its_convolution():
    assert convolution_of({}) is None
    facts = {"convolution": {"windows": [3, 5], "filters": 4, "relu": True, "reference": False}}
    assert convolution_of(facts) == Convolution((3, 5), 4, relu=True)
