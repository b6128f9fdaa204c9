"""jax_sentemb.train: from sentences in memory to an encoder, and what is refused before anything is compiled."""

import signal
from pathlib import Path

import numpy as np
import pytest

import jax_sentemb
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.recipes import override, read_config
from jax_sentemb.training import api, loop

SENTENCES = synthetic.sentences(60, seed=0)
FAST = {"max_steps": 2, "eval.data": "", "save_steps": 0, "report_sentences": 0, "diagnostic_sentences": 16, "num_hidden_layers": 1}


def train(sentences=SENTENCES, **settings):
    return jax_sentemb.train(sentences, recipe="simcse:tiny", **{**FAST, **settings})


@pytest.fixture(scope="module")
def trained():
    with pytest.MonkeyPatch.context() as patch:
        seen = []
        run = api.training_run.run
        patch.setattr(api.training_run, "run", lambda config, workdir: (seen.append(config), run(config, workdir))[1])
        encoder = train(learning_rate=2e-3, eval__batch_size=16)
    return encoder, seen[0]


def test_settings_reach_the_run_by_the_names_of_their_fields(trained):
    _, config = trained
    assert (config.optimizer.learning_rate, config.train.max_steps) == (2e-3, 2)
    assert (config.data.batch_size, config.eval.batch_size) == (8, 16)
    assert Path(config.data.files).read_text(encoding="utf-8").splitlines() == SENTENCES


def test_the_encoder_is_that_of_the_export_and_is_saved_for_others(trained, tmp_path):
    encoder, _ = trained
    vectors = encoder.encode(SENTENCES[:5])
    assert vectors.shape == (5, 32)
    again = jax_sentemb.SentenceEncoder(encoder.save(tmp_path / "model"))
    np.testing.assert_allclose(again.encode(SENTENCES[:5]), vectors, atol=1e-5)
    assert "SimCSE" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(ConfigError, match="is not an export"):
        encoder.save(tmp_path / "full")


def test_an_interrupt_keeps_the_best_so_far(tmp_path, monkeypatch, capsys):
    report = loop.Metrics.add

    def interrupted(self, step, metrics):
        report(self, step, metrics)
        if step == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop.Metrics, "add", interrupted)
    encoder = train(max_steps=50, workdir=tmp_path)
    assert encoder.encode("a man").shape == (32,)
    assert "interrupted: the encoder has the weights of step" in capsys.readouterr().out


def test_series_arrays_and_columns_are_lists_of_sentences(tmp_path):
    pandas = pytest.importorskip("pandas")
    texts = ["a man\nplays", "", "two  dogs"]
    columns = [tuple(texts), np.array(texts), pandas.Series(texts, index=[7, 3, 5]), (text for text in texts)]
    for column in columns:
        api._write(column, tmp_path / "corpus.txt")
        assert (tmp_path / "corpus.txt").read_text(encoding="utf-8") == "a man plays\n\ntwo dogs\n"
    datasets = pytest.importorskip("datasets")
    api._write(datasets.Dataset.from_dict({"text": texts})["text"], tmp_path / "column.txt")
    assert (tmp_path / "column.txt").read_text(encoding="utf-8") == "a man plays\n\ntwo dogs\n"


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"lr": 1e-3}, ConfigError, r"setting lr is unknown; did you mean optimizer\.learning_rate\?"),
        ({"learning_rte": 1e-3}, ConfigError, r"did you mean optimizer\.learning_rate\?"),
        ({"train__epochs": 1}, ConfigError, r"did you mean train\.num_train_epochs\?"),
        ({"learning_rate": "fast"}, ConfigError, r"optimizer\.learning_rate=fast is not a number"),
        ({"max_steps": 1.5}, ConfigError, r"train\.max_steps=1\.5 is not a whole number"),
        ({"batch_size": 8, "data__batch_size": 16}, ConfigError, r"data\.batch_size is given twice"),
        ({"batch_size": 1}, ConfigError, r"data\.batch_size=1 must be at least 2"),
        ({"sweep": "train.seed=1,2"}, ConfigError, "trains several models"),
        ({"recipe": "simcze"}, ConfigError, "did you mean simcse"),
        ({"recipe": "cross_encoder_stsb"}, ConfigError, "no sentence embeddings"),
        ({"recipe": "micse_low_shot"}, ConfigError, "trains several models"),
        ({"sentences": []}, DataError, "is empty"),
        ({"sentences": ["a", 3]}, DataError, "sentence 1 is int"),
        ({"sentences": {"a": 1}}, ConfigError, "sentences is dict"),
        ({"sentences": "absent.txt"}, DataError, "absent.txt"),
        ({"model": "./absent"}, ConfigError, "no such directory"),
    ],
)
def test_what_cannot_be_is_one_line(settings, error, says):
    call = {"sentences": SENTENCES, "recipe": "simcse:tiny", "max_steps": 1, **settings}
    with pytest.raises(error, match=says):
        jax_sentemb.train(**call)


def test_a_name_of_two_sections_asks_which():
    with pytest.raises(ConfigError, match=r"dropout: the settings .* have this name; write method__dropout or encoder__dropout"):
        jax_sentemb.train(SENTENCES, recipe="ct", dropout=0.2)
    config = read_config("ct")
    override(config, "encoder.dropout", 0.2)
    assert config.encoder.dropout == 0.2
