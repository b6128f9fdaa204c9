"""One command for many runs: what varies, where runs go, and the table with means and spreads."""

import json

import pytest

from jax_sentemb.config import Config, Data, Train
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.vary import headline, parse, run_all, table, variants


def config(vary):
    return Config(method=SimCSE(), data=Data(files="corpus.txt"), train=Train(seed=7), vary=vary)


def test_values_are_listed_counted_or_separated_by_bars():
    assert parse("train.seed=1..3 a.b=x,y") == {"train.seed": ["1", "2", "3"], "a.b": ["x", "y"]}
    assert parse("data.files=a.txt,b.txt|c.txt") == {"data.files": ["a.txt,b.txt", "c.txt"]}


def test_every_combination_is_a_config_of_its_own_with_values_of_the_right_type():
    found = variants(config("train.seed=1,2 optimizer.learning_rate=1e-3,1e-4 method.head=False"))
    assert [(one.train.seed, one.optimizer.learning_rate, one.method.head) for _, one in found] == [
        (1, 1e-3, False), (1, 1e-4, False), (2, 1e-3, False), (2, 1e-4, False),
    ]  # fmt: skip
    assert all(one.vary == "" for _, one in found)
    assert found[0][0] == {"train.seed": "1", "optimizer.learning_rate": "1e-3", "method.head": "False"}


@pytest.mark.parametrize(
    ("vary", "says"),
    [
        ("train.seed", "write SETTING=VALUE"),
        ("train.seed=", "write SETTING=VALUE"),
        ("train.seed=,", "has no value"),
        ("train.seed=5..1", "has no value"),
        ("train.sed=1", "train.sed is unknown"),
        ("trein.seed=1", "trein.seed is unknown"),
        ("train.seed=a", "is not a whole number"),
        ("optimizer.learning_rate=fast", "is not a number"),
        ("method.head=maybe", "is not True or False"),
        ("method.ami=1", "is no number, text or switch"),
        ("train.seed=1..1000000000000", "more than 1,000 runs"),
        ("train.seed=1..40 data.subset_seed=1..26", "more than 1,000 runs"),
        ("train.seed=1,-2", "train.seed=-2 must be at least 0"),
    ],
)
def test_a_mistake_is_one_line_before_any_run(tmp_path, vary, says):
    def run(one, folder):
        raise AssertionError("nothing may run")

    with pytest.raises(ConfigError, match=says) as caught:
        run_all(config(vary), tmp_path / "work", run)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "work").exists()


def scores(value, transfer=None):
    return {"scores": {"STS12": {"spearman": {"all": value}}}, "transfer": transfer or {}}


def test_runs_get_folders_and_one_that_fails_does_not_keep_the_others(tmp_path, capsys):
    def run(one, folder):
        if one.data.files == "b.txt":
            raise DataError("b.txt: no such file")
        folder.mkdir(parents=True)
        (folder / "scores.json").write_text(json.dumps(scores(10.0 * one.train.seed)))
        return 0

    code = run_all(config("data.files=a.txt,b.txt,../c.txt train.seed=1,2,3"), tmp_path, run)
    assert code == DataError.exit_code
    assert (tmp_path / "data.files=a.txt,train.seed=2" / "scores.json").exists()
    assert all(path.parent == tmp_path for path in tmp_path.iterdir())  # a path in a value makes no folders elsewhere
    text = (tmp_path / "vary.md").read_text()
    assert "| data.files=a.txt | 3 | 20.00 ± 10.00 |" in text  # the sample standard deviation of 10, 20, 30
    assert "| data.files=b.txt | 0 (3 failed) |  |" in text
    assert text.strip() in capsys.readouterr().out
    rows = json.loads((tmp_path / "vary.json").read_text())
    assert [row.get("error", "") for row in rows].count("b.txt: no such file") == 3


def test_a_run_that_a_signal_stopped_ends_the_loop(tmp_path):
    started = []

    def run(one, folder):
        started.append(one.train.seed)
        return 75

    assert run_all(config("train.seed=1,2"), tmp_path, run) == 75
    assert started == [1]


def test_the_table_has_a_row_for_what_differs_beside_the_seed_and_all_scores():
    rows = [
        {"settings": {"train.seed": "1"}, "scores": {"STS12": 1.0, "MR": 50.0}},
        {"settings": {"train.seed": "2"}, "scores": {"STS12": 3.0}},
    ]
    assert table(rows).splitlines()[0] == "| settings | runs | STS12 | MR |"
    assert table(rows).splitlines()[2] == "| all | 2 | 2.00 ± 1.41 | 50.00 |"


def test_scores_of_other_tasks_are_in_the_table():
    found = headline(scores(5.0, {"MRPC": {"headline": {"MRPC": 70.0, "MRPC F1": 80.0}}}))
    assert found == {"STS12": 5.0, "MRPC": 70.0, "MRPC F1": 80.0}


def test_a_setting_of_an_optional_part_can_vary():
    many = Config(method=SBERT(), data=Data(files="x.tsv"), vary="method.task=scores,classes")
    assert [one.method.task for _, one in variants(many)] == ["scores", "classes"]
