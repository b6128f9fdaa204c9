"""Runs that were killed, made longer or continued with other settings: what they keep, and what they say of it."""

import json

import pytest

from jax_sentemb.config import Config, sized
from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.run_dir import read_checkpoint
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.recipes import read_config
from jax_sentemb.reporting.report_data import find_curves, is_finished, read_run, run_state
from jax_sentemb.reporting.report_sections import context
from jax_sentemb.training.evaluator import Scorer
from jax_sentemb.training.run import run
from jax_sentemb.training.trainer import Trainer

DEV = "eval/grammar-dev/spearman_cosine"


def tiny(**changes):
    """Return a run whose rate does not depend on its length, so that it can be made longer."""
    config = sized(Config(method=SimCSE()), "tiny")
    config.optimizer.lr_scheduler_type, config.optimizer.warmup_steps, config.optimizer.warmup_ratio = "constant", 0, 0.0
    for name, value in {"eval.eval_steps": 2, "train.max_steps": 4, "train.save_steps": 0, **changes}.items():
        section, field = name.split(".")
        assert hasattr(getattr(config, section), field)
        setattr(getattr(config, section), field, value)
    return config


def scores(workdir):
    return json.loads((workdir / "scores.json").read_text())


def killed(monkeypatch, function, config, workdir):
    """A run that ends where it first calls a function of its Trainer."""

    def end(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, function, end)
        with pytest.raises(KeyboardInterrupt):
            run(config, workdir)


@pytest.fixture
def on_dev(monkeypatch):
    """The score on the development set by step."""
    real, by_step = Scorer.measure, {}
    monkeypatch.setattr(
        Scorer, "measure", lambda scorer, step, params, label="": real(scorer, step, params, label) | {DEV: by_step.get(step, 0.0)}
    )
    return by_step


def test_a_run_that_was_killed_before_its_first_checkpoint_leaves_no_best_weights(monkeypatch, on_dev, tmp_path):
    on_dev[2] = 90.0
    killed(monkeypatch, "_save", tiny(), tmp_path)
    assert (tmp_path / "best" / "2").is_dir()
    assert run(tiny(**{"eval.select": "last"}), tmp_path) == 0
    assert read_checkpoint(tmp_path, "best")[1] == 4


def test_evaluations_without_improvement_are_counted_one_by_one(on_dev, tmp_path, capsys):
    on_dev[4] = 90.0
    settings = {"eval.patience": 3, "eval.select": "dev"}
    assert run(tiny(**settings, **{"eval.eval_steps": 4, "train.max_steps": 8}), tmp_path) == 0
    assert run(tiny(**settings, **{"eval.eval_steps": 1, "train.max_steps": 20}), tmp_path) == 0
    assert "training ends at step 10: 3 evaluations without improvement since step 4" in capsys.readouterr().err


def test_a_longer_run_compares_the_sentences_of_its_start(tmp_path):
    few = {"eval.diagnostic_sentences": 8}
    assert run(tiny(**few, **{"train.max_steps": 10}), tmp_path) == 0
    first = json.loads((tmp_path / "samples" / "end.json").read_text())
    assert run(tiny(**few, **{"train.max_steps": 20}), tmp_path) == 0
    second = json.loads((tmp_path / "samples" / "end.json").read_text())
    assert second["neighbours"]["among"] == first["neighbours"]["among"] < 20 * 8 // 4
    assert "neighbours_before" in second
    assert "map" in second
    (tmp_path / "samples" / "end.json").write_text(
        json.dumps({name: second[name] for name in second if name != "neighbours_before"})
    )
    assert context(read_run(tmp_path))["neighbours"]["times"] == ["kept"]


def test_a_longer_run_is_not_finished_before_its_end(monkeypatch, tmp_path):
    assert run(tiny(), tmp_path) == 0
    assert is_finished(read_run(tmp_path))
    killed(monkeypatch, "_evaluate", tiny(**{"train.max_steps": 8}), tmp_path)
    stopped = read_run(tmp_path)
    assert not is_finished(stopped)
    assert "; the scores are those of step 4," in run_state(stopped)


def test_measures_on_another_scale_begin_anew_and_earlier_warnings_go(tmp_path):
    short = {"eval.max_seq_length": 4}
    assert run(tiny(**short), tmp_path) == 0
    assert "were cut at eval.max_seq_length=4" in scores(tmp_path)["warnings"][0]
    assert any("were cut at" in warning for warning in context(read_run(tmp_path))["warnings"])
    assert run(tiny(**{"train.max_steps": 8, "eval.eval_steps": 3}), tmp_path) == 0
    again = read_run(tmp_path)
    assert [*find_curves(again.records)[DEV]] == [4, 6, 8]  # the step of the continuation is scored again
    assert min(find_curves(again.records)["train/loss"]) < 4
    (warning,) = scores(tmp_path)["warnings"]
    assert warning.endswith("were cut at eval.max_seq_length=24")
    assert [shown for shown in context(again)["warnings"] if "were cut at" in shown] == [warning]


def test_pretraining_of_a_run_that_has_begun_cannot_choose_other_weights(tmp_path):
    def two_stages(**changes):
        config = read_config("configs/is_bert_ssl_ft.py:tiny")
        for name, value in changes.items():
            section, field = name.split(".")
            setattr(getattr(config.pretrain, section), field, value)
        return config

    assert run(two_stages(), tmp_path) == 0
    checkpoints = sorted((tmp_path / "pretrain" / "checkpoints").iterdir())
    for changes, says in (
        ({"train.max_steps": 12}, "pretrain.train.max_steps=12: the start of this run was chosen with"),
        ({"eval.select": "last"}, "pretrain.eval.select=last: the start of this run was chosen with"),
    ):
        with pytest.raises(ConfigError, match=says):
            run(two_stages(**changes), tmp_path)
    assert sorted((tmp_path / "pretrain" / "checkpoints").iterdir()) == checkpoints
    assert run(two_stages(), tmp_path) == 0
