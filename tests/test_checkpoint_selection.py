"""What selects the weights that are kept, and when evaluations are enough."""

import dataclasses
import json
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, check, sized
from jax_sentemb.errors import PREEMPTED, ConfigError, ModelFileError, note_text, stored_text
from jax_sentemb.formats.checkpoint import read_params
from jax_sentemb.formats.run_dir import read_checkpoint
from jax_sentemb.inference.load import load
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.reporting.sweep_table import headline
from jax_sentemb.training import setup
from jax_sentemb.training.agreement import Agreement, HeldOut
from jax_sentemb.training.checkpoint_selection import (
    Progress,
    better,
    continued,
    kept_encoder,
    score,
    selected_by,
)
from jax_sentemb.training.evaluator import Scorer, evaluation_tasks
from jax_sentemb.training.run import run
from jax_sentemb.training.run_sources import selection_sources

DEV = "eval/STSBenchmark-dev/spearman_cosine"


@pytest.mark.parametrize(
    ("select", "validation", "dev", "name"),
    [
        ("", True, "STSBenchmark-dev", DEV),
        ("", True, "", "validation"),
        ("", False, "STSBenchmark-dev", DEV),
        ("", False, "", ""),
        ("validation", False, "", "validation"),  # of a method whose held-out accuracy selects only if it is asked for
        ("dev", True, "STSBenchmark-dev", DEV),
        ("last", True, "STSBenchmark-dev", ""),
        ("validation", True, "STSBenchmark-dev", "validation"),
        ("retrieval", True, "STSBenchmark-dev", "diagnostics/retrieval"),
    ],
)
def test_what_is_asked_for_comes_first_then_labels_then_held_out_sentences(select, validation, dev, name):
    assert selected_by(Evaluation(select=select), validation, dev and f"eval/{dev}/spearman_cosine", is_cross_encoder=False) == name


def test_the_development_set_may_be_a_set_of_the_data_by_its_name(tmp_path):
    benchmark = tmp_path / "downstream" / "STS" / "STSBenchmark"
    benchmark.mkdir(parents=True)
    rows = [f"g\tf\t{year}\t1\t{n}\ta {n}\tb\n" for n, year in enumerate(("2012test", "2012train", "2017"))]
    (benchmark / "sts-dev.csv").write_text("".join(rows))
    assert evaluation_tasks(Evaluation(data=str(tmp_path)))[2] == "STSBenchmark-dev"
    tasks, _, dev = evaluation_tasks(Evaluation(data=str(tmp_path), dev="STSBenchmark-dev-disjoint"))
    assert tasks[dev].subsets["dev"].gold.tolist() == [1, 2]
    with pytest.raises(ConfigError, match=r"eval.dev=SICKRelatedness-trial: eval.data has no such set"):
        evaluation_tasks(Evaluation(data=str(tmp_path), dev="SICKRelatedness-trial"))


@pytest.mark.parametrize(
    ("options", "is_cross_encoder", "says"),
    [
        (Evaluation(select="dev"), False, "eval.select=dev needs labelled pairs"),
        (Evaluation(select="retrieval"), True, "eval.select=retrieval: a cross-encoder has no embeddings"),
        (Evaluation(patience=3), False, "eval.patience=3 needs a score"),
        (Evaluation(patience=3, select="last"), False, "eval.patience=3 needs a score"),
    ],
)
def test_what_a_run_does_not_measure_is_said(options, is_cross_encoder, says):
    with pytest.raises(ConfigError, match=says):
        selected_by(options, False, "", is_cross_encoder)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Evaluation(select="dv"), "eval.select=dv is not one of '', dev, agreement, validation"),
        (Evaluation(select="validation"), "eval.select=validation needs held-out sentences"),
        (Evaluation(patience=2, eval_steps=0), "eval.patience=2 counts evaluations during training: set eval.eval_steps"),
        (Evaluation(patience=-1), "eval.patience=-1 must be at least 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, says):
    config = Config(method=SimCSE(), data=Data(files="corpus.txt"), eval=options)
    with pytest.raises(ConfigError, match=says):
        check(config)


def test_a_rate_that_falls_without_improvement_needs_scores():
    falling, data = Optimizer(plateau_factor=0.5), Data(files="corpus.txt", validation=64)
    check(Config(SimCSE(), data, optimizer=falling))
    with pytest.raises(ConfigError, match=r"plateau_factor=0\.5 needs a score, and there is none with eval\.select=last"):
        check(Config(SimCSE(), data, optimizer=falling, eval=Evaluation(select="last")))
    with pytest.raises(ConfigError, match=r"plateau_factor=0\.5 needs a score, and there is none with eval\.eval_steps=0"):
        check(Config(SimCSE(), data, optimizer=falling, eval=Evaluation(eval_steps=0)))


def test_a_score_is_wanted_high():
    assert score("validation", {"validation/loss": 0.5, "validation/accuracy": 0.75}) == 75
    assert score("validation", {"validation/loss": 0.5}) == -0.5
    assert score(DEV, {DEV: 48.0}) == 48
    assert score(DEV, {}) is None  # a collapse has no correlation
    assert score("", {DEV: 48.0}) is None


def test_a_run_without_labels_keeps_the_weights_whose_halves_find_each_other_best(tmp_path):
    config = sized(Config(method=SimCSE()), "tiny")
    config.eval.data, config.eval.select, config.eval.eval_steps, config.eval.report_sentences = "", "retrieval", 1, 0
    config.optimizer.learning_rate, config.train.save_steps = 1e-2, 0
    assert run(config, tmp_path) == 0
    events = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = {event["step"]: event["diagnostics/retrieval"] for event in events if "diagnostics/retrieval" in event}
    scores = json.loads((tmp_path / "scores.json").read_text())
    best = max(range(1, 7), key=found.__getitem__)
    assert list(found) == [0, 1, 2, 3, 4, 5, 6]
    assert scores["step"] == best < 6
    assert headline(scores) == {"retrieval": pytest.approx(found[best]), "uniformity": scores["diagnostics"]["uniformity"]}
    assert json.loads((tmp_path / "run.json").read_text())["selected_by"] == "diagnostics/retrieval"


def test_the_better_has_the_highest_score_and_at_a_tie_comes_first():
    assert better({"second": 40.0, "first": 41.0}) == "first"
    assert better({"second": 41.0, "first": 41.0}) == "second"
    assert better({"second": None, "first": -3.0}) == "first"  # a collapse has no score
    assert better({"second": None, "first": None}) == "second"


def test_what_is_said_of_the_kept_encoder():
    two = {"encoder": {"kernel": np.ones(1)}, "first": {"kernel": np.ones(1)}}
    assert kept_encoder(SimCSE(), {"encoder": two["encoder"]}, "", DEV) == ("", ())
    assert kept_encoder(ContrastiveTension(), two, "first", DEV) == ("first", (f"the higher {DEV} of second and first",))
    assert kept_encoder(ContrastiveTension(), two, "", "")[0] == "second"
    for kept, selected in (("", ""), ("second", "validation")):
        _, reason = kept_encoder(ContrastiveTension(), two, kept, selected)
        assert stored_text(*reason) == "no score distinguishes the encoders (set eval.dev, or without labels eval.select=retrieval)"
    _, reason = kept_encoder(ContrastiveTension(keep="second"), two, "second", DEV)
    assert note_text(*reason) == "it is the value of --config.method.keep"


def two_encoders(**settings):
    """Four steps, evaluated at 2 and 4."""
    config = sized(Config(method=ContrastiveTension(group=4, **settings)), "tiny")
    config.eval.eval_steps, config.eval.report_sentences, config.optimizer.learning_rate = 2, 0, 1e-2
    config.encoder.num_hidden_layers = 1
    config.train.max_steps, config.train.save_steps, config.train.keep_checkpoints = 4, 1, 5
    return config


def same(one, other):
    return all(np.array_equal(*pair) for pair in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.fixture(scope="module")
def second_kept(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("second")
    assert run(two_encoders(keep="second"), workdir) == 0
    return workdir


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("kept", ["first", "second"])
def test_of_two_encoders_the_better_one_on_the_development_set_is_exported(
    kept, stopped, second_kept, monkeypatch, tmp_path, capsys
):
    """At step 2 `kept` is the better one and both are above what step 4 has; a run that is stopped there knows it afterwards."""
    real = Scorer.measure

    def measured(scorer, step, params, label=""):
        found = real(scorer, step, params, label)
        name = "eval/grammar-dev/spearman_cosine"
        if step == 4 and stopped and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return {**found, name: {0: 0.0, 2: 50.0, 4: 10.0}[step] + 5 * ((label or "second encoder") == f"{kept} encoder")}

    monkeypatch.setattr(Scorer, "measure", measured)
    if stopped:
        assert run(two_encoders(), tmp_path) == PREEMPTED
        assert not (tmp_path / "scores.json").exists()
    assert run(two_encoders(), tmp_path) == 0
    best, step = read_checkpoint(tmp_path, "best")
    plain, at = read_checkpoint(second_kept, "2")
    assert step == at == 2
    kept_there, left_there = ("encoder", "first") if kept == "second" else ("first", "encoder")
    assert same(best["encoder"], plain[kept_there])
    assert same(best["first"], plain[left_there])
    assert not same(best["encoder"], best["first"])
    scores, model = (json.loads((tmp_path / name).read_text()) for name in ("scores.json", "model.json"))
    assert scores["kept_encoder"] == model["kept_encoder"] == kept
    assert f"the {kept} encoder is exported: the higher eval/grammar-dev/spearman_cosine" in capsys.readouterr().err
    logged = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [event["step"] for event in logged if "first encoder/eval/grammar-dev/spearman_cosine" in event] == [2, 4]


def test_evaluation_and_export_read_the_encoder_that_was_kept(monkeypatch, tmp_path):
    real = Scorer.measure

    def measured(scorer, step, params, label=""):
        return {**real(scorer, step, params, label), "eval/grammar-dev/spearman_cosine": 60.0 if label else 50.0 - step}

    monkeypatch.setattr(Scorer, "measure", measured)
    config = two_encoders()
    config.train.max_steps, config.eval.eval_steps = 2, 0
    assert run(config, tmp_path) == 0
    sentences = ["a man plays a guitar", "the report says nothing"]
    model, last = load(str(tmp_path)), read_params(tmp_path / "checkpoints" / "2")
    assert same(read_checkpoint(tmp_path, "last")[0]["encoder"], last["first"])  # as the export is
    vectors = model.embedder(model.params, sentences)
    np.testing.assert_allclose(load(tmp_path / "export")(sentences), vectors, atol=1e-6)
    np.testing.assert_array_equal(vectors, model.embedder({"encoder": last["first"]}, sentences))
    assert np.abs(vectors - model.embedder({"encoder": last["encoder"]}, sentences)).max() > 1e-3


def test_a_teacher_that_judges_compares_both_encoders(monkeypatch, tmp_path, capsys):
    """The start has 40. At step 1 the second encoder is scored before the first one."""
    held_out, scores = HeldOut(["a man plays a guitar", "the report says nothing"], np.eye(2, dtype=np.float32)), [40.0, 50.0, 60.0]
    monkeypatch.setattr(setup, "check_judge", lambda config: None)
    monkeypatch.setattr(setup, "held_out_sentences", lambda *arguments: held_out)

    def measured(agreement, params):
        return {"agreement/neighbours": scores.pop(0) if scores else 0.0, "agreement/pairs": 0.0}

    monkeypatch.setattr(Agreement, "__call__", measured)
    config = two_encoders()
    config.eval.data, config.eval.teacher, config.train.max_steps, config.eval.eval_steps = "", "judge", 1, 0
    assert run(config, tmp_path) == 0
    logged = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [event["step"] for event in logged if "first encoder/agreement/neighbours" in event] == [1]
    assert json.loads((tmp_path / "scores.json").read_text())["kept_encoder"] == "first"
    assert "the first encoder is exported: the higher agreement/neighbours of second and first" in capsys.readouterr().err


def test_without_a_score_the_second_encoder_is_exported_and_the_run_says_why(tmp_path, capsys):
    config = two_encoders()
    config.eval.data, config.train.max_steps, config.eval.eval_steps = "", 1, 0
    assert run(config, tmp_path) == 0
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["kept_encoder"] == "second"
    reason = "no score distinguishes the encoders (set {}, or without labels {}=retrieval)"
    assert scores["kept_because"] == reason.format("eval.dev", "eval.select")
    shown = reason.format("--config.eval.dev", "--config.eval.select")
    assert f"the second encoder is exported: {shown}\n" in capsys.readouterr().err
    logged = (tmp_path / "metrics.jsonl").read_text()
    assert "first encoder" not in logged  # nothing is measured that decides nothing
    with pytest.raises(ConfigError, match=r"method\.keep=best is not one of better, second"):
        run(two_encoders(keep="best"), tmp_path / "other")


PAIRS = {"eval.dev": {"name": "dev.tsv", "sha256": "a" * 64}}


def progress(**changes):
    values = {"selected_by": "eval/dev/spearman_cosine", "scale": {"eval.max_seq_length": 128}, "measured_on": PAIRS}
    return Progress(**{**values, **changes})


def saved(**changes):
    known = {
        "best_score": 70.0,
        "best_step": 4,
        "evaluated": 4,
        "start": {"dev": 60.0},
        "measured": {"eval/dev/spearman_cosine": 60.0},
    }
    return dataclasses.asdict(progress(**{**known, **changes}))


def test_scores_on_replaced_pairs_are_not_compared():
    other = {"eval.dev": {"name": "dev.tsv", "sha256": "b" * 64}}
    with pytest.raises(ModelFileError, match=r"eval\.dev dev\.tsv \(SHA-256 a+\), not from eval\.dev dev\.tsv \(SHA-256 b+\)"):
        continued(Path("checkpoints/4"), saved(), progress(measured_on=other))
    same, note, _ = continued(Path("4"), saved(), progress())
    assert (same.best_score, same.start, note) == (70.0, {"dev": 60.0}, "")
    assert continued(Path("4"), saved(measured_on={}), progress())[0].measured_on == PAIRS  # pairs that were added later


def test_agreements_on_other_sentences_are_not_compared_whichever_setting_chose_them():
    def measured_on(sentences, **settings):
        setup = SimpleNamespace(dev="", held_out=HeldOut(sentences, np.eye(2, dtype=np.float32)))
        return selection_sources(Config(SimCSE(), eval=Evaluation(**settings)), setup)

    of_text = measured_on(["a man plays a guitar", "the report says nothing"], teacher="models/judge")
    of_file = measured_on(["another man plays", "a letter says much"], teacher="models/judge", held_out="other.txt")
    with pytest.raises(ModelFileError, match=r"eval\.held_out sentences for judge .*, not from eval\.held_out other\.txt"):
        continued(Path("4"), saved(measured_on=of_text), progress(measured_on=of_file))


def test_scores_that_were_measured_otherwise_are_forgotten_and_the_run_says_so():
    shorter, note, measures = continued(Path("4"), saved(), progress(scale={"eval.max_seq_length": 64}))
    assert note == (
        "scores are now measured with eval.max_seq_length=64 (before: 128); earlier scores do not count; "
        "the best weights so far, of step 4, are deleted"
    )
    assert (shorter.best_step, shorter.evaluated) == (-1, -1)
    assert measures == ["eval/", "agreement/", "diagnostics/"]
    assert (shorter.best_score, shorter.start, shorter.measured) == (-math.inf, {}, {})
    other, note, _ = continued(Path("4"), saved(), progress(selected_by="diagnostics/retrieval"))
    assert (other.best_score, other.start) == (-math.inf, {"dev": 60.0})
    assert note.startswith("weights are now selected by diagnostics/retrieval, before by")
    by_loss = {"selected_by": "validation"}
    kept, *_ = continued(Path("4"), saved(**by_loss), progress(scale={"eval.max_seq_length": 64}, **by_loss))
    assert (kept.best_score, kept.best_step) == (70.0, 4)  # the loss does not depend on it


def test_only_scores_that_depend_on_a_setting_are_forgotten():
    before = {"scale": {"eval.max_seq_length": 128, "eval.diagnostic_sentences": 512}}
    now = progress(scale={"eval.max_seq_length": 128, "eval.diagnostic_sentences": 64})
    kept, _, measures = continued(Path("4"), saved(**before, measured={DEV: 60.0, "diagnostics/retrieval": 20.0}), now)
    assert (kept.best_step, kept.start, kept.measured, measures) == (4, {"dev": 60.0}, {DEV: 60.0}, ["diagnostics/"])
    now = dataclasses.replace(now, selected_by="diagnostics/retrieval")
    assert continued(Path("4"), saved(**before, selected_by="diagnostics/retrieval"), now)[0].best_step == -1


def test_pairs_that_a_continuation_left_out_are_still_those_of_the_start():
    other = {"eval.dev": {"name": "dev.tsv", "sha256": "b" * 64}}
    without = continued(Path("4"), saved(), progress(measured_on={}))[0]
    with pytest.raises(ModelFileError, match="scores on both cannot be compared"):
        continued(Path("8"), dataclasses.asdict(without), progress(measured_on=other))


def test_a_run_that_continues_with_another_score_selects_by_this_score_alone(monkeypatch, tmp_path, capsys):
    """By retrieval step 1 is the best, and the run stops at step 2. On the development set step 3 is better than step 2."""
    real = Scorer.measure
    on_dev = {2: 60.0, 3: 70.0, 4: 50.0}

    def measured(scorer, step, params, label=""):
        scores = {"diagnostics/retrieval": 50.0 - step, "eval/grammar-dev/spearman_cosine": on_dev.get(step, 90.0)}
        return real(scorer, step, params, label) | scores

    def trained(select, patience):
        config = two_encoders(keep="second")
        config.eval.select, config.eval.patience, config.eval.eval_steps = select, patience, 1
        assert run(config, tmp_path) == 0
        return json.loads((tmp_path / "scores.json").read_text())["step"], capsys.readouterr().err

    monkeypatch.setattr(Scorer, "measure", measured)
    step, said = trained("retrieval", 1)
    assert step == 1
    assert "training ends at step 2" in said
    step, said = trained("dev", 2)
    assert "weights are now selected by eval/grammar-dev/spearman_cosine, before by diagnostics/retrieval; " in said
    assert "the best weights so far, of step 1, are deleted" in said
    assert step == read_checkpoint(tmp_path, "best")[1] == 3
    step, said = trained("last", 0)
    assert step == read_checkpoint(tmp_path, "best")[1] == 4
