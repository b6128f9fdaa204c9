"""Exports of models on word vectors: read back, in stock sentence-transformers, and in the plain PyTorch of the documentation."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from jax_sentemb import SentenceEncoder
from jax_sentemb.config import Words
from jax_sentemb.cosines import unit_length
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.evaluation.model_spec import load_eval_model
from jax_sentemb.evaluation.postprocess import remove_first_component
from jax_sentemb.files import sha256
from jax_sentemb.formats.word_model import read_files, with_words, write_word_model
from jax_sentemb.inference.build import build_embedder
from jax_sentemb.inference.load import load
from jax_sentemb.inference.verify import PROBES
from jax_sentemb.inference.views import Views
from jax_sentemb.methods.cons_sent import ConsSent
from jax_sentemb.methods.infer_sent import InferSent
from jax_sentemb.methods.language_model import LanguageModel
from jax_sentemb.methods.multi_view import MultiView
from jax_sentemb.methods.quick_thoughts import QuickThoughts
from jax_sentemb.methods.word_average import WordAverage
from jax_sentemb.models.word_vectors import WordsConfig, WordVectors
from jax_sentemb.training.encoder_source import word_table

# Words that the probes have, so that few of their tokens are unknown.
CORPUS = [
    "the quick brown fox jumps over the lazy dog while nobody looks .",
    "all caps ! = # , a b c don ' t won",
    "/ : ? 1 3 14 000",
]
MODELS = {
    "ConsSent": ConsSent(hidden=3, classifier_width=4),
    "ConsSent-MT": ConsSent(task="MT", k=3, hidden=3, classifier_width=4),
    "InferSent": InferSent(hidden=3, classifier_width=4),
    "LanguageModel": LanguageModel(hidden=5, candidates=4),
    "QuickThoughts": QuickThoughts(hidden=3),
    "WordAverage": WordAverage(),
    "MultiView": MultiView(hidden=3),
    "MultiView g": MultiView(hidden=3, ensemble="g"),
    "MultiView both": MultiView(form="both", hidden=3),
    "MultiView both h": MultiView(form="both", hidden=3, ensemble="h"),
    "MultiView generative": MultiView(form="generative", hidden=3),
    "MultiView generative g": MultiView(form="generative", hidden=3, ensemble="g"),
}
STOCK = ("ConsSent", "InferSent", "LanguageModel", "WordAverage", "MultiView g", "MultiView generative g")


def in_memory(method):
    """(facts of model.json, parameters, tokenizer) of a model."""
    tokenizer, loaded = word_table(Words(hidden_size=4), CORPUS, [], 0)
    encoder = WordsConfig(tokenizer.vocab_size, 4)
    params = jax.device_get(method.init(WordVectors(encoder), loaded, jax.random.key(0)).params)
    random = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: leaf + random.normal(0, 0.3, leaf.shape).astype(np.float32), params)
    params["frozen"]["vectors"][:2] = 0
    facts = {"method": type(method).__name__, "settings": dataclasses.asdict(method)}
    facts |= {"encoder": dataclasses.asdict(encoder), "max_seq_length": 40}
    return facts, params, tokenizer


def made(method, folder):
    """(the written directory, the model in memory as sentences -> vectors)."""
    facts, params, tokenizer = in_memory(method)
    write_word_model(folder, facts, params, tokenizer)
    embedder = build_embedder(facts, tokenizer)
    return folder, lambda sentences: embedder(params, sentences)


@pytest.mark.parametrize("name", MODELS)
def test_a_directory_gives_the_vectors_of_the_model_in_memory(name, tmp_path):
    folder, embed = made(MODELS[name], tmp_path)
    np.testing.assert_allclose(load(folder)(PROBES), embed(PROBES), atol=1e-6)
    assert (folder / "modules.json").is_file() == (name in STOCK)


@pytest.mark.parametrize("name", STOCK)
def test_stock_sentence_transformers_gives_the_same_vectors(name, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder, embed = made(MODELS[name], tmp_path)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(list(PROBES), convert_to_numpy=True)
    ours = embed(PROBES)
    words = np.isfinite(theirs).all(axis=1)  # the maximum over no word is -inf there
    assert [text for text, there in zip(PROBES, words, strict=True) if not there] in ([], ["", " ", "\u200b", "\ufffd"])
    np.testing.assert_allclose(theirs[words], ours[words], atol=1e-6)


def test_the_torch_class_of_the_documentation_gives_the_same_vectors(tmp_path):
    pytest.importorskip("torch")
    page = (Path(__file__).parents[1] / "docs/methods/word_vectors.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "class MultiView" in block)
    names = {}
    exec(compile(code, "docs/methods/word_vectors.md", "exec"), names)
    for name in ("MultiView", "MultiView generative", "MultiView both"):
        folder, embed = made(MODELS[name], tmp_path / name)
        model = names["MultiView"](folder)
        np.testing.assert_allclose([model.encode(text).numpy() for text in PROBES], embed(PROBES), atol=1e-6)


@pytest.fixture(scope="module")
def multi_view(tmp_path_factory):
    return made(MODELS["MultiView"], tmp_path_factory.mktemp("multi_view"))[0]


def test_an_encoder_of_word_vectors_is_saved_and_says_what_it_is(multi_view, tmp_path):
    encoder = SentenceEncoder(multi_view)
    again = SentenceEncoder(encoder.save(tmp_path / "saved"))
    np.testing.assert_array_equal(again.encode(CORPUS), encoder.encode(CORPUS))
    assert "MultiView on word vectors, 6 dimensions" in repr(again)
    with pytest.raises(ConfigError, match="has only sentence embeddings"):
        encoder.encode("a", output_value="token_embeddings")


def vectors(model, sentences=CORPUS):
    opened = load_eval_model(model, set)
    return opened.views.joined(opened.finish(opened.fit([])(sentences)))


def test_options_choose_views_and_poolings(multi_view):
    f, g = vectors(f"{multi_view}@f"), vectors(f"{multi_view}@g")
    np.testing.assert_allclose(vectors(str(multi_view)), (f + g) / 2, atol=1e-6)
    np.testing.assert_allclose(vectors(f"{multi_view}@concatenation"), np.concatenate([f, g], axis=1), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(f, axis=1), 1, atol=1e-6)
    assert vectors(f"{multi_view}@max+mean+min+last+concatenation").shape == (3, (4 + 3) * 6)
    largest, smallest = (vectors(f"{multi_view}@{pooling}+f") for pooling in ("max", "min"))
    assert (largest * np.linalg.norm(f) >= smallest * np.linalg.norm(f) - 1e-6).all()


def test_a_model_of_both_objectives_has_three_views(tmp_path):
    folder = made(MODELS["MultiView both"], tmp_path)[0]
    f, g, h = (vectors(f"{folder}@{view}") for view in "fgh")
    assert np.abs(g - h).max() > 0.1
    np.testing.assert_allclose(vectors(str(folder)), (f + g + h) / 3, atol=1e-6)
    np.testing.assert_allclose(vectors(f"{folder}@concatenation"), np.concatenate([f, g, h], axis=1), atol=1e-6)
    assert vectors(f"{folder}@max+mean+min+last+concatenation").shape == (3, (4 + 3 + 3) * 6)


def test_the_first_component_of_each_view_is_removed_before_they_are_joined(multi_view):
    raw = load_eval_model(f"{multi_view}@average", set).fit([])(CORPUS)
    parts = [remove_first_component(part) for part in np.split(raw, 2, axis=1)]
    expected = sum(part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts) / 2
    np.testing.assert_allclose(vectors(f"{multi_view}@remove-first"), expected, atol=1e-5)


def test_a_set_of_views_is_changed_view_by_view():
    given = np.random.default_rng(0).normal(size=(5, 7))
    views = Views((3, 4), average=False)
    np.testing.assert_allclose(views.each(lambda part: part - part.mean(), given)[:, :3], given[:, :3] - given[:, :3].mean())
    np.testing.assert_allclose(views.joined(given)[:, 3:], unit_length(given[:, 3:]))
    np.testing.assert_array_equal(Views().joined(given), given)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("h", "is not average, concatenation or f or g"),
        ("q", "option 'q' is unknown"),
        ("last", "no last state"),
        ("last+mean", "choose concatenation"),
        ("f+g", "f and g exclude each other"),
        ("f2", "is not average, concatenation or f or g"),
        ("sif", "option of word-vector files"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(multi_view, option, says):
    with pytest.raises(ConfigError, match=says) as caught:
        load_eval_model(f"{multi_view}@{option}", set)
    assert "\n" not in str(caught.value)


def test_other_models_have_one_readout(tmp_path):
    folder, _ = made(MODELS["ConsSent"], tmp_path / "lstm")
    with pytest.raises(ConfigError, match="has one embedding"):
        load_eval_model(f"{folder}@mean", set)
    alone, _ = made(MODELS["MultiView g"], tmp_path / "g")
    with pytest.raises(ConfigError, match="f: the model has no such view; leave it out"):
        load_eval_model(f"{alone}@f", set)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"settings": {"hidden": 3, "views": "gg"}}, "lacks the tensor 'g2"),
        ({"encoder": {"vocab_size": 7, "hidden_size": 4}}, "has shape"),
        ({"max_seq_length": "x"}, "not a number of words"),
    ],
)
def test_a_directory_that_contradicts_itself_is_refused(multi_view, tmp_path, change, says):
    shutil.copytree(multi_view, tmp_path / "changed")
    file = tmp_path / "changed" / "model.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ModelFileError, match=says) as caught:
        load(tmp_path / "changed")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["config_sentence_transformers.json", "modules.json"])
def test_a_link_to_nothing_is_not_read_as_a_missing_file(multi_view, tmp_path, name):
    shutil.copytree(multi_view, tmp_path / "changed")
    (tmp_path / "changed" / name).unlink(missing_ok=True)
    (tmp_path / "changed" / name).symlink_to("../blobs/of-an-unfinished-download")
    with pytest.raises(ModelFileError, match=f"{name} is a link to a missing file"):
        load(tmp_path / "changed")


def test_words_that_a_model_lacks_come_from_its_vectors(multi_view, tmp_path):
    facts, params, tokenizer = read_files(multi_view)
    vectors = params["frozen"]["vectors"]
    new = np.arange(4) / 4
    lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in zip(tokenizer.words[2:], vectors[2:].tolist(), strict=True)]
    file = tmp_path / "vectors.txt"
    file.write_text("\n".join([*lines, f"zebra {' '.join(map(str, new))}", "unused 1 2 3 4"]) + "\n")
    facts["vectors"] = {"name": "vectors.txt", "sha256": sha256(file)}
    multi_view = shutil.copytree(multi_view, tmp_path / "model")
    (multi_view / "model.json").write_text(json.dumps(facts))
    without, given = (load_eval_model(str(multi_view), {"Zebra", "fox", "emu"}.copy, vectors_of=path) for path in (None, file))
    sentences = ["fox", "zebra", "emu"]
    before, after = (opened.views.joined(opened.fit([])(sentences)) for opened in (without, given))
    np.testing.assert_allclose(after[[0, 2]], before[[0, 2]], atol=1e-6)  # emu is in neither
    assert np.abs(after[1] - before[1]).max() > 0.01
    changed, longer, words = with_words(facts, params, tokenizer, file, ["zebra emu"])
    assert words.words == [*tokenizer.words, "zebra"]
    np.testing.assert_allclose(longer["frozen"]["vectors"][-1], new)
    assert changed["encoder"]["vocab_size"] == len(vectors) + 1
    moved = params["frozen"] | {"vectors": vectors + 0.5}
    with pytest.raises(ConfigError, match="words cannot be added to trained word vectors; leave --vectors out"):
        with_words(facts, {"encoder": moved}, tokenizer, file, ["zebra"])
    file.write_text(file.read_text().replace("unused 1 2 3 4", "unused 1 2 3 5"))  # of a word that the model does not have
    with pytest.raises(ConfigError, match=r"SHA-256 \w{12}\): this model was trained with 'vectors.txt'") as caught:
        load_eval_model(str(multi_view), set, vectors_of=file)
    assert "\n" not in str(caught.value)
    (multi_view / "model.json").write_text(json.dumps({**facts, "vectors": None}))
    with pytest.raises(ConfigError, match="trained without a file of word vectors; leave --vectors out"):
        load_eval_model(str(multi_view), set, vectors_of=file)
