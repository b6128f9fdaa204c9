"""Argument pairs for fine-tuning: which are trained on and which are tested, and one command for all folds."""

import json
from pathlib import Path

import numpy as np
import pytest

from jax_sentemb.config import Config, Data, Evaluation, check, sized
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.evaluation.arguments import fold_of_pairs, load_arguments
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.recipes import read_config
from jax_sentemb.reporting.sweep_table import headline, summary
from jax_sentemb.training.argument_folds import fold_count, split
from jax_sentemb.training.run import run
from jax_sentemb.training.sweep import variants

CONFIGS = Path(__file__).parents[1] / "configs"
GRADES = ("NS", "SS", "HS", "DTORCD")
TOPICS = {"drones": 40, "wind power": 33, "gmo": 2}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = []
    for topic, count in TOPICS.items():
        rows += [f"{topic} claim {row}\treason {row} of {topic}\t{GRADES[row % 4]}\t{topic}" for row in range(count)]
    path = tmp_path_factory.mktemp("arguments") / "UKP_ASPECT.tsv"
    path.write_text("\n".join(["sentence1\tsentence2\tlabel\ttopic", *rows]) + "\n")
    return f"arguments:{path}"


def test_every_pair_is_left_out_of_training_once_and_then_tested_where_its_topic_has_a_correlation(table):
    everything = {f"{topic} claim {row}" for topic, count in TOPICS.items() for row in range(count)}
    for scheme, count in (("10-fold", 10), ("cross-topic", 2)):  # of the third topic two pairs have no correlation
        assert fold_count(Data(files=table, scheme=scheme)) == (10 if scheme == "10-fold" else 3)
        left = []
        for fold in range(count):
            train, test, left_out, _ = split(Data(files=table, scheme=scheme, fold=fold))
            held = everything - {first for first, _, _ in train}
            tested = {first for pairs in test.subsets.values() for first in pairs.first}
            assert tested == {first for first in held if not any(first.startswith(topic) for topic in left_out)}
            assert all(second == f"reason {first.split()[-1]} of {first.split(' claim')[0]}" for first, second, _ in train)
            left += held
        assert len(left) == len(set(left)) == (75 if scheme == "10-fold" else 73)


def test_the_parts_are_those_of_the_regression_on_frozen_embeddings(table):
    task = load_arguments(table.removeprefix("arguments:"))
    expected = fold_of_pairs(task, "10-fold")[:40] == 3  # of the first topic
    found = split(Data(files=table, fold=3)).test.subsets["drones"].first
    assert found == [sentence for sentence, tested in zip(task.topics["drones"].first, expected, strict=True) if tested]
    assert list(split(Data(files=table, scheme="cross-topic", fold=1)).test.subsets) == ["wind power"]


def test_training_scores_are_from_0_to_5_and_tested_ones_as_they_are(table):
    train, test, left_out, _ = split(Data(files=table))
    assert {score for _, _, score in train} == {0.0, 2.5, 5.0}
    assert set(np.concatenate([pairs.gold for pairs in test.subsets.values()])) == {0.0, 1.0, 2.0}
    by_claim = {first: score for first, _, score in train}
    assert all(score == {"NS": 0, "SS": 2.5, "HS": 5, "DTORCD": 0}[GRADES[int(first.split()[-1]) % 4]]
               for first, score in by_claim.items())  # fmt: skip
    assert "gmo" in left_out  # one pair of it is in this fold


def test_afs_is_split_by_topic_and_keeps_its_scores(tmp_path):
    header = ",".join(f"column{number}" for number in range(11))
    for topic in ("DP", "GC", "GM"):
        rows = [f"{row % 6},{',' * 7},{topic} claim {row},{topic} reason {row}" for row in range(12)]
        (tmp_path / f"ArgPairs_{topic}.csv").write_text("\n".join([header, *rows]) + "\n")
    data = Data(files=f"arguments:{tmp_path}", scheme="cross-topic", fold=1)
    assert fold_count(data) == 3
    train, test, left_out, _ = split(data)
    assert list(test.subsets) == ["gun control"]
    assert not left_out
    expected = [(f"{topic} claim {row}", f"{topic} reason {row}", float(row % 6)) for topic in ("DP", "GM") for row in range(12)]
    assert train == expected


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        ({"fold": 10}, ConfigError, r"data\.fold=10: UKP_ASPECT has the folds 0 to 9 with data\.scheme=10-fold"),
        ({"scheme": "cross-topic", "fold": 3}, ConfigError, "has the folds 0 to 2"),
        ({"scheme": "cross-topic", "fold": 2}, DataError, "no topic has 3 pairs and two gold scores"),
        ({"files": "arguments:absent.tsv"}, DataError, r"absent\.tsv: no such file"),
        ({"files": "pairs.tsv"}, ConfigError, "is not arguments:FILE"),
    ],
)
def test_what_cannot_be_tested_is_said_in_one_line(table, data, error, says):
    with pytest.raises(error, match=says) as caught:
        split(Data(**{"files": table, **data}))
    assert "\n" not in str(caught.value)


def test_settings_that_do_not_fit_are_refused(table, tmp_path):
    for data, says in (
        (Data(files=table, scheme="5-fold"), r"data\.scheme=5-fold is not one of"),
        (Data(files=table, fold=-1), "at least 0"),
    ):
        with pytest.raises(ConfigError, match=says):
            check(Config(method=SBERT(), data=data))
    config = sized(Config(method=SimCSE()), "tiny")
    config.data.files = table
    with pytest.raises(ConfigError, match=r"are labelled pairs; for sentences give the table"):
        run(config, tmp_path)
    config = Config(method=SBERT(), data=Data(files=table), sweep="data.fold=all data.scheme=10-fold,cross-topic")
    with pytest.raises(ConfigError, match=r"data\.fold=all cannot be combined with a sweep of data\.scheme"):
        variants(config)


@pytest.mark.parametrize("name", ["arguments_sbert", "arguments_cross_encoder"])
def test_a_config_is_a_run_for_each_fold_and_selects_nothing_on_the_tested_part(table, name):
    config = read_config(str(CONFIGS / f"{name}.py"))
    config.data.files = table
    assert [one.data.fold for _, one in variants(config)] == list(range(10))
    config.data.scheme = "cross-topic"
    assert [one.data.fold for _, one in variants(config)] == [0, 1, 2]
    assert (config.eval.select, config.eval.eval_steps) == ("last", 0)


def test_runs_of_all_topics_are_one_row_with_pearson_and_spearman(table, tmp_path, capsys):
    config = sized(Config(method=SBERT()), "tiny")
    config.data = Data(files=table, scheme="cross-topic", vocab_size=200, max_seq_length=16, batch_size=8)
    config.eval = Evaluation(eval_steps=0, select="last", diagnostic_sentences=20, report_sentences=0)
    config.train.max_steps, config.train.save_steps, config.sweep = 1, 0, "data.fold=0,1"
    assert run(config, tmp_path) == 0
    assert "warning: " in (warned := capsys.readouterr().err)
    assert "75 pairs on 3 topics instead of the published 3,595 on 28: scores are not comparable" in warned
    scores = [json.loads((tmp_path / f"data.fold={fold}" / "scores.json").read_text()) for fold in (0, 1)]
    assert [found["scores"]["arguments"]["n"] for found in scores] == [40, 33]
    for found in scores:
        result = found["scores"]["arguments"]
        assert headline(found) == {f"arguments {kind}": result[kind]["mean"] for kind in ("pearson", "spearman")}
    columns, ((label, runs, cells),) = summary(json.loads((tmp_path / "sweep.json").read_text()))
    assert (columns, label, runs) == (["arguments pearson", "arguments spearman"], "all", "2")
    means = [np.mean([found["scores"]["arguments"][kind]["mean"] for found in scores]) for kind in ("pearson", "spearman")]
    assert [float(cell.split(" ± ")[0]) for cell in cells] == pytest.approx(means, abs=0.005)
    trained = (tmp_path / "data.fold=0" / "pairs.tsv").read_text().splitlines()
    assert len(trained) == 1 + 33 + 2


def test_the_real_corpus(shared):
    path = shared / "data" / "afs" / "UKP_ASPECT.tsv"
    if not path.is_file():
        pytest.skip("no UKP ASPECT")
    data = Data(files=f"arguments:{path}")
    train, test, *_ = split(data)
    count = sum(len(pairs.gold) for pairs in test.subsets.values())
    assert 340 < count <= 3595 - len(train) < 380
    data.scheme = "cross-topic"
    assert fold_count(data) == 28
