"""Vectors and indexes belong to what computes them: a run and its export are the same model, another setting is not."""

import json
import shutil
from pathlib import Path

import pytest
from test_word_model import MODELS, in_memory, made
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder
from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.formats.encode_settings import EncodeSettings
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference.load import load, model_fingerprint

ROOT = Path(__file__).parents[1]
LINES = ["a man plays the guitar", "two women dance on the grass", "a small dog runs and a tall man eats", "the dog eats"]
SETTINGS = EncodeSettings({"plain": "a ", "other": "the dog "}, "plain")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with the files of a model, not an export: its side files may be edited. And a corpus with its vectors and index."""
    pytest.importorskip("faiss")
    folder = tmp_path_factory.mktemp("derived")
    (folder / "model").mkdir()
    write_export(folder / "model", tiny_model(LINES, 60, settings=SETTINGS))
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert run("encode", "--model", folder / "model", "--input", folder / "a.txt", "--output", folder / "vectors") == 0
    assert search(folder, "a.txt", "--index", folder / "idx") == 0
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def run(*arguments):
    return program(main, ["jax-sentemb", *map(str, arguments)])


def search(folder, corpus, *more, model="model"):
    return run("search", "--model", folder / model, "--corpus", folder / corpus, "--query", "a man", "--top-k", 1, *more)


def change(folder, file, **values):
    path = folder / "model" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


OF_PROMPTS, OF_POOLING = "config_sentence_transformers.json", "1_Pooling/config.json"
NO_MEAN = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
CHANGES = {  # a change of the model -> what the refusal of its index and of its vectors names; None: queries follow the vectors
    "default prompt": ((OF_PROMPTS, {"default_prompt_name": "other"}), "with prompt='a '", "prompt='a '"),
    "no default prompt": ((OF_PROMPTS, {"default_prompt_name": None}), "with prompt='a '", "prompt='a '"),
    "document prompt": ((OF_PROMPTS, {"prompts": {"plain": "a ", "passage": "dog "}}), "not with prompt='dog '", "prompt='a '"),
    "width": ((OF_PROMPTS, {"truncate_dim": 8}), "not with truncate_dim=8", "not with truncate_dim=8"),
    "length": (("sentence_bert_config.json", {"max_seq_length": 5}), "max_seq_length=40, not with max_seq_length=5", None),
    "pooling": ((OF_POOLING, NO_MEAN), "from model", "from model"),
    "attention": (("config.json", {"layer_norm_eps": 1e-3}), "from model copy (SHA-256", "from model copy (SHA-256"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_an_index_and_vectors_of_a_model_with_another_setting_are_refused(name, folder, capsys):
    (file, values), of_index, of_vectors = CHANGES[name]
    change(folder, file, **values)
    assert search(folder, "a.txt", "--index", folder / "idx") == 3
    assert of_index in capsys.readouterr().err
    for command in (("mine",), ("search", "--query", "a man")):
        code = run(*command, "--model", folder / "model", "--corpus", folder / "vectors")
        error = capsys.readouterr().err
        assert code == (3 if of_vectors else 0)
        assert of_vectors is None or of_vectors in error


@pytest.mark.parametrize("option", [("--precision", "int8"), ("--normalize",), ("--truncate-dim", 4), ("--dtype", "bfloat16")])
def test_an_index_of_vectors_that_were_encoded_in_another_way_is_refused(option, folder, capsys):
    encoded = ("--model", folder / "model", "--input", folder / "a.txt", "--output", folder / "other")
    assert run("encode", *encoded, *option) == 0
    assert search(folder, "other", "--index", folder / "idx") == 3
    assert option[0].removeprefix("--").replace("-", "_") in capsys.readouterr().err


def test_a_stale_index_is_refused_before_the_corpus_is_encoded(folder, monkeypatch, capsys):
    (folder / "a.txt").write_text("a man\n", encoding="utf-8")

    def encode(*arguments, **options):
        raise AssertionError("encoded")

    monkeypatch.setattr(SentenceEncoder, "encode", encode)
    assert search(folder, "a.txt", "--index", folder / "idx") == 3
    assert "idx was made from corpus a.txt" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["simcse.py:tiny", "is_bert.py:tiny"])
def test_a_run_its_export_and_a_copy_of_it_are_one_model(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    assert run("train", f"--config={ROOT}/configs/{recipe}", "--config.train.max_steps=1", f"--workdir={folder}") == 0
    SentenceEncoder(folder).save(tmp_path / "copy")
    assert len({load(name).fingerprint() for name in (folder, folder / "export", tmp_path / "copy")}) == 1
    assert load(f"{folder}@cls").fingerprint() != load(f"{folder}@mean").fingerprint()
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert run("encode", "--model", folder, "--input", tmp_path / "a.txt", "--output", tmp_path / "vectors") == 0
    assert search(tmp_path, "vectors", model="run/export") == 0
    assert search(tmp_path, "vectors", model="run") == 0


@pytest.mark.parametrize("name", MODELS)
def test_a_run_on_word_vectors_and_its_export_are_one_model(name, tmp_path):
    facts, params, tokenizer = in_memory(MODELS[name])
    fingerprint = model_fingerprint({"step": 7, "kind": "work directory", **facts}, params, tokenizer)
    folder, _ = made(MODELS[name], tmp_path)
    assert load(folder).fingerprint() == fingerprint
    changed = {**params, "frozen": {**params["frozen"], "vectors": params["frozen"]["vectors"] + 1}}
    assert model_fingerprint(facts, changed, tokenizer) != fingerprint
