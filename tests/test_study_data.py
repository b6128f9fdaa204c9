"""experiments/data.py: the table of the data of the studies, and the check of a folder."""

import runpy

import pytest

from tests.pages import ROOT

DATA = runpy.run_path(str(ROOT / "experiments" / "data.py"))
WITHOUT_DATA = {"attention_figures"}  # it draws any model on any text


def test_the_page_is_that_of_the_table():
    assert DATA["PAGE"].read_text(encoding="utf-8") == DATA["table"](), "run python experiments/data.py --table"


def test_every_study_names_its_data():
    studies = {path.parent.name for path in (ROOT / "experiments").glob("*/README.md")}
    assert {name for row in DATA["SETS"] for name in row["studies"]} == studies - WITHOUT_DATA


def test_a_folder_is_checked(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "folder" / "b").mkdir(parents=True)
    (tmp_path / "folder" / "b" / "c.txt").write_text("two\n")
    rows = [
        {"path": path, "sha256": DATA["digest"](tmp_path / path), "source": "there", "licence": "free", "studies": ["study"]}
        for path in ("a.txt", "folder")
    ]
    rows.append({**rows[0], "path": "absent.txt", "source": "a place", "studies": ["other"]})
    monkeypatch.setitem(DATA["check"].__globals__, "SETS", rows)
    assert DATA["check"](tmp_path, "study") == 0
    assert capsys.readouterr().out == "there      a.txt\nthere      folder\n"
    (tmp_path / "folder" / "b" / "c.txt").rename(tmp_path / "folder" / "c.txt")
    assert DATA["check"](tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "different  folder",
        "           get it from: there (free)",
        "missing    absent.txt",
        "           get it from: a place (free)",
    ]


@pytest.mark.parametrize("path", ["afs/UKP_ASPECT.tsv", "corpora/news_1b_heldout.txt.xz", "sts_raw"])
def test_real_data_have_the_sums_of_the_table(shared, path):
    row = next(row for row in DATA["SETS"] if row["path"] == path)
    assert DATA["state"](row, shared / "data") == "there"
