"""One command for many runs: what varies, where runs go, and the table with means and spreads."""

import csv
import json
import math
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jax_sentemb.cli.program import program
from jax_sentemb.config import Config, Data, Evaluation, Train, Variant, check
from jax_sentemb.data import synthetic
from jax_sentemb.errors import BusyError, ConfigError, DataError, ModelFileError
from jax_sentemb.main import main
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.distillation import Distillation
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.recipes import override, read_config
from jax_sentemb.reporting import plot_data
from jax_sentemb.reporting.html_report import write_report
from jax_sentemb.reporting.sweep_table import SEVEN, headline, table
from jax_sentemb.training import run as run_module
from jax_sentemb.training import sweep_sources
from jax_sentemb.training.sweep import parse, run_all, variants


def config(sweep):
    return Config(method=SimCSE(), data=Data(files="corpus.txt"), train=Train(seed=7), sweep=sweep)


def test_values_are_listed_counted_or_separated_by_bars():
    assert parse("train.seed=1..3 a.b=x,y") == {"train.seed": ["1", "2", "3"], "a.b": ["x", "y"]}
    assert parse("data.files=a.txt,b.txt|c.txt") == {"data.files": ["a.txt,b.txt", "c.txt"]}


def test_every_combination_is_a_config_of_its_own_with_values_of_the_right_type():
    found = variants(config("train.seed=1,2 optimizer.learning_rate=1e-3,1e-4 method.head=False"))
    assert [(one.train.seed, one.optimizer.learning_rate, one.method.head) for _, one in found] == [
        (1, 1e-3, False), (1, 1e-4, False), (2, 1e-3, False), (2, 1e-4, False),
    ]  # fmt: skip
    assert all(one.sweep == "" for _, one in found)
    assert found[0][0] == {"train.seed": "1", "optimizer.learning_rate": "1e-3", "method.head": "False"}


@pytest.mark.parametrize(
    ("sweep", "says"),
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
        ("method.ami=1", "is not True or None: set one of its settings"),
        ("train.seed=1..1000000000000", "more than 1,000 runs"),
        ("train.seed=1..40 data.subset_seed=1..26", "more than 1,000 runs"),
        ("train.seed=1,-2", "train.seed=-2 must be at least 0"),
        ("train.seed=1,2,1", "train.seed=1 and train.seed=1 are the same run; give each value once"),
        ("train.seed=1,01", "train.seed=1 and train.seed=01 are the same run"),
    ],
)
def test_a_mistake_is_one_line_before_any_run(tmp_path, sweep, says):
    def run(one, folder):
        raise AssertionError("nothing may run")

    with pytest.raises(ConfigError, match=says) as caught:
        run_all(config(sweep), tmp_path / "work", run)
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
    text = (tmp_path / "sweep.md").read_text()
    assert "| data.files=a.txt | 3 | 20.00 ± 10.00 |" in text  # the sample standard deviation of 10, 20, 30
    assert "| data.files=b.txt | 0 (3 failed) |  |" in text
    output = capsys.readouterr()
    assert [line for line in output.err.splitlines() if line.startswith("error: ")] == [
        f"error: data.files=b.txt,train.seed={seed}: b.txt: no such file" for seed in (1, 2, 3)
    ]
    assert "error" not in output.out
    printed = [" ".join(line.split()) for line in output.out.splitlines()]
    assert "data.files=a.txt 3 20.00 ± 10.00" in printed
    assert "data.files=b.txt 0 (3 failed)" in printed
    rows = json.loads((tmp_path / "sweep.json").read_text())
    assert [row.get("error", "") for row in rows].count("b.txt: no such file") == 3


@pytest.mark.parametrize(
    ("error", "failing"), [(ConfigError("data.batch_size=0"), 1), (OSError(28, "No space left on device", "run.json"), 2)]
)
def test_an_error_that_ends_a_sweep_names_the_run(tmp_path, capsys, error, failing):
    def run(one, folder):
        if one.train.seed == failing:
            raise error
        folder.mkdir(parents=True)
        (folder / "scores.json").write_text(json.dumps(scores(1.0)))
        return 0

    with pytest.raises(type(error)) as raised:
        run_all(config("train.seed=1,2,3"), tmp_path, run)
    assert f"train.seed={failing}" in f"{raised.value}{capsys.readouterr().err}"


def test_a_value_that_does_not_fit_leaves_the_runs_after_it(tmp_path, capsys):
    def run(one, folder):
        if one.train.seed == 2:
            raise ConfigError("at most 32")
        folder.mkdir(parents=True)
        (folder / "scores.json").write_text(json.dumps(scores(1.0)))
        return 0

    assert run_all(config("train.seed=1,2,3"), tmp_path, run) == ConfigError.exit_code
    assert "error: train.seed=2: at most 32" in capsys.readouterr().err
    assert "| all | 2 (1 failed) | 1.00 ± 0.00 |" in (tmp_path / "sweep.md").read_text()


def test_a_finished_sweep_that_is_repeated_with_another_setting_keeps_its_tables(tmp_path, capsys):
    def run(one, folder):
        folder.mkdir(parents=True)
        (folder / "scores.json").write_text(json.dumps(scores(1.0)))
        return 0

    def refused(one, folder):
        raise ModelFileError("checkpoint 4 was made with learning_rate=0.001")

    assert run_all(config("train.seed=1,2"), tmp_path, run) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("sweep.*")}
    changed = config("train.seed=1,2")
    changed.optimizer.learning_rate = 0.5
    with pytest.raises(ModelFileError, match=r"train\.seed=1: checkpoint 4 was made with"):
        run_all(changed, tmp_path, refused)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("sweep.*")} == before
    assert "already done, but it was made with other settings\n" in capsys.readouterr().out


def test_a_table_without_scores_has_two_columns():
    assert table([{"settings": {"train.seed": "1"}}]).splitlines()[:2] == ["| settings | runs |", "|---|--:|"]


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
    own = {"scores": {}, "dev": {"accuracy@1": 28.0}, "diagnostics": {"retrieval": 6.0, "uniformity": -1.0}}
    assert headline(own) == {"dev accuracy@1": 28.0}
    taught = own | {"dev": {}, "teacher": {"agreement": {"neighbours": 40.0}}}
    assert headline(taught) == {"agreement neighbours": 40.0}


def test_a_setting_of_an_optional_part_can_vary():
    many = Config(method=SBERT(), data=Data(files="x.tsv"), sweep="method.task=scores,classes")
    assert [one.method.task for _, one in variants(many)] == ["scores", "classes"]


# Studies: several methods, sizes and seeds

VALUES = {("A", "0.1", "1"): 10.0, ("B", "0.1", "1"): 13.0, ("A", "0.1", "2"): 20.0, ("B", "0.1", "2"): 21.0,
          ("A", "0", "1"): 30.0, ("B", "0", "1"): 30.5, ("A", "0", "2"): 40.0, ("B", "0", "2"): 44.5}  # fmt: skip


def study(runs="data.subset_seed,train.seed=1,2 data.subset=0,0.1"):
    config = Config(method=SimCSE(), data=Data(files="corpus.txt"), sweep=runs)
    config.variants = {
        "A": Variant(SimCSE()),
        "B": Variant(
            SimCSE(ami=AttentionMI(weight=0.5)), {"optimizer.learning_rate": 1e-4}, {0.1: {"method.ami.weight": 0.25}}, baseline="A"
        ),
    }
    return config


def finish(folder, value, sentences, sets=("STS12", "STS14")):
    """The files of a finished run whose sets score value - 1, value + 1, ...: their mean is `value` of two."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: {"spearman": {"all": value - 1 + 2 * place}} for place, name in enumerate(sets)}
    (folder / "scores.json").write_text(json.dumps({"scores": found, "step": 5}))
    (folder / "run.json").write_text(json.dumps({"corpus": {"sentences": sentences}}))


class Runs:
    """Stands for run.run: remembers what it was given; stops or fails where told to."""

    def __init__(self, stops=(), fails=()):
        self.given, self.stops, self.fails = [], stops, fails

    def __call__(self, one, folder):
        method = "A" if one.method.ami is None else "B"
        key = method, f"{one.data.subset:g}", str(one.train.seed)
        self.given.append(key)
        if key in self.stops:
            return 75
        if key in self.fails:
            raise DataError("corpus.txt: too few sentences")
        finish(folder, VALUES[key], 1000 if one.data.subset else 10000)
        return 0


def test_variants_are_paired_in_seeds_and_take_the_settings_of_their_size():
    found = variants(study())
    assert [(chosen["variant"], one.data.subset, one.data.subset_seed, one.train.seed) for chosen, one in found] == [
        ("A", 0.0, 1, 1), ("B", 0.0, 1, 1), ("A", 0.1, 1, 1), ("B", 0.1, 1, 1),
        ("A", 0.0, 2, 2), ("B", 0.0, 2, 2), ("A", 0.1, 2, 2), ("B", 0.1, 2, 2),
    ]  # fmt: skip
    weights = {(one.data.subset, one.method.ami.weight) for chosen, one in found if chosen["variant"] == "B"}
    assert weights == {(0.0, 0.5), (0.1, 0.25)}
    rates = {(chosen["variant"], one.optimizer.learning_rate) for chosen, one in found}
    assert rates == {("A", 3e-5), ("B", 1e-4)}
    assert all(not one.variants and not one.sweep for _, one in found)


def test_what_vary_says_comes_before_the_settings_of_a_variant():
    found = variants(study("variant=B data.subset=0.1 method.ami.weight=1,2 optimizer.learning_rate=1e-3"))
    assert [(one.method.ami.weight, one.optimizer.learning_rate) for _, one in found] == [(1.0, 1e-3), (2.0, 1e-3)]


@pytest.mark.parametrize(
    ("sweep", "says"),
    [
        ("variant=C", "variant C: unknown; the variants of this config are A, B"),
        ("method.ami.weight=1", "variant A: sweep: method.ami.weight cannot be set: method.ami is None"),
        ("train.seed,data.subset_seed=1 train.seed=2", "train.seed is given twice"),
        ("train.seed=1..600", "more than 1,000 runs"),
    ],
)
def test_a_mistake_in_a_study_is_one_line_before_any_run(tmp_path, sweep, says):
    with pytest.raises(ConfigError, match=says):
        run_all(study(sweep), tmp_path, Runs())
    assert not list(tmp_path.iterdir())


def test_a_study_that_does_not_fit_together_is_refused():
    config = study()
    config.variants["B"].baseline = "C"
    with pytest.raises(ConfigError, match="B has the baseline C, which is not a variant"):
        check(config)
    config = study()
    config.method.temperature = 0.5  # as --config.method.temperature=0.5 does: no run would have it
    with pytest.raises(ConfigError, match="belong to its variants"):
        check(config)
    config = study()
    config.variants["A B"] = Variant(SimCSE())
    with pytest.raises(ConfigError, match="'A B' has a space"):
        check(config)
    config = study()
    config.variants["A"] = SimCSE()
    with pytest.raises(ConfigError, match="is dict, not"):
        check(config)


def test_a_stopped_study_goes_on_with_the_unfinished_run_and_its_tables_equal_a_straight_one(tmp_path, capsys):
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    assert run_all(study(), straight, Runs()) == 0
    first = Runs(stops=[("B", "0.1", "1")])
    assert run_all(study(), halted, first) == 75
    assert first.given[-1] == ("B", "0.1", "1")
    second = Runs()
    assert run_all(study(), halted, second) == 0
    assert second.given == [("B", "0.1", "1"), ("A", "0", "2"), ("B", "0", "2"), ("A", "0.1", "2"), ("B", "0.1", "2")]
    for name in ("sweep.json", "sweep.md", "sweep.csv", "low_shot.md"):
        assert (halted / name).read_bytes() == (straight / name).read_bytes(), name
    capsys.readouterr()
    third = Runs()
    assert run_all(study(), halted, third) == 0
    assert third.given == []
    assert capsys.readouterr().out.count("already done") == 8
    changed = study()
    changed.optimizer.adam_beta1 = 0.8  # of both methods: nothing that was done counts
    run_all(changed, halted, third)
    assert len(third.given) == 8


def test_a_study_may_be_run_in_parts(tmp_path):
    whole, part = study(), study()
    for subset in ("0", "0.1"):
        part.sweep = f"data.subset_seed,train.seed=1,2 data.subset={subset}"
        assert run_all(part, tmp_path, Runs()) == 0
    with (tmp_path / "sweep.csv").open() as file:
        assert {row["data.subset"] for row in csv.DictReader(file)} == {"0.1"}
    assert len(json.loads((tmp_path / "sweep.json").read_text())) == 8
    again = Runs()
    assert run_all(whole, tmp_path, again) == 0
    assert again.given == []
    deleted, *_ = json.loads((tmp_path / "sweep.json").read_text())
    (tmp_path / deleted["folder"] / "scores.json").unlink()
    part.train.seed, part.sweep = 1, "data.subset_seed=3 data.subset=0 variant=A"
    assert run_all(part, tmp_path, again) == 0
    left = [row["folder"] for row in json.loads((tmp_path / "sweep.json").read_text())]
    assert len(left) == 8  # seven of before and this one
    assert deleted["folder"] not in left


def test_two_runs_do_not_share_a_folder(tmp_path):
    config = study()
    config.sweep = "data.files=a/b.txt|a_b.txt"
    with pytest.raises(ConfigError, match=r"data\.files=a/b\.txt,.* would share the folder data\.files=a_b\.txt"):
        run_all(config, tmp_path, Runs())
    assert not any(tmp_path.iterdir())


def test_the_smallest_subsets_are_checked_before_the_first_run(tmp_path):
    config, checked = study("data.subset_seed,train.seed=1,2 data.subset=0,0.5,0.1,1000,300"), []
    config.variants["B"].by_subset[0.5] = {"data.batch_size": 8}

    def check_data(one, folder):
        assert (one.train.seed, folder.parent) == (1, tmp_path)
        checked.append((one.method.ami is not None, one.data.subset, one.data.batch_size))
        if one.data.subset == 300:
            raise DataError("too few")

    runs = Runs()
    with pytest.raises(DataError, match=r"data\.subset=300,variant=A: too few$"):
        run_all(config, tmp_path, runs, check_data)
    assert runs.given == []
    assert checked == [(False, 0.1, 64), (True, 0.5, 8), (True, 0.1, 64), (False, 300, 64)]
    checked.clear()
    config.sweep = "train.seed=1,2 data.subset=0.1"
    run_all(config, tmp_path, runs, check_data)
    assert len(checked) == 2
    run_all(config, tmp_path, runs, check_data)  # a study that has begun
    assert len(checked) == 2
    config.sweep = "train.seed=1,2 data.subset=0"
    run_all(config, tmp_path, runs, check_data)
    assert checked[2:] == [(False, 0, 64), (True, 0, 64)]  # on all sentences, too: a variant may need other data


def test_a_study_of_too_small_a_corpus_ends_before_its_first_run(tmp_path, capsys):
    text = "".join(f"{word} {number} stands here\n" for number in range(40) for word in ("red", "green", "blue"))
    (tmp_path / "corpus.txt").write_text(text)
    config = Path(__file__).parents[1] / "configs" / "micse_low_shot.py"
    line = [f"--config={config}:tiny", f"--workdir={tmp_path / 'study'}", f"--config.data.files={tmp_path / 'corpus.txt'}"]
    assert program(main, ["main", *line, "--config.sweep=data.subset=0,0.05"]) == DataError.exit_code
    said = capsys.readouterr()
    assert "error: data.subset=0.05,variant=SimCSE: the corpus has 6 usable examples" in said.err
    assert "fewer than --config.data.batch_size=8: lower it, or add text" in said.err
    assert not list((tmp_path / "study").rglob("scores.json"))


def test_the_baseline_of_a_finished_run_is_that_of_this_command(tmp_path):
    config = study()
    run_all(config, tmp_path, Runs())
    config.variants["C"], config.variants["B"].baseline = Variant(SimCSE(pooling="mean")), "C"
    config.sweep = "data.subset_seed,train.seed=1,2 data.subset=0,0.1 variant=A,B"
    run_all(config, tmp_path, again := Runs())
    assert again.given == []
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert {row["baseline"] for row in found if row["settings"]["variant"] == "B"} == {"C"}


def test_a_run_that_failed_is_tried_again_and_those_behind_it_are_kept(tmp_path):
    failing = Runs(fails=[("B", "0", "1")])
    assert run_all(study(), tmp_path, failing) == DataError.exit_code
    assert "1 runs failed" in (tmp_path / "low_shot.md").read_text()
    again = Runs(stops=[])
    assert run_all(study(), tmp_path, again) == 0
    assert again.given == [("B", "0", "1")]
    assert len(json.loads((tmp_path / "sweep.json").read_text())) == 8


def test_the_tables_of_an_earlier_sweep_do_not_stay(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    run_all(study(), tmp_path, Runs())
    assert "low_shot_differences.png" in capsys.readouterr().out
    run_all(study("train.seed=1 data.subset_seed=1"), tmp_path, Runs())
    assert not sorted(tmp_path.glob("low_shot*"))
    assert "low_shot" not in capsys.readouterr().out


def test_two_sweeps_do_not_run_in_one_folder_at_once(tmp_path, monkeypatch):
    def second(one, folder, **_):
        with pytest.raises(BusyError, match="is in use by process"):
            run_module.run(study(), tmp_path)
        return 75

    monkeypatch.setattr(run_module, "_check_data", lambda *_: None)
    monkeypatch.setattr(run_module, "_run_one", second)
    assert run_module.run(study(), tmp_path) == 75


def test_the_low_shot_tables_equal_numpy(tmp_path):
    pytest.importorskip("matplotlib")
    run_all(study(), tmp_path, Runs())
    lines = (tmp_path / "low_shot.md").read_text().splitlines()

    def expected(method, subset):
        values = np.array([VALUES[method, subset, seed] for seed in "12"])
        return f"{values.mean():.2f} ± {math.sqrt(((values - values.mean()) ** 2).sum() / (len(values) - 1)):.2f} (2)"

    assert "| method | 10 % (1,000) | 100 % (10,000) |" in lines
    for method in "AB":
        assert f"| {method} | {expected(method, '0.1')} | {expected(method, '0')} |" in lines
    # The differences are 3 and 1, and 0.5 and 4.5; 12.7062 is the 97.5 % point of Student's t with one degree of freedom.
    intervals = [
        f"{mean:+.2f} [{mean - 12.7062 * half:+.2f}, {mean + 12.7062 * half:+.2f}] (2)" for mean, half in ((2, 1), (2.5, 2))
    ]
    assert f"| B - A | {intervals[0]} | {intervals[1]} |" in lines
    assert any(line.startswith("average: mean of STS12, STS14; missing: STS13, STS15, STS16, STSB") for line in lines)
    with (tmp_path / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["average"]) for row in rows if row["method"] == "B"] == [30.5, 13, 44.5, 21]
    assert {(row["sentences"], row["data.subset"]) for row in rows} == {("1000", "0.1"), ("10000", "0")}
    assert plot_data.read_low_shot(tmp_path / "sweep.csv")["A"] == [
        (1000, 15, pytest.approx(50**0.5)),
        (10000, 35, pytest.approx(50**0.5)),
    ]
    with (tmp_path / "low_shot_differences.csv").open() as file:
        drawn = {
            (row["panel"], row["method"], row["sentences"]): (row["mean"], row["standard_deviation"])
            for row in csv.DictReader(file)
        }
    assert drawn["difference", "B", "1000.0"] == ("2.0", str(2**0.5))
    assert len(drawn) == 6
    assert (tmp_path / "low_shot.png").is_file()


def test_pairs_are_counted_for_the_low_shot_tables(tmp_path):
    def run(one, folder):
        finish(folder, 10.0, 0)
        (folder / "run.json").write_text(json.dumps({"corpus": {"pairs": 20}}))
        return 0

    assert run_all(config("data.subset=20"), tmp_path, run) == 0
    assert [row["sentences"] for row in json.loads((tmp_path / "sweep.json").read_text())] == [20]
    assert (tmp_path / "low_shot.md").exists()


def test_the_average_is_over_the_sets_that_every_run_has():
    rows = [
        {"settings": {"train.seed": "1"}, "scores": {"STS12": 10.0, "STS13": 20.0, "STS14": 90.0, "STSBenchmark-dev": 99.0}},
        {"settings": {"data.subset_seed": "2"}, "scores": {"STS12": 30.0, "STS13": 50.0}},
    ]
    text = table(rows)
    assert text.splitlines()[0].endswith("| average |")
    assert "| all | 2 |" in text
    assert text.splitlines()[2].endswith(f"| {27.5:.2f} ± {12.5 * 2**0.5:.2f} |")
    assert text.splitlines()[-1].startswith("average: mean of STS12, STS13; missing: STS14")
    seven = [{"settings": {}, "scores": dict.fromkeys(SEVEN, 1.0)}]
    assert table(seven).splitlines()[-1] == f"average: mean of the seven sets {', '.join(SEVEN)}"
    assert len(SEVEN) == 7


def test_the_recipe_has_the_settings_of_the_methods_own_recipes():
    folder = Path(__file__).parents[1] / "configs"
    config = read_config(str(folder / "micse_low_shot.py"))
    config.data.files = "corpus.txt"
    everything = variants(config)
    seeds = {(chosen["train.seed"], chosen["data.subset_seed"]) for chosen, _ in everything}
    assert seeds == {(str(seed), str(seed)) for seed in range(5)}
    runs = {(chosen["variant"], chosen["data.subset"]): one for chosen, one in everything if chosen["train.seed"] == "0"}
    assert len(everything) == 5 * len(runs) == 5 * 15 * 5
    pairs = {"CT": "ct", "AMI+CT": "ct_ami", "Mirror-BERT": "mirror_bert", "AMI+Mirror-BERT": "mirror_bert_ami"}
    pairs |= {"miCSE": "micse", "MoCo+SimCSE": "simcse_moco", "AMI+SimCSE": "simcse_ami"}
    for variant, name in pairs.items():
        own, one = read_config(str(folder / f"{name}.py")), runs[variant, "0"]
        assert (one.method, one.optimizer) == (own.method, own.optimizer), variant
        assert (one.data.batch_size, one.data.max_seq_length) == (own.data.batch_size, own.data.max_seq_length)
    weights = [runs["miCSE", subset].method.ami.weight for subset in ("0", "0.1", "0.01", "0.001", "0.0001")]
    assert weights == [2.5e-3, 5e-4, 1e-4, 1e-3, 1e-3]
    for name, variant in config.variants.items():  # a difference is that of one change
        for subset in ("0", "0.1", "0.01", "0.001", "0.0001") if variant.baseline else ():
            one, other = runs[name, subset], runs[variant.baseline, subset]
            assert (one.data, one.optimizer, one.train) == (other.data, other.optimizer, other.train), (name, subset)
            if name.startswith("AMI+"):
                assert replace(one.method, ami=None) == other.method, name
    assert {name: variant.baseline for name, variant in config.variants.items() if "+" not in name and variant.baseline} == {
        "miCSE": "SimCSE", "miCSE-without-negatives": "SimCSE-without-negatives", "CT-dropout": "CT",
        "Mirror-BERT-no-spans": "Mirror-BERT", "Mirror-BERT-mean-no-spans": "Mirror-BERT-mean",
    }  # fmt: skip
    assert {runs[name, "0"].method.pooling for name in config.variants if "mean" in name} == {"mean"}
    config.sweep = "data.subset=100000,10000,1000,100,500 variant=miCSE,Mirror-BERT"
    counted = {(chosen["variant"], chosen["data.subset"]): one for chosen, one in variants(config)}
    weights = [counted["miCSE", subset].method.ami.weight for subset in ("100000", "10000", "1000", "100", "500")]
    assert weights == [5e-4, 1e-4, 1e-3, 1e-3, 2.5e-3]
    assert [counted["Mirror-BERT", subset].data.batch_size for subset in ("1000", "100")] == [200, 100]
    steps = {variant: {runs[variant, subset].train.max_steps for _, subset in runs} for variant in ("SimCSE", "CT", "Mirror-BERT")}
    own = {name: read_config(str(folder / f"{name}.py")).train.max_steps for name in ("ct", "mirror_bert")}
    assert own == {"ct": 5000, "mirror_bert": -1}  # an epoch, of the 10,000 sentences that it is made for
    assert steps == {"SimCSE": {20_000}, "CT": {own["ct"]}, "Mirror-BERT": {10_000 // runs["Mirror-BERT", "0"].data.batch_size}}


def test_the_protocol_runs_from_the_command_and_continues(tmp_path, capsys):
    pairs = zip(*(side[:40] for side in synthetic.graded_pairs(40, 0)), strict=True)
    rows = "".join(f"{first}\t{second}\t{score}\n" for first, second, score in pairs)
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + rows, encoding="utf-8")
    config = Path(__file__).parents[1] / "configs" / "micse_low_shot.py"
    settings = {
        "data.files": "grammar:200", "eval.data": "", "eval.dev": tmp_path / "pairs.tsv", "eval.report_sentences": 0,
        "sweep": "data.subset_seed,train.seed=0 data.subset=100 variant=SimCSE,miCSE",
    }  # fmt: skip
    line = [f"--config={config}:tiny", f"--workdir={tmp_path / 'study'}"]
    line += [f"--config.{name}={value}" for name, value in settings.items()]
    assert program(main, ["main", *line]) == 0
    with (tmp_path / "study" / "sweep.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["variant"] for row in table] == ["SimCSE", "miCSE"]
    recorded = [json.loads(path.read_text()) for path in sorted((tmp_path / "study").glob("*/config.json"))]
    assert [one.get("method.ami.weight") for one in recorded] == [None, 1e-3]  # that of 0.01 %
    capsys.readouterr()
    assert program(main, ["main", *line]) == 0
    assert capsys.readouterr().out.count("already done") == 2


@pytest.mark.parametrize("study", ["simcse_family", "micse_low_shot", "length_grouping"])
def test_every_stage_of_a_study_is_a_valid_config(study):
    path = Path(__file__).parents[1] / "experiments" / study / "study.py"
    stages = re.findall(r"study\.py:(\w+)", (path.parent / "README.md").read_text(encoding="utf-8"))
    assert stages
    for stage in {*stages, *runpy.run_path(str(path)).get("STAGES", ())}:
        config = read_config(f"{path}:{stage}")
        config.data.files, config.encoder.weights = "corpus.txt", "bert"
        check(config)
        assert len(variants(config)) > 1


def test_rows_of_another_corpus_start_or_evaluation_set_are_not_used_again(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "dev.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\n")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text("{}")
    (tmp_path / "eval" / "downstream" / "STS" / "STS12-en-test").mkdir(parents=True)
    scored = tmp_path / "eval" / "downstream" / "STS" / "STS12-en-test" / "STS.gs.MSRpar.txt"
    scored.write_text("1\n")
    given = study("data.subset_seed,train.seed=1 data.subset=0")
    given.data.files, given.encoder.weights = str(tmp_path / "a.txt"), str(tmp_path / "bert")
    given.eval.dev, given.eval.data = str(tmp_path / "dev.tsv"), str(tmp_path / "eval")

    def started():
        runs = Runs()
        assert run_all(given, tmp_path / "work", runs) == 0
        return len(runs.given)

    assert started() == 2
    assert started() == 0
    capsys.readouterr()
    for file, name in (
        (tmp_path / "a.txt", "data.files a.txt"),
        (tmp_path / "bert" / "config.json", "encoder.weights bert"),
        (tmp_path / "dev.tsv", "eval.dev dev.tsv"),
        (scored, "eval.data eval"),
    ):
        file.write_text(file.read_text().replace("1", "2").replace("one", "six").replace("{}", "[]"))
        assert started() == 2
        assert f"variant=A: already done, but it was made from {name} (SHA-256" in capsys.readouterr().out
        assert started() == 0
    (tmp_path / "eval" / "notes.txt").write_text("not scored")
    assert started() == 0
    provenance_of = json.loads((tmp_path / "work" / "sweep.json").read_text())[0]["provenance"]
    assert str(tmp_path) not in json.dumps(provenance_of)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("method.teacher", "bert@cls"),
        ("method.teacher", "words:16,bert@mean"),
        ("eval.teacher", "bert@first_last"),
        ("eval.dev", "one.tsv,two.tsv"),
        ("eval.dev", "t*.tsv"),
        ("data.files", "senteval:TREC"),
    ],
)
def test_each_file_of_a_setting_is_compared(tmp_path, monkeypatch, setting, value):
    monkeypatch.chdir(tmp_path)
    for file in ("bert/config.json", "one.tsv", "two.tsv", "data/downstream/TREC/train_5500.label"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("old")
    config = Config(method=Distillation(), eval=Evaluation(data="data"))
    override(config, setting, value)
    before = {sweep_sources.KEY: sweep_sources.row_mark(config)}
    assert not sweep_sources.changed_since(before, sweep_sources.row_mark(config))
    for file in Path().rglob("*"):
        if file.is_file() and file.name != "one.tsv":
            file.write_text("new")
    assert sweep_sources.changed_since(before, sweep_sources.row_mark(config))


def test_a_set_of_eval_data_is_no_file(tmp_path):
    assert sweep_sources.content_digest("eval.dev", "STSBenchmark-dev", "") is None
    with pytest.raises(ConfigError):
        list(sweep_sources._digests("eval.dev", str(tmp_path / "absent.tsv")))


def test_rows_of_other_sweeps_are_left_out_when_their_corpus_was_replaced(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    first, second = (study(f"data.subset_seed,train.seed={seed} data.subset=0") for seed in (1, 2))
    first.data.files = second.data.files = str(tmp_path / "a.txt")
    assert run_all(first, tmp_path / "work", Runs()) == 0
    assert run_all(second, tmp_path / "work", Runs()) == 0
    assert len(json.loads((tmp_path / "work" / "sweep.json").read_text())) == 4
    (tmp_path / "a.txt").write_text("one\nsix\n")
    capsys.readouterr()
    assert run_all(second, tmp_path / "work", Runs()) == 0
    assert "was made before data.files was replaced: it is left out" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "work" / "sweep.json").read_text())) == 2


def test_runs_of_other_settings_are_not_averaged_with_those_of_the_sweep(tmp_path, capsys):
    first, second = (study(f"data.subset_seed,train.seed={seed} data.subset=0") for seed in (1, 2))
    second.train.max_steps += 1
    for sweep, count in ((first, 2), (second, 2), (first, 2)):
        assert run_all(sweep, tmp_path, Runs()) == 0
        assert len(json.loads((tmp_path / "sweep.json").read_text())) == count
    assert "was made with other settings than the runs of this sweep: it is left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "problem"), [({"format": 3}, "has format 3, this version"), (None, "does not record its sources")]
)
def test_rows_of_another_format_are_refused_and_kept(tmp_path, change, problem):
    assert run_all(study(), tmp_path, Runs()) == 0
    rows = json.loads((tmp_path / "sweep.json").read_text())
    rows[0]["provenance"] = change and {**rows[0]["provenance"], **change}
    (tmp_path / "sweep.json").write_text(json.dumps(rows))
    for use in (lambda: run_all(study(), tmp_path, Runs()), lambda: write_report(tmp_path)):
        with pytest.raises(ModelFileError, match=problem):
            use()
    assert json.loads((tmp_path / "sweep.json").read_text()) == rows


def test_rows_of_another_format_of_what_a_run_reads_are_not_used_again(tmp_path, monkeypatch):
    assert run_all(study(), tmp_path, Runs()) == 0
    monkeypatch.setitem(sweep_sources.FORMATS, "tokens", 0)
    again = Runs()
    assert run_all(study(), tmp_path, again) == 0
    assert len(again.given) == 8
