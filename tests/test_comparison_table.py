"""The table of `jax-sentemb compare`."""

from jax_sentemb.reporting.comparison_table import START, WORDS, Entry, as_markdown, difference, layout


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
    assert tables.results[1][3] == ["a, common (1 of 2 runs)", "mean", "32", "64", "250 of 1,000", "3e-05", "51.00", "+9.00", ""]
    assert "failed: b, common (0 of 2 runs)" in tables.notes
    assert "| a, common (1 of 2 runs) | 50.00 | 52.00 |" in as_markdown(tables)


def test_nothing_is_compared_with_a_first_method_that_failed():
    facts = {"readout": "mean", "length": 32, "batch": 64, "steps": 1000, "rate": 3e-5}
    entries = [
        Entry("a", "published", facts, {1: {"STS12": 40.0}}),
        Entry("b", "published", facts, {1: {"STS12": 43.0}}),
        Entry("a", "common", facts, {}),
        Entry("b", "common", facts, {1: {"STS12": 50.0}}),
        Entry("c", "common", facts, {1: {"STS12": 52.0}}),
    ]
    columns, rows = layout(entries, 1).results
    assert columns[-1] == "against a"
    assert [(row[0], row[-1]) for row in rows] == [
        ("a, published", ""),
        ("b, published", "+3.00"),
        ("b, common", ""),
        ("c, common", ""),
    ]
