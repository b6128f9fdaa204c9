"""Pages with the numbers of studies: evidence.md and the tables of experiments/adapting are those of the rows that are there."""

import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from scipy import stats

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import evidence  # noqa: E402


def test_page_and_readme_are_those_of_the_studies():
    rows = [evidence.compare(claim) for claim in tomllib.loads(evidence.TABLE.read_text(encoding="utf-8"))["claims"]]
    assert evidence.PAGE.read_text(encoding="utf-8") == evidence.page(rows), "run python docs/evidence.py"
    assert evidence.sentence(rows) in evidence.README.read_text(encoding="utf-8"), "run python docs/evidence.py"
    assert evidence.page(rows).count("](../experiments/") == len(rows)


def test_the_tables_of_adapting_are_those_of_its_rows():
    study = runpy.run_path(str(ROOT / "experiments" / "adapting" / "run.py"))
    rows = study["read_rows"](study["HERE"] / "results.csv")
    assert study["tables"](rows) in study["README"].read_text(encoding="utf-8"), "run python experiments/adapting/run.py --table"
    assert study["tables"]([row for row in rows if row["encoder"] == "MiniLM"]) in study["DOCS"].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([1.0, 1.1, 1.2], evidence.HOLDS),
        ([-1.0, -1.1, -1.2], evidence.CONTRADICTED),
        ([1.0, -0.2, 1.2], evidence.NOT_SEEN),
        ([0.1], evidence.SAME),
        ([-0.1], evidence.OPPOSITE),
    ],
)
def test_the_verdict_is_that_of_the_interval(differences, verdict):
    assert evidence.Row({}, 0.0, 0.0, differences).verdict == verdict


def test_the_interval_is_that_of_a_paired_t_test():
    first, second = [1.0, 2.0, 4.0, 3.5], [1.5, 2.1, 5.0, 3.0]
    expected = stats.ttest_rel(second, first).confidence_interval()
    found = evidence.interval([late - early for early, late in zip(first, second, strict=True)])
    assert found == pytest.approx((expected.low, expected.high))


def study(tmp_path, monkeypatch, text):
    folder = tmp_path / "experiments" / "one"
    folder.mkdir(parents=True)
    (folder / "results.csv").write_text("method,seed,average\n" + text)
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    return {"says": "", "study": "one", "without": {"method": "a"}, "with": {"method": "b"}, "value": "average"}


def test_seeds_are_paired(tmp_path, monkeypatch):
    row = evidence.compare(study(tmp_path, monkeypatch, "a,0,10\na,1,20\nb,1,23\nb,0,11\n"))
    assert (row.without, row.with_, sorted(row.differences)) == (15, 17, [1, 3])


def test_rows_are_paired_by_the_column_that_the_claim_names(tmp_path, monkeypatch):
    claim = study(tmp_path, monkeypatch, "")
    file = tmp_path / "experiments" / "one" / "results.csv"
    file.write_text("method,topic,average\na,x,10\na,y,20\nb,y,23\nb,x,11\n")
    row = evidence.compare(claim | {"unit": "topic", "paper": "P, T", "published": (0, 1)})
    assert sorted(row.differences) == [1, 3]
    assert "2 topics" in evidence.page([row])


@pytest.mark.parametrize("text", ["a,0,1\n", "a,0,1\nb,0,1\nb,0,2\n", "a,0,1\na,1,1\nb,0,1\nb,2,2\n"])
def test_selections_without_pairs_are_refused(tmp_path, monkeypatch, text):
    with pytest.raises(ValueError, match="seeds"):
        evidence.compare(study(tmp_path, monkeypatch, text))
