"""Settings of an encoder that a user changes: they are used, and survive save, copy and pickle."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_models import tiny_model

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.evaluation.model_spec import load_encoder, parse_spec
from jax_sentemb.formats.encode_settings import EncodeSettings, read_encode_settings
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.formats.static_embedding import StaticTable, write_static
from jax_sentemb.formats.word_model import write_word_model
from jax_sentemb.inference.encoder import SentenceEncoder
from jax_sentemb.models.word_vectors import FROZEN

SENTENCES = ["a man plays the guitar", "two dogs run over the grass", "q a man"] * 3
CHANGES = {
    "prompts": {"query": "the dogs ", "other": "over "},
    "default_prompt": "a man ",
    "similarity_fn_name": "euclidean",
    "truncate_dim": 3,
    "max_seq_length": 5,
}


def word_model(folder):
    from jax_sentemb.data.word_tokenizer import WordTokenizer

    tokenizer = WordTokenizer.of(sorted({word for text in SENTENCES for word in text.split()}), lowercase=True)
    vectors = np.random.default_rng(0).normal(size=(tokenizer.vocab_size, 4)).astype(np.float32)
    folder.mkdir()
    encoder = {"model_type": "words", "vocab_size": tokenizer.vocab_size, "hidden_size": 4}
    facts = {"method": "WordAverage", "settings": {}, "encoder": encoder, "max_seq_length": 9}
    write_word_model(folder, facts, {FROZEN: {"vectors": vectors}}, tokenizer)


def static_table(folder):
    tokenizer = Tokenizer.train(SENTENCES, 80)
    vectors = np.random.default_rng(0).normal(size=(tokenizer.vocab_size, 4)).astype(np.float32)
    write_static(folder, StaticTable(vectors, tokenizer, normalize=False))


@pytest.fixture(scope="module", params=["bert", "words", "static"])
def directory(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "model"
    if request.param == "bert":
        write_export(folder, tiny_model(SENTENCES, 80))
    else:
        {"words": word_model, "static": static_table}[request.param](folder)
    return folder


def changed(encoder):
    for name, value in CHANGES.items():
        setattr(encoder, name, copy.copy(value))
    return encoder


def again_from_disk(encoder, folder):
    return SentenceEncoder(encoder.save(folder / "saved"))


def test_every_public_setting_is_listed(directory):
    encoder = SentenceEncoder(directory)
    attributes = {name for name in vars(encoder) if not name.startswith("_")}
    members = {name: getattr(SentenceEncoder, name) for name in dir(SentenceEncoder)}
    properties = {name for name, member in members.items() if isinstance(member, property) and member.fset is not None}
    properties.remove("default_prompt_name")  # which changes default_prompt
    assert attributes | properties == set(SentenceEncoder.SETTINGS) == set(CHANGES)


@pytest.mark.parametrize(
    "way",
    [lambda encoder, _: copy.deepcopy(encoder), lambda encoder, _: pickle.loads(pickle.dumps(encoder)), again_from_disk],
    ids=["deepcopy", "pickle", "save"],
)
def test_every_setting_survives(directory, tmp_path, way):
    encoder = changed(SentenceEncoder(directory))
    other = way(encoder, tmp_path)
    assert {name: getattr(other, name) for name in SentenceEncoder.SETTINGS if name != "prompts"} == {
        name: value for name, value in CHANGES.items() if name != "prompts"
    }
    assert CHANGES["prompts"].items() <= other.prompts.items()
    vectors = other.encode(SENTENCES)
    assert vectors.shape[1] == other.get_sentence_embedding_dimension() == 3
    np.testing.assert_allclose(vectors, encoder.encode(SENTENCES), atol=1e-6)
    np.testing.assert_allclose(other.encode_query(SENTENCES), encoder.encode_query(SENTENCES), atol=1e-6)
    assert not np.allclose(vectors, SentenceEncoder(directory).encode(SENTENCES)[:, :3], atol=1e-3)


def test_an_encoder_whose_file_states_more_dimensions_than_it_has_can_be_copied(directory, tmp_path):
    folder = Path(shutil.copytree(directory, tmp_path / "wide"))
    file = folder / "config_sentence_transformers.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "truncate_dim": 1000}))
    encoder = SentenceEncoder(folder)
    np.testing.assert_array_equal(copy.deepcopy(encoder).encode("a"), encoder.encode("a"))
    np.testing.assert_array_equal(load_encoder(parse_spec(str(folder))).encode("a"), encoder.encode("a"))


def test_a_copy_of_a_replaced_model_is_refused(directory, tmp_path):
    folder = Path(shutil.copytree(directory, tmp_path / "model"))
    encoder = SentenceEncoder(folder)
    stored = pickle.dumps(encoder)
    for file in folder.rglob("*.safetensors"):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    for copied in (lambda: copy.deepcopy(encoder), lambda: pickle.loads(stored)):
        with pytest.raises(ConfigError, match="the model was replaced after the encoder was loaded"):
            copied()


def test_a_copy_does_not_share_its_prompts(directory):
    encoder = SentenceEncoder(directory)
    other = copy.deepcopy(encoder)
    other.prompts["new"] = "x"
    assert "new" not in encoder.prompts


@pytest.mark.parametrize("prompts", [{5: "a"}, {None: "a"}, {"a": 5}])
def test_names_and_texts_of_prompts_must_be_text(directory, tmp_path, prompts):
    encoder = SentenceEncoder(directory)
    with pytest.raises(ConfigError, match=r"must be a str"):
        encoder.prompts = prompts
    assert encoder.prompts == {}
    encoder.prompts.update(prompts)
    with pytest.raises(ConfigError, match=r"^(a name of prompts|prompts\['a'\])=.*: must be a str"):
        encoder.save(tmp_path / "saved")
    assert not list(tmp_path.glob("saved"))


def test_two_encoders_of_one_loaded_model_do_not_share_their_length(directory):
    from jax_sentemb.inference.load import load

    model = load(directory)
    first, second = SentenceEncoder(model), SentenceEncoder(model)
    first.max_seq_length = 5
    assert second.max_seq_length != 5


@pytest.mark.parametrize("kind", ["bert", "static"])
def test_sentence_transformers_uses_the_same_settings(kind, tmp_path):
    transformers = pytest.importorskip("sentence_transformers")
    write_export(tmp_path / "model", tiny_model(SENTENCES, 80)) if kind == "bert" else static_table(tmp_path / "model")
    encoder = changed(SentenceEncoder(tmp_path / "model"))
    theirs = transformers.SentenceTransformer(str(encoder.save(tmp_path / "saved")), device="cpu")
    expected = theirs.encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_query(SENTENCES), theirs.encode_query(SENTENCES), atol=1e-5)
    for name in ("cosine", "dot", "euclidean", "manhattan"):
        encoder.similarity_fn_name = theirs.similarity_fn_name = name
        np.testing.assert_allclose(encoder.similarity(expected, expected), theirs.similarity(expected, expected), atol=1e-5)
        pairs = expected, expected[::-1].copy()
        np.testing.assert_allclose(encoder.similarity_pairwise(*pairs), theirs.similarity_pairwise(*pairs), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"), [("similarity_fn_name", "cos"), ("truncate_dim", 0), ("truncate_dim", 10**4), ("truncate_dim", 2.5)]
)
def test_a_setting_that_cannot_be_used_is_refused_where_it_is_set(directory, name, value):
    with pytest.raises(ConfigError, match=name):
        setattr(SentenceEncoder(directory), name, value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"similarity_fn_name": "maxsim"}, "similarity_fn_name='maxsim'"),
        ({"truncate_dim": "8"}, "truncate_dim='8'"),
        ({"prompts": {"query": "q "}, "default_prompt_name": "query"}, "include_prompt=false"),
    ],
)
def test_settings_in_a_file_that_cannot_be_used_are_refused(tmp_path, content, problem):
    write_export(tmp_path / "model", tiny_model(SENTENCES, 80))
    (tmp_path / "model" / "config_sentence_transformers.json").write_text(json.dumps(content))
    pooling = tmp_path / "model" / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({**json.loads(pooling.read_text()), "include_prompt": False}))
    with pytest.raises(ModelFileError, match=problem):
        read_encode_settings(tmp_path / "model")


def test_saved_copies_pool_prompts_as_the_model_does(tmp_path):
    write_export(tmp_path / "model", tiny_model(SENTENCES, 80))
    pooling = tmp_path / "model" / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({**json.loads(pooling.read_text()), "include_prompt": False}))
    saved = SentenceEncoder(SentenceEncoder(tmp_path / "model").save(tmp_path / "saved"))
    with pytest.raises(ConfigError, match="pooling excludes the tokens of a prompt"):
        saved.encode(SENTENCES, prompt="the dogs ")


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("a ", ({"x": "a ", "y": "b "}, "x")),
        ("b ", ({"x": "a ", "y": "b "}, "y")),
        ("", ({"x": "a ", "y": "b "}, None)),
        ("c ", ({"x": "a ", "y": "b ", "default": "c "}, "default")),
    ],
)
def test_a_changed_default_prompt_gets_a_name(default, expected):
    settings = EncodeSettings({}, "x").with_prompts({"x": "a ", "y": "b "}, default)
    assert (settings.prompts, settings.default_prompt_name) == expected


def test_transformers_cuts_text_at_the_length_of_an_export(tmp_path):
    transformers = pytest.importorskip("transformers")
    write_export(tmp_path / "model", tiny_model(SENTENCES, 80))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.model_max_length == 40
    assert len(tokenizer("a man " * 100, truncation=True)["input_ids"]) == 40


def test_the_default_prompt_is_chosen_by_its_name(directory):
    encoder = SentenceEncoder(directory)
    assert encoder.default_prompt_name is None
    encoder.prompts = {"query": "the dogs ", "other": "over "}
    encoder.default_prompt_name = "other"
    assert (encoder.default_prompt, encoder.default_prompt_name) == ("over ", "other")
    np.testing.assert_array_equal(encoder.encode(SENTENCES), encoder.encode(SENTENCES, prompt="over "))
    with pytest.raises(ConfigError, match="default_prompt_name='none' is unknown; the model has query, other"):
        encoder.default_prompt_name = "none"
    encoder.default_prompt_name = None
    assert encoder.default_prompt == ""
