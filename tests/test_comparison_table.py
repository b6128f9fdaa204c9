"""The table of `jax-sentemb compare`."""

from jax_sentemb.evaluation.catalog import SEVEN
from jax_sentemb.reporting.comparison_table import START, WORDS, Entry, as_markdown, as_text, difference, layout
from jax_sentemb.system import terminal


def test_differences_are_paired_by_seed():
    assert difference({1: 10.0, 2: 14.0}, {1: 9.0, 2: 11.0}) == "+2.00 [-10.71, +14.71]"  # t(0.975, 1) = 12.706, s = sqrt 2
    assert difference({1: 10.0, 2: 14.0}, {0: 9.0}) == "+3.00 [-22.41, +28.41]"
    assert difference({1: 10.0, 2: 14.0}, {2: 11.0}) == "+3.00"
    assert difference({1: 10.0}, {2: 11.0}) == ""


def test_the_best_start_is_compared_and_failed_runs_are_named():
    facts = {"readout": "mean", "length": 32, "batch": 64, "steps": 1000, "rate": 3e-5}
    entries = [
        Entry("cls", START, {}, {0: {"STS12": 30.0, "STS13": 50.0}}),
        Entry("mean", START, {}, {0: {"STS12": 44.0, "STS13": 40.0}}),
        Entry("tf-idf", WORDS, {}, {0: {"STS12": 90.0, "STS13": 90.0}}),
        Entry("a", "common", facts, {1: {"STS12": 50.0, "STS13": 52.0}}, [250]),
        Entry("b", "common", facts, {}),
    ]
    tables = layout(entries, 2)
    assert tables.budgets.rows == [["a, common", "1 of 2", "mean", "32", "64", "250 of 1,000", "3e-05"]]
    assert tables.scores.rows == [
        ["untrained, cls", "30.00", "50.00", "40.00"],
        ["untrained, mean", "44.00", "40.00", "42.00"],
        ["tf-idf", "90.00", "90.00", "90.00"],
        ["a, common", "50.00", "52.00", "51.00"],
    ]
    assert tables.differences.columns == ["", "average", "from the best start", "from a"]
    assert tables.differences.rows == [["a, common", "51.00", "+9.00", ""]]
    assert "failed: b, common" in tables.notes
    assert "| a, common | 50.00 | 52.00 | 51.00 |" in as_markdown(tables)


def test_scores_are_means_over_seeds_and_the_average_has_its_deviation():
    facts = {"readout": "mean", "length": 32, "batch": 64, "steps": 100, "rate": 3e-5}
    scores = {1: {"STS12": 40.0, "STS13": 44.0}, 2: {"STS12": 46.0, "STS13": 50.0}}
    tables = layout([Entry("a", "published", facts, scores, [60, 100])], 2)
    assert tables.budgets.rows[0][5] == "80 of 100"
    assert tables.scores.rows == [["a, published", "43.00", "47.00", "45.00"]]
    assert tables.differences == ("Differences of averages", ["", "average"], [["a, published", "45.00 ± 4.24"]])


def test_three_recipes_on_seven_sets_fit_into_a_terminal_of_80_columns(monkeypatch):
    monkeypatch.setattr(terminal, "WIDTH", 80)
    facts = {"readout": "first_last", "length": 130, "batch": 64, "steps": 1000, "rate": 3e-5}
    values = {seed: dict.fromkeys(SEVEN, 40.0 + seed / 8) for seed in (1, 2, 3)}
    entries = [Entry("first_last", START, {}, {0: values[1]}), Entry("word vectors, mean", WORDS, {}, {0: values[1]})]
    entries += [Entry(name, group, facts, values, [27]) for group in ("published", "common") for name in ("simcse", "is_bert")]
    text = as_text(
        layout(entries, 3, ["steps: the mean of the scored ones, selected on STS-B dev without the pairs of the scored sets"])
    )
    assert max(map(len, text.splitlines())) <= 80
    assert "is_bert, published  40.25 ± 0.12  +0.12 [-0.19, +0.44]  +0.00 [+0.00, +0.00]" in text


def test_nothing_is_compared_with_a_first_method_that_failed():
    facts = {"readout": "mean", "length": 32, "batch": 64, "steps": 1000, "rate": 3e-5}
    entries = [
        Entry("a", "published", facts, {1: {"STS12": 40.0}}),
        Entry("b", "published", facts, {1: {"STS12": 43.0}}),
        Entry("a", "common", facts, {}),
        Entry("b", "common", facts, {1: {"STS12": 50.0}}),
        Entry("c", "common", facts, {1: {"STS12": 52.0}}),
    ]
    _, columns, rows = layout(entries, 1).differences
    assert columns[-1] == "from a"
    assert [(row[0], row[-1]) for row in rows] == [
        ("a, published", ""),
        ("b, published", "+3.00"),
        ("b, common", ""),
        ("c, common", ""),
    ]
