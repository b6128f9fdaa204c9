"""Exports, word models and static tables know what they were made from; those of another format or with other files are refused."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from test_word_model import MODELS, in_memory
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder
from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.errors import ModelFileError
from jax_sentemb.evaluation.widths import trained_widths
from jax_sentemb.formats.model_card import Card
from jax_sentemb.formats.run_dir import find_export
from jax_sentemb.inference.build import build_embedder
from jax_sentemb.inference.export import _recorded_facts, export, export_word_model
from jax_sentemb.inference.load import load
from jax_sentemb.provenance import EXPORT, KEY, RUN, Source, mark

TEXT = ["a man plays the guitar", "two women dance on the grass", "a small dog runs and a tall man eats", "the dog eats"]
SCORES = {
    "STS12": {"n": 9, "spearman": {"all": 50.0, "mean": 50.0, "wmean": 50.0}, "pearson": {"all": 1.0, "mean": 1.0, "wmean": 1.0}}
}


def run(*arguments):
    return program(main, ["jax-sentemb", *map(str, arguments)])


def manifest_of(folder):
    return json.loads((folder / "jax_sentemb.json").read_text())


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "a.txt"
    file.write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder, model = tmp_path_factory.mktemp("encoder") / "model", tiny_model(TEXT, 60)
    facts = {"encoder": vars(model.config), "pooling": "mean", "max_seq_length": 40}
    embedder = build_embedder(facts, model.tokenizer)
    card = Card("model", "SimCSE", training={"matryoshka": [8], "steps": 3}, scores=SCORES)
    export(folder, model, lambda texts: embedder(model.params, texts), card)
    return folder


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words") / "model"
    facts, params, tokenizer = in_memory(MODELS["MultiView"])
    facts |= {"name": "words", "training": {}, KEY: mark(RUN, {"run": Source("words", "a" * 64)})}
    embedder = build_embedder(facts, tokenizer)
    export_word_model(folder, facts, params, tokenizer, lambda texts: embedder(params, texts), 3)
    return folder


@pytest.fixture(scope="module")
def static(tmp_path_factory, encoder, text):
    folder = tmp_path_factory.mktemp("static") / "model"
    assert run("distill", "--model", encoder, "--corpus", text, "--width", 2, "--output", folder) == 0
    return folder


@pytest.fixture(scope="module")
def whitened(tmp_path_factory, encoder, text):
    folder = tmp_path_factory.mktemp("whitened") / "model"
    assert run("postprocess", "--model", encoder, "--corpus", text, "--remove", 1, "--output", folder) == 0
    return folder


@pytest.fixture(params=["encoder", "words", "static", "whitened"])
def exported(request, tmp_path):
    return Path(shutil.copytree(request.getfixturevalue(request.param), tmp_path / "model"))


def refused(folder, problem):
    with pytest.raises(ModelFileError, match=problem) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {KEY: {"file": "export", "format": 2, "sources": {}}},
            "has format 2, this version reads format 1; export the model again",
        ),
        ({KEY: {"file": "run", "format": 1, "sources": {}}}, "is a file of type 'run', not 'export'"),
        ({KEY: None}, "does not record its sources"),
        ({"sha256": None}, "does not list the SHA-256 of the files"),
    ],
)
def test_an_export_of_another_format_is_refused(exported, change, problem, text):
    (exported / "jax_sentemb.json").write_text(json.dumps({**manifest_of(exported), **change}))
    refused(exported, problem)
    assert run("encode", "--model", exported, "--input", text, "--output", exported.parent / "v.npy") == 4


def test_no_run_starts_from_an_export_of_another_format(encoder, tmp_path, capsys):
    folder = shutil.copytree(encoder, tmp_path / "model")
    content = manifest_of(folder)
    content[KEY]["format"] += 1
    (folder / "jax_sentemb.json").write_text(json.dumps(content))
    assert run("train", "--config=simcse:tiny", f"--config.encoder.weights={folder}", f"--workdir={tmp_path}/run") == 4
    assert "model/jax_sentemb.json has format 2" in capsys.readouterr().err


def test_an_export_whose_weights_were_replaced_is_refused(exported):
    file = exported / "model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(file).items()}, file)
    refused(exported, "model.safetensors has changed since the export.*delete jax_sentemb.json if you changed the model")


def test_a_model_on_word_vectors_of_another_format_is_refused(words, tmp_path):
    folder = shutil.copytree(words, tmp_path / "model")
    (folder / "jax_sentemb.json").unlink()
    content = json.loads((folder / "model.json").read_text())
    content[KEY]["format"] = 2
    (folder / "model.json").write_text(json.dumps(content))
    refused(folder, "has format 2, this version reads format 1")
    del content[KEY]
    (folder / "model.json").write_text(json.dumps(content))
    refused(folder, "does not record its sources")


def test_a_file_that_was_added_is_named(encoder, tmp_path, caplog):
    folder = shutil.copytree(encoder, tmp_path / "model")
    load(folder)
    assert caplog.text == ""
    (folder / "LICENSE").write_text("MIT")
    (folder / "added_tokens.json").write_text("{}")
    load(folder)
    assert "added_tokens.json is not listed in jax_sentemb.json: it was added after the export" in caplog.text
    assert "LICENSE" not in caplog.text
    (folder / "\x1b[31mred\x9b2J.json").write_text("{}")
    load(folder)
    assert "red.json is not listed" in caplog.text
    assert not {"\x1b", "\x9b"} & set(caplog.text)


def test_manifests_name_the_sources(encoder, words, static, whitened, text):
    fingerprint, name = load(encoder).fingerprint(), encoder.parent.name  # "model" is no name
    assert manifest_of(encoder)[KEY] == mark(EXPORT, {"model": Source("model", fingerprint)})
    assert manifest_of(words)[KEY] == mark(EXPORT, {"run": Source("words", "a" * 64), "step": 3})
    of_table = manifest_of(static)[KEY]["sources"]
    assert (of_table["teacher"], of_table["width"], of_table["sif"]) == ({"name": name, "sha256": fingerprint}, 2, 1e-3)
    of_map = manifest_of(whitened)[KEY]["sources"]
    assert (of_map["source"], of_map["remove"]) == ({"name": name, "sha256": fingerprint}, 1)
    assert of_map["corpus"]["sha256"] == of_table["corpus"]["sha256"]
    assert of_map["corpus"]["name"] == "a.txt"
    assert of_map["model"]["sha256"] == load(whitened).fingerprint() != fingerprint


def test_scores_are_those_of_the_same_model_with_the_same_settings(encoder, whitened, tmp_path):
    same = SentenceEncoder(encoder)
    assert manifest_of(same.save(tmp_path / "same"))["scores"] == SCORES
    same.max_seq_length = 7
    assert manifest_of(same.save(tmp_path / "shorter"))["scores"] == {}
    same = SentenceEncoder(encoder)
    same.default_prompt = "a "
    assert manifest_of(same.save(tmp_path / "prompted"))["scores"] == {}
    assert manifest_of(whitened)["scores"] == {}
    assert manifest_of(whitened)["method"] == "SimCSE"
    assert "50.00" not in (whitened / "README.md").read_text()
    assert [trained_widths(folder) for folder in (encoder, whitened)] == [(8,), ()]
    assert manifest_of(whitened)["training"] == {"steps": 3}


def test_a_model_does_not_take_the_facts_of_another_that_has_replaced_it(encoder, tmp_path):
    folder = Path(shutil.copytree(encoder, tmp_path / "model"))
    loaded, other = SentenceEncoder(folder), tiny_model(TEXT, 61)
    shutil.rmtree(folder)
    embedder = build_embedder({"encoder": vars(other.config), "pooling": "mean", "max_seq_length": 40}, other.tokenizer)
    export(folder, other, lambda texts: embedder(other.params, texts), Card("model", "CT", scores=SCORES))
    content = manifest_of(loaded.save(tmp_path / "saved"))
    assert (content["scores"], content["method"]) == ({}, None)


@pytest.mark.parametrize("digest", ["a" * 64, "b" * 64])
def test_a_run_does_not_take_the_facts_of_another_in_its_directory(encoder, tmp_path, monkeypatch, digest):
    of_run = {"training": {}, "scores": SCORES, "scores_of_step": 3, "max_seq_length": 40}
    of_run[KEY] = mark(RUN, {"run": Source("run", "a" * 64)})
    monkeypatch.setattr("jax_sentemb.inference.export.read_metadata", lambda root: of_run)
    (tmp_path / "model.json").touch()
    loaded = load(encoder)
    loaded = loaded._replace(metadata={**loaded.metadata, "run": digest, "step": 3})
    facts = _recorded_facts(tmp_path, loaded, 40, False)
    assert facts.get("scores") == (SCORES if digest == "a" * 64 else None)


def test_an_export_of_an_earlier_run_in_the_directory_is_not_that_of_the_run(tmp_path, encoder):
    shutil.copytree(encoder, tmp_path / "export")
    (tmp_path / "model.json").write_text(json.dumps({KEY: mark(RUN, {"run": Source("run", "a" * 64)})}))
    assert find_export(tmp_path) is None
    content = manifest_of(encoder)
    for digest, expected in (("b" * 64, None), ("a" * 64, tmp_path / "export")):
        content[KEY]["sources"]["run"] = {"name": "other name", "sha256": digest}
        (tmp_path / "export" / "jax_sentemb.json").write_text(json.dumps(content))
        assert find_export(tmp_path) == expected
    shutil.rmtree(tmp_path / "export")
    assert find_export(tmp_path) is None
