"""Text of users cannot change the page that shows it, start a formula, or tell where files are."""

import csv
import io

import pytest

from jax_sentemb.formats.model_card import Card, render, render_static_card, render_word_card
from jax_sentemb.public_text import markdown, model_name, public_argument, spreadsheet_cell, without_folders
from jax_sentemb.reporting import html_report
from jax_sentemb.reporting.report_data import Run
from jax_sentemb.reporting.sweep_table import table, write_tables

HOSTILE = "<script>alert(1)</script>[x](javascript:y)|`z`\n# h"
MODEL = {"pooling": "cls", "normalize": False, "max_seq_length": 8, "width": 4}


def is_harmless(text):
    return "<script" not in text and "[x](" not in text and "\n# h" not in text


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\tx", "\r=1", " =1+1", "\uff1d1"])
def test_formulas_are_text(text):
    assert spreadsheet_cell(text) == "'" + text.replace("\r", " ")


def test_a_carriage_return_ends_no_row():
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow([spreadsheet_cell("one\rtwo"), "three"])
    assert list(csv.reader(io.StringIO(stream.getvalue(), newline=""))) == [["one two", "three"]]


@pytest.mark.parametrize("value", ["-1.5", "+3", "-1e-05", "-inf", "a=b", "", 3, -0.5, None])
def test_numbers_and_other_text_stay(value):
    assert spreadsheet_cell(value) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/anna/my texts/corpus.txt", "corpus.txt"),
        ("--config.data.files=/home/anna/a.txt,/srv/b.txt", "--config.data.files=a.txt,b.txt"),
        ("arguments:/data/anna/afs.csv", "arguments:afs.csv"),
        ("error: /home/anna/x.txt: no such file", "error: x.txt: no such file"),
        ("C:\\Users\\anna\\x.txt", "x.txt"),
        ("~anna/x.txt", "x.txt"),
        ("file:///home/anna/x.txt", "x.txt"),
        ("copied /home/anna/x.txt to /srv/my texts/y.txt", "copied x.txt to y.txt"),
        ("in use by process 3 on annas-pc since 2026", "in use by process 3 since 2026"),
        ("runs/x and 300 sentences/s, and/or https://example.org/a", "runs/x and 300 sentences/s, and/or https://example.org/a"),
    ],
)
def test_folders_of_the_machine_are_left_out(text, expected):
    assert without_folders(text) == expected


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("runs/student/export", "student"), ("minilm/model", "minilm"), ("runs/student/", "student"),
        ("runs/student/export@mean", "student@mean"), ("absent/export", "export"), ("user/model@cls", "model@cls"), ("", ""),
    ],
)  # fmt: skip
def test_a_model_is_named_by_a_folder_that_tells_it_from_others(path, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/student/export", "minilm/model"):
        (tmp_path / folder).mkdir(parents=True)
    assert model_name(path) == name
    assert model_name(tmp_path / path) == (name or tmp_path.name)
    monkeypatch.chdir(tmp_path / "runs/student")
    assert model_name("export") == "student"


def test_the_name_of_the_home_folder_is_not_published(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "export").mkdir()
    assert model_name("~/export") == "export"


def test_names_in_markdown_stay_names():
    assert markdown("max_seq_length 3") == "max_seq_length 3"
    assert markdown("a|b <i> *c* _d_") == "a\\|b &lt;i&gt; \\*c\\* \\_d\\_"
    assert is_harmless(markdown(HOSTILE))


def test_cards_escape_every_name():
    card = Card(HOSTILE, HOSTILE, verdict=HOSTILE, missing_tasks=[HOSTILE], training={HOSTILE: HOSTILE})
    assert is_harmless(render(card, **MODEL))
    words = {"name": HOSTILE, "method": HOSTILE, "training": {HOSTILE: HOSTILE}}
    assert is_harmless(render_word_card(words, 1, True).partition("\n---\n")[2])
    static = {"base_model": HOSTILE, "regression": None, "sentences": 3, "sif": 0.1, "words": 8}
    assert is_harmless(render_static_card(HOSTILE, static, 3, 4, True).partition("\n---\n")[2])


def test_tables_of_a_sweep_are_harmless(tmp_path):
    rows = [{"settings": {"variant": text, "rate": "-1"}, "folder": "x", "scores": {"STS12": -1.5}} for text in ("=cmd()", HOSTILE)]
    assert is_harmless(table(rows))
    write_tables(tmp_path, rows, {})
    with next(tmp_path.glob("*.csv")).open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["variant"] for line in lines] == ["'=cmd()", HOSTILE]
    assert (lines[0]["rate"], lines[0]["STS12"]) == ("-1", "-1.5")


def test_a_report_names_no_folder(tmp_path):
    argv = ["/home/anna/bin/jax-sentemb", "train", "--workdir=/home/anna/run", "--config.data.files=/home/anna/a b/c.txt"]
    settings = {"data.files": "/home/anna/a b/c.txt", "encoder.weights": "/home/anna/bert"}
    records = [{"step": 1, "warning": "/home/anna/x.txt was cut"}]
    page = html_report.run_page(Run(tmp_path, {"argv": argv, "steps": 1}, settings, {}, records, {}, {}))
    assert "anna" not in page
    assert str(tmp_path) not in page
    assert "c.txt" in page
    rows = [{"settings": {"data.files": "/home/anna/x.txt"}, "folder": "x", "error": "/home/anna/x.txt: no such file"}]
    assert "anna" not in html_report.sweep_page(tmp_path, rows)


@pytest.mark.parametrize(
    ("argument", "start", "shown"),
    [
        ("--config.encoder.weights=/home/me/mini/model", "mini", "--config.encoder.weights=mini"),
        ("--config.encoder.weights=/home/me/mini/model", None, "--config.encoder.weights=model"),
        ("--config.data.files=/home/me/a.txt", "mini", "--config.data.files=a.txt"),
    ],
)
def test_an_argument_of_a_run_has_no_folder_and_its_start_a_name(argument, start, shown):
    assert public_argument(argument, start) == shown
