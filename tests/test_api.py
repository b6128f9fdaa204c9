"""jax_sentemb.train: from sentences in memory to an encoder, and what is refused before anything is compiled."""

import contextlib
import io
import logging
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

import jax_sentemb
from jax_sentemb.data import synthetic
from jax_sentemb.errors import BusyError, ConfigError, DataError, ModelFileError
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

        def seen_run(config, workdir, *rest, **options):
            seen.append(config)
            with contextlib.redirect_stdout(io.StringIO()) as output:
                code = run(config, workdir, *rest, **options)
            assert "next " not in output.getvalue()  # the folder is gone with the encoder
            return code

        patch.setattr(api.training_run, "run", seen_run)
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


def test_a_scored_run_that_saves_logs_no_warning_of_a_library(tmp_path, caplog):
    """The commands hide what absl logs, with which Orbax warns; in Python nothing is hidden. Python warnings are errors here."""
    caplog.set_level(logging.WARNING)
    caplog.set_level(logging.WARNING, "absl")
    pairs = tmp_path / "pairs.tsv"
    lines = ["sentence1\tsentence2\tscore", *(f"{SENTENCES[row]}\t{SENTENCES[row + 1]}\t{row % 5}" for row in range(20))]
    pairs.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    workdir = tmp_path / "run"
    train(workdir=workdir, eval__dev=str(pairs), eval_steps=1, save_steps=1)
    assert (workdir / "scores.json").exists()
    assert any((workdir / "checkpoints").iterdir())
    assert [record.getMessage() for record in caplog.records if not record.name.startswith("jax_sentemb")] == []


def test_a_second_call_in_a_work_directory_leaves_the_sentences_of_the_first_alone(tmp_path):
    with FileLock(tmp_path / "LOCK"):
        (tmp_path / api.training_run.GIVEN).write_text("of the first\n", encoding="utf-8")
        with pytest.raises(BusyError, match="is in use by"):
            train(workdir=tmp_path)
    assert (tmp_path / api.training_run.GIVEN).read_text(encoding="utf-8") == "of the first\n"


def test_other_sentences_do_not_replace_those_of_a_run_that_can_continue(tmp_path):
    workdir = tmp_path / "run"
    train(workdir=workdir, save_steps=1)
    with pytest.raises(
        ModelFileError, match=r'run" has a run on other sentences; give the old input or setting, or another workdir$'
    ):
        train(SENTENCES[1:], workdir=workdir)
    train(workdir=workdir, save_steps=1)  # with the old sentences the call goes on


CLOSED = """
import sys
from jax_sentemb.system.streams import print_line
from jax_sentemb.training import api
def run(config, workdir, begin, temporary):  # the place of the run
    sys.stdin.readline()  # the test has closed the other end
    for _ in range(3):
        print_line("x" * 100_000)
        print_line("step", "stderr")
    return 0
api.training_run.run, api.SentenceEncoder, api.find_export = run, str, str
streams = sys.stdout, sys.stderr
api.train(["a", "b"], recipe="simcse:tiny", workdir=sys.argv[1])
open(sys.argv[1] + "/done", "w").write(str((sys.stdout, sys.stderr) == streams))
"""


@pytest.mark.parametrize("closed", [("stdout",), ("stdout", "stderr")])
def test_output_that_nobody_reads_does_not_stop_a_script(tmp_path, closed):
    pipes = dict.fromkeys(("stdin", *closed), subprocess.PIPE)
    process = subprocess.Popen([sys.executable, "-c", CLOSED, tmp_path], **{"stderr": subprocess.DEVNULL, **pipes})
    for name in closed:
        getattr(process, name).close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.wait(120) == 0
    assert (tmp_path / "done").read_text() == "True"


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
        ({"lr": 1e-3}, ConfigError, r"^lr is unknown; did you mean optimizer__learning_rate\?$"),
        ({"learning_rte": 1e-3}, ConfigError, r"did you mean optimizer__learning_rate\?"),
        ({"train__epochs": 1}, ConfigError, r"did you mean train__num_train_epochs\?"),
        ({"learning_rate": "fast"}, ConfigError, r'^optimizer__learning_rate="fast" is not a number$'),
        ({"max_steps": 1.5}, ConfigError, r"^train__max_steps=1\.5 is not a whole number$"),
        ({"batch_size": 8, "data__batch_size": 16}, ConfigError, r"^data__batch_size is given twice"),
        ({"batch_size": 1}, ConfigError, r"^data__batch_size=1 must be at least 2$"),
        ({"sweep": "train.seed=1,2"}, ConfigError, "trains several models"),
        ({"recipe": "simcze"}, ConfigError, "did you mean simcse"),
        ({"recipe": "cross_encoder_stsb"}, ConfigError, "no sentence embeddings"),
        ({"recipe": "micse_low_shot"}, ConfigError, "trains several models"),
        ({"sentences": []}, DataError, "is empty"),
        ({"sentences": ["a", 3]}, DataError, "sentence 1 is int"),
        ({"sentences": {"a": 1}}, ConfigError, "sentences is dict"),
        ({"sentences": "absent.txt"}, DataError, "absent.txt"),
        ({"sentences": ""}, ConfigError, "sentences is empty"),
        ({"model": "./absent"}, ConfigError, r'^model="\./absent": no such directory'),
        ({"recipe": "absent.yaml"}, ConfigError, r'^recipe="absent\.yaml": no such file$'),
        ({"select": "validation"}, ConfigError, r"held-out sentences: data__validation=1000$"),
        ({"average_with_start": 0.5}, ConfigError, 'needs weights to start from: model="DIRECTORY"'),
        (
            {"recipe": "distill_encoder:tiny", "model": "a", "teacher": "b", "average_with_start": 0.5},
            ConfigError,
            r"^train__average_with_start=0\.5: it averages the encoder and not the exported layer W, so they would not fit",
        ),
        ({"pretrain__train__seed": 1}, ConfigError, r"^pretrain__train__seed cannot be set: pretrain is None; write it into a"),
        ({"method__ami__layers": "a"}, ConfigError, r'^method__ami__layers="a" is not a list of whole numbers$'),
        ({"recipe": "distill_encoder:tiny", "layers": (3, 1)}, ConfigError, r'^layers="3,1,": write a count'),
        ({"recipe": "distill_encoder:tiny", "layers": 2.5}, ConfigError, r"^layers=2\.5: give a count such as 3, or layer numbers"),
        ({"recipe": "distill_encoder:tiny", "layers": 1}, ConfigError, r'^layers="1" needs model$'),
        ({"recipe": "distill_encoder:tiny", "layers": []}, ConfigError, r"^layers=\[\]: give a count such as 3"),
        ({"recipe": "distill_encoder:tiny", "layers": (n for n in (3, 1))}, ConfigError, r'^layers="3,1,": write a count'),
        ({"recipe": "distill_encoder:tiny", "layers": np.array([3, 1])}, ConfigError, r'^layers="3,1,": write a count'),
        ({"recipe": "distill_encoder:tiny", "layers": np.int64(1)}, ConfigError, r'^layers="1" needs model$'),
        (
            {"recipe": "", "teacher": "a,b", "layers": 3},
            ConfigError,
            r'^layers="3": a,b is not one model; name the model that has these layers by model$',
        ),
        ({"recipe": "", "teacher": "words:64", "layers": 3}, ConfigError, "is not one model; name the model"),
        ({"recipe": "", "teacher": ["a", "b"]}, ConfigError, "^teacher is list: give a directory, or a name of the hub$"),
        ({"recipe": "", "teacher": "a", "method.teacher": "b"}, ConfigError, "^teacher and method.teacher are one setting"),
        ({"model": "a", "encoder.weights": "b"}, ConfigError, "^model and encoder.weights are one setting"),
        (
            {"model": "a", "recipe": "quick_thoughts:tiny", "vectors": "b"},
            ConfigError,
            "^model and encoder.vectors are one setting",
        ),
        ({"files": "a.txt"}, ConfigError, "^sentences and data.files are one setting"),
        ({"layers": 3, "encoder.layers": "1,"}, ConfigError, "^layers and encoder.layers are one setting"),
        ({"layers": 3, "encoder__layers": "1,"}, ConfigError, "^layers and encoder.layers are one setting"),
        ({"teacher": "./absent"}, ConfigError, r'^teacher="\./absent": no such directory'),
        ({"recipe": "", "teacher": "./absent", "layers": 3}, ConfigError, r'^model="\./absent": no such directory'),
        ({"workdir": __file__}, ConfigError, "^workdir=.* is a file: give a directory"),
    ],
)
def test_what_cannot_be_is_one_line(settings, error, says):
    call = {"sentences": SENTENCES, "recipe": "simcse:tiny", "max_steps": 1, **settings}
    with pytest.raises(error, match=says) as found:
        jax_sentemb.train(**call)
    assert "--config." not in str(found.value)


def test_a_name_of_two_sections_asks_which():
    with pytest.raises(ConfigError, match=r"^dropout is a setting of several parts; write method__dropout or encoder__dropout$"):
        jax_sentemb.train(SENTENCES, recipe="ct", dropout=0.2)
    config = read_config("ct")
    override(config, "encoder.dropout", 0.2)
    assert config.encoder.dropout == 0.2
