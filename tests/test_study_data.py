"""experiments/data.py: the table of the data of the studies, and the check of a folder."""

import re
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


@pytest.mark.parametrize("row", DATA["MODELS"], ids=lambda row: row["name"])
def test_a_study_whose_commands_take_a_model_is_listed_with_it(row):
    name = re.escape(row["name"].partition(",")[0].removesuffix(".txt"))
    blocks = re.compile(r"<!-- (transfer )?baselines -->.*?<!-- end of (transfer )?baselines -->", re.DOTALL)
    for readme in (ROOT / "experiments").glob("*/README.md"):
        commands = "".join(re.findall(r"```.*?```", blocks.sub("", readme.read_text(encoding="utf-8")), re.DOTALL))
        if re.search(rf"(?<![\w/-]){name}(?![\w-])", commands):
            assert readme.parent.name in row["studies"]


@pytest.mark.parametrize("row", DATA["SETS"], ids=lambda row: row["path"])
def test_a_study_that_names_a_file_is_listed_with_it(row):
    name = row["path"].rpartition("/")[2].partition(".")[0].removeprefix("nli_")
    pattern = r"sts_raw|STSBenchmark-\w+\.tsv" if name == "sts_raw" else re.escape(name)
    for readme in (ROOT / "experiments").glob("*/README.md"):
        text = "\n".join(file.read_text(encoding="utf-8") for file in [readme, *readme.parent.glob("*.py")])
        if readme.parent.name not in WITHOUT_DATA and re.search(pattern, text):
            assert readme.parent.name in row["studies"]


@pytest.mark.parametrize("row", DATA["TEXTS"], ids=lambda row: row["name"])
def test_a_prepared_text_has_the_command_of_its_studies(row):
    for study in row["studies"]:
        readme = (ROOT / "experiments" / study / "README.md").read_text(encoding="utf-8")
        commands = re.sub(r"\s*\\\n\s*", " ", readme)
        assert row["prepare"] in commands, f"{study}: {row['prepare']}"


def test_results_are_added_to_and_replaced_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    study = runpy.run_path(str(ROOT / "experiments" / "study_data.py"))
    file = tmp_path / "results.csv"
    study["add_rows"](file, [{"seed": 1, "score": 2.0}])
    study["add_rows"](file, [{"seed": 2, "note": "a, b"}])
    assert file.read_bytes() == b'seed,score,note\n1,2.0,\n2,,"a, b"\n'
    study["write_rows"](file, [(1, "2.00")], ("seed", "score"))
    assert study["read_rows"](file) == [{"seed": "1", "score": "2.00"}]

    def killed():
        yield (3, "4.00")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study["write_rows"](file, killed(), ("seed", "score"))
    assert study["read_rows"](file) == [{"seed": "1", "score": "2.00"}]
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_model_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    require_model = runpy.run_path(str(ROOT / "experiments" / "study_data.py"))["require_model"]
    require_model(tmp_path)
    for name in ("bert-mini", str(tmp_path / "absent")):
        with pytest.raises(SystemExit) as caught:
            require_model(name)
        error = capsys.readouterr().err
        assert caught.value.code == 3
        assert error.startswith(f"error: --weights {name}: no such directory; ")
        assert error.count("\n") == 1


def test_commands_give_the_path_of_their_data():
    for readme in (ROOT / "experiments").glob("*/README.md"):
        for path in re.findall(
            r"\S*(?:STSBenchmark-\w+\.tsv|UKP_ASPECT\.tsv|\w+\.t[xs][tv]\.xz)", readme.read_text(encoding="utf-8")
        ):
            assert any(f"DIR/{row['path']}" in path for row in DATA["SETS"]), f"{readme.parent.name}: {path}"


def test_a_folder_is_checked(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "folder" / "b").mkdir(parents=True)
    (tmp_path / "folder" / "b" / "c.txt").write_text("two\n")
    rows = [
        {"path": path, "sha256": DATA["digest"](tmp_path / path), "source": "there", "licence": "free", "studies": ["study"]}
        for path in ("a.txt", "folder")
    ]
    rows.append({**rows[0], "path": "absent.txt", "source": "a place", "studies": ["other"]})
    model = {"name": "bert", "source": "https://a.org/bert", "licence": "free", "studies": ["study"]}
    monkeypatch.setitem(DATA["check"].__globals__, "SETS", rows)
    monkeypatch.setitem(DATA["check"].__globals__, "MODELS", [model])
    text = {"name": "b.txt", "prepare": "python b.py", "studies": ["study"]}
    monkeypatch.setitem(DATA["check"].__globals__, "TEXTS", [text])
    assert DATA["check"](tmp_path, "study") == 0
    assert (
        capsys.readouterr().out
        == "there      a.txt\nthere      folder\nby command b.txt: python b.py\nby option  bert: https://a.org/bert (free)\n"
    )
    (tmp_path / "folder" / "b" / "c.txt").rename(tmp_path / "folder" / "c.txt")
    assert DATA["check"](tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[1:-2] == [
        "different  folder",
        "           get it from: there (free)",
        "missing    absent.txt",
        "           get it from: a place (free)",
    ]


@pytest.mark.parametrize("path", ["afs/UKP_ASPECT.tsv", "corpora/news_1b_heldout.txt.xz", "sts_raw"])
def test_real_data_have_the_sums_of_the_table(shared, path):
    row = next(row for row in DATA["SETS"] if row["path"] == path)
    assert DATA["state"](row, shared / "data") == "there"
