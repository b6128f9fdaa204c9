"""Whole runs that need more than a corpus: the score of a task at the end, a run before a run, labelled pairs."""

import dataclasses
import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from jax_sentemb.cli.export import main as convert
from jax_sentemb.config import Config, Data, Evaluation, Train, check, sized, unused_notes
from jax_sentemb.errors import ConfigError, DataError, keyword, spelled
from jax_sentemb.formats.huggingface import read_parts
from jax_sentemb.formats.run_dir import read_checkpoint
from jax_sentemb.inference.load import load
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.methods.masked_lm import MaskedLM
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.recipes import read_config
from jax_sentemb.settings import assign
from jax_sentemb.training.run import results_text, run
from jax_sentemb.training.run_metadata import description


def tiny(**changes):
    config = sized(Config(method=ISBERT(Convolution((1, 3), 8))), "tiny")
    config.train, config.encoder.num_hidden_layers = Train(max_steps=2, save_steps=0), 1
    return dataclasses.replace(config, **changes)


@pytest.fixture(scope="module")
def senteval(tmp_path_factory):
    root = tmp_path_factory.mktemp("senteval")
    (root / "downstream" / "CR").mkdir(parents=True)
    random = np.random.default_rng(0)
    for name, words in (("pos", ["good", "nice", "fine", "great"]), ("neg", ["bad", "poor", "weak", "awful"])):
        lines = (" ".join([*random.choice(words, 3), *random.choice(list("abcdefgh"), 4)]) for _ in range(60))
        (root / "downstream" / "CR" / f"custrev.{name}").write_text("\n".join(lines) + "\n")
    return str(root)


def test_the_task_whose_text_was_trained_on_is_scored_at_the_end(senteval, tmp_path, capsys):
    evaluation = Evaluation(data=senteval, tasks="corpus", classifier="logreg", eval_steps=0, diagnostic_sentences=20)
    config = tiny(data=Data(files="senteval:CR", vocab_size=200, max_seq_length=12, batch_size=8), eval=evaluation)
    assert run(config, tmp_path) == 0
    result = json.loads((tmp_path / "scores.json").read_text())["transfer"]["CR"]
    assert result["protocol"] == "logreg"
    assert result["headline"] == {"CR": result["scores"]["accuracy"]}
    assert result["scores"]["accuracy"] > 70  # the words of the two classes differ
    assert "CR" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tasks", "error", "says"),
    [("MR", DataError, "is missing"), ("QQ", ConfigError, "unknown"), ("corpus", ConfigError, r"eval\.tasks=corpus")],
)
def test_a_task_that_cannot_be_scored_is_said_before_training(senteval, tmp_path, tasks, error, says):
    with pytest.raises(error, match=says):
        run(tiny(eval=Evaluation(data=senteval, tasks=tasks)), tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_run_goes_on_from_the_one_before_it(tmp_path):
    config = read_config(f"{Path(__file__).parents[1] / 'configs' / 'is_bert_ssl_ft.py'}:tiny")
    config.pretrain.train.max_steps, config.train.max_steps, config.train.seed = 2, 0, 5
    assert run(config, tmp_path) == 0
    assert json.loads((tmp_path / "pretrain" / "config.json").read_text())["train.seed"] == 5
    sentences = ["a man plays a guitar", "the report says nothing"]
    first, second = (load(tmp_path / part)(sentences) for part in ("pretrain/export", "export"))
    np.testing.assert_allclose(first, second, atol=1e-6)  # 0 steps on top: encoder and convolution are those of the first run


def test_a_cross_encoder_goes_on_from_the_one_that_learned_classes_before_it(tmp_path):
    config = read_config(f"{Path(__file__).parents[1] / 'configs' / 'cross_encoder_nli_stsb.py'}:tiny")
    config.pretrain.train.max_steps, config.train.max_steps = 2, 0
    assert run(config, tmp_path) == 0
    first, second = read_checkpoint(tmp_path / "pretrain", "best")[0], read_parts(tmp_path / "export")[1]
    np.testing.assert_array_equal(first["pooler"]["kernel"], second["pooler"]["kernel"])
    assert (first["classifier"]["kernel"].shape[1], second["classifier"]["kernel"].shape[1]) == (3, 1)
    events = [json.loads(line) for line in (tmp_path / "pretrain" / "metrics.jsonl").read_text().splitlines()]
    assert any("train/accuracy" in event for event in events)
    assert json.loads((tmp_path / "pretrain" / "scores.json").read_text())["scores"]["grammar-dev"]["n"] == 60


def test_sizes_of_a_new_encoder_count_for_the_first_of_two_runs(tmp_path, capsys):
    config = read_config(f"{Path(__file__).parents[1] / 'configs' / 'is_bert_ssl_ft.py'}:tiny")
    config.pretrain.train.max_steps = config.train.max_steps = 0
    assert run(config, tmp_path) == 0
    assert "is not used" not in capsys.readouterr().out
    for folder, size in (("pretrain", 32), (".", 256)):
        assert json.loads((tmp_path / folder / "config.json").read_text())["encoder.hidden_size"] == size


@pytest.mark.parametrize(
    ("name", "value"), [("train.seed", 7), ("encoder.weights", "bert"), ("encoder.dropout", 0.5), ("eval.data", "senteval")]
)
def test_what_both_runs_share_cannot_be_set_for_the_first_alone(name, value):
    config = read_config(f"{Path(__file__).parents[1] / 'configs' / 'is_bert_ssl_ft.py'}:tiny")
    assign(config, f"pretrain.{name}", value)
    with pytest.raises(ConfigError, match=rf"^pretrain\.{name}={value}: both runs have one value; set {name}={value}$"):
        check(config)


def test_the_run_before_needs_its_own_text_and_the_message_names_its_setting():
    config = read_config(str(Path(__file__).parents[1] / "configs" / "cross_encoder_nli_stsb.py"))
    with pytest.raises(ConfigError, match=r"^pretrain\.data\.files is empty: .*, pretrain\.data\.files=corpus\.txt"):
        check(config)


def test_an_embedding_that_cannot_be_exported_leaves_a_usable_work_directory(tmp_path, capsys):
    config = tiny(method=ISBERT(Convolution((1, 3), 8, relu=True), normalization="sentences"))
    assert run(config, tmp_path) == 0
    assert "not exported: convolution.relu=True" in capsys.readouterr().out
    assert not (tmp_path / "export").exists()
    with pytest.raises(ConfigError, match="has no activation"):
        convert(["convert", "--workdir", str(tmp_path)])


def test_the_last_lines_name_report_export_and_a_command_that_works(tmp_path, monkeypatch):
    corpus = tmp_path / "a corpus.txt"
    corpus.write_text("A sentence.\n")
    monkeypatch.setattr("jax_sentemb.training.run.find_export", lambda workdir: workdir / "export")
    config = Config(method=SimCSE(), data=Data(files=str(corpus)))
    lines = results_text(config, tmp_path).splitlines()
    assert [line.split()[0] for line in lines] == ["report", "export", "next"]
    words = shlex.split(lines[2])[1:]
    assert words[:2] == ["jax-sentemb", "search"]
    assert words[words.index("--corpus") + 1] == str(corpus)
    config.data.column, config.data.join = "title,body", " "
    words = shlex.split(results_text(config, tmp_path).splitlines()[2])[1:]
    assert [words[words.index(option) + 1] for option in ("--column", "--join")] == ["title,body", " "]
    assert unused_notes(config) == [
        f"--config.data.{setting} is not used, since files of lines have no columns" for setting in ("column=title,body", "join= ")
    ]
    config.method = SBERT()
    assert f"--corpus '{corpus}' --column sentence1,sentence2 --query" in results_text(config, tmp_path)
    assert "--config.data.column=title,body is not used, since labelled pairs have columns of their own" in unused_notes(config)
    config.method = SimCSE()
    config.data.files = "grammar:20"  # a corpus that the run has written
    (tmp_path / "corpus.txt").write_text("A sentence.\n")
    assert f"--corpus {tmp_path}/corpus.txt --query" in results_text(config, tmp_path)
    config.method = MaskedLM()
    assert "--config simcse" in results_text(config, tmp_path)
    config.sweep = "train.seed=1,2"
    assert results_text(config, tmp_path).splitlines()[1].endswith("sweep.md")


def test_the_last_lines_in_python_continue_in_python(tmp_path, monkeypatch):
    monkeypatch.setattr("jax_sentemb.training.run.find_export", lambda workdir: workdir / "export")
    given, named = str(tmp_path / "sentences.txt"), str(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("A sentence.\n")
    with spelled(keyword):
        for method, files, call in (
            (SimCSE(), given, "jax_sentemb.search(encoder.encode("),
            (SimCSE(), named, f"jax-sentemb search --model {tmp_path} --corpus {named} "),  # `sentences` is the name of a file
            (MaskedLM(), named, "jax_sentemb.train(sentences, model="),
        ):
            *_, last = results_text(Config(method=method, data=Data(files=files)), tmp_path).splitlines()
            assert last.startswith(f"next    {call}")


class Reported(NamedTuple):
    report: dict[str, float]

    def __len__(self):
        return 1008


def test_the_first_lines_are_a_table_of_the_corpus():
    report = {"lines": 2008, "blank": 0, "truncated": 3, "mean_tokens": 26.4, "unknown_token_rate": 0.125, "max_seq_length": 48}
    setup = SimpleNamespace(examples=SimpleNamespace(report=report), missing_tasks=["STS13"], loaded={"encoder": {}})
    lines = [
        "corpus    2,008 lines, 3 truncated",
        "tokens    mean 26.4, cut at 48, 12.50% unknown",
        "training  60 steps on 1 cpu device",
        "missing   STS13",
    ]
    assert description(setup, 60, 1, Data(batch_size=8)).splitlines() == lines
    setup.examples = Reported(report)
    setup.parts, lines[2:2] = 1, ["held out  1,000 sentences, so 1,008 are trained on"]
    data = Data(validation=1000, batch_size=8)
    assert description(setup, 60, 1, data).splitlines() == lines
    lines[2] += "; the loss is measured in batches of 64, without the last 40"
    data = Data(validation=1000, batch_size=64)
    assert description(setup, 60, 1, data).splitlines() == lines
    setup.loaded = {}
    new = "encoder   new, with random weights; --config.encoder.weights starts from a model"
    assert description(setup, 60, 1, data).splitlines() == [new, *lines]
