"""What selects the weights that are kept, and when evaluations are enough."""

import json

import pytest

from jax_sentemb.config import Config, Data, Evaluation, check, sized
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation.selection import enough, score, selected_by
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.run import run
from jax_sentemb.vary_tables import headline

pytestmark = pytest.mark.usefixtures("quick_compilation", "few_scored_pairs")

DEV = "eval/STSBenchmark-dev/spearman_cosine"


@pytest.mark.parametrize(
    ("select", "held_out", "dev", "name"),
    [
        ("", True, "STSBenchmark-dev", DEV),
        ("", True, "", "validation"),
        ("", False, "STSBenchmark-dev", DEV),
        ("", False, "", ""),
        ("dev", True, "STSBenchmark-dev", DEV),
        ("last", True, "STSBenchmark-dev", ""),
        ("validation", True, "STSBenchmark-dev", "validation"),
        ("retrieval", True, "STSBenchmark-dev", "diagnostics/retrieval"),
    ],
)
def test_what_is_asked_for_comes_first_then_labels_then_held_out_sentences(select, held_out, dev, name):
    assert selected_by(Evaluation(select=select), held_out, dev, scores_pairs=False) == name


@pytest.mark.parametrize(
    ("options", "scores_pairs", "says"),
    [
        (Evaluation(select="dev"), False, "eval.select=dev needs labelled pairs"),
        (Evaluation(select="retrieval"), True, "eval.select=retrieval: a cross-encoder has no embeddings"),
        (Evaluation(patience=3), False, "eval.patience=3 needs a score"),
        (Evaluation(patience=3, select="last"), False, "eval.patience=3 needs a score"),
    ],
)
def test_what_a_run_does_not_measure_is_said(options, scores_pairs, says):
    with pytest.raises(ConfigError, match=says):
        selected_by(options, False, "", scores_pairs)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Evaluation(select="dv"), "eval.select='dv' is not one of , dev, validation"),
        (Evaluation(select="validation"), "eval.select=validation needs held-out sentences"),
        (Evaluation(patience=2, eval_steps=0), "eval.patience=2 counts evaluations on the way: set eval.eval_steps"),
        (Evaluation(patience=-1), "eval.patience=-1 must be at least 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, says):
    config = Config(method=SimCSE(), data=Data(files="corpus.txt"), eval=options)
    with pytest.raises(ConfigError, match=says):
        check(config)


def test_a_score_is_wanted_high():
    assert score("validation", {"validation/loss": 0.5, "validation/accuracy": 0.75}) == 75
    assert score("validation", {"validation/loss": 0.5}) == -0.5
    assert score(DEV, {DEV: 48.0}) == 48
    assert score(DEV, {}) is None  # a collapse has no correlation
    assert score("", {DEV: 48.0}) is None


def test_enough_is_counted_from_the_best_or_from_the_start():
    assert [enough(2, 10, evaluated, 30) for evaluated in (30, 40, 45, 50)] == [False, False, False, True]
    assert [enough(2, 1, evaluated, -1) for evaluated in (-1, 1, 2)] == [False, False, True]
    assert not enough(0, 10, 1000, 10)
    assert not enough(3, 0, 1000, 10)


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
