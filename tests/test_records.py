"""Rows of records and their ids: counted as in the files, also where records have no text."""

import gzip
import json

import numpy as np
import pytest

from jax_sentemb.data import records as module
from jax_sentemb.data import text_file
from jax_sentemb.data.conversion import Columns
from jax_sentemb.data.corpus_files import open_corpus, open_records, open_text
from jax_sentemb.data.records import AllTexts, Record, blank_texts
from jax_sentemb.errors import ConfigError, DataError

DOCUMENTS = [("x", "first", "one"), ("y", "", ""), (7, "", "three"), ("z", "four", ""), (None, "last", "five")]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


def write(path, rows=DOCUMENTS):
    kind = path.suffix
    if kind == ".jsonl":
        lines = [{"title": title, "text": text} | ({} if id is None else {"_id": id}) for id, title, text in rows]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif kind == ".parquet":
        pyarrow, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        ids = [None if id is None else str(id) for id, _, _ in rows]
        columns = {"_id": ids, "title": [title or None for _, title, _ in rows], "text": [text for _, _, text in rows]}
        pyarrow.write_table(arrow.table(columns), path)
    else:
        separator = "," if kind == ".csv" else "\t"
        lines = [("_id", "title", "text"), *rows]
        path.write_text("".join(separator.join("" if value is None else str(value) for value in line) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_rows_count_the_records_without_text_and_ids_are_theirs(tmp_path, ending):
    records = open_records(write(tmp_path / f"a{ending}"), Columns())
    assert list(records.sentences) == ["one", "three", "five"]
    assert records.sentences.rows(np.arange(3)).tolist() == [0, 2, 4]
    assert records.count == 5
    assert list(blank_texts(records.sentences)) == [1, 3]
    assert records.describe_blank() == "2 of 5 records have no text (rows 1, 3)"
    texts = AllTexts(records.sentences)
    assert list(texts) == [texts[number] for number in range(len(texts))] == ["one", "", "three", "", "five"]
    ids = {".jsonl": ["x", "y", 7, "z", None], ".parquet": ["x", "y", "7", "z", None]}.get(ending, ["x", "y", "7", "z", ""])
    assert [records.record(number) for number in range(5)] == [Record(row, None, id) for row, id in enumerate(ids)]


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_columns_are_joined_to_one_text_or_are_texts_of_their_own(tmp_path, ending):
    file = write(tmp_path / f"a{ending}")
    joined = open_records(file, Columns(("title", "text"), ". "))
    assert list(joined.sentences) == ["first. one", "three", "four", "last. five"]
    assert joined.sentences.rows(np.arange(4)).tolist() == [0, 2, 3, 4]
    assert joined.record(3).row == 3
    apart = open_records(file, Columns(("title", "text")))
    assert list(apart.sentences) == ["first", "one", "three", "four", "last", "five"]
    assert apart.sentences.rows(np.arange(6)).tolist() == [0, 0, 2, 3, 4, 4]
    assert [apart.record(text)[:2] for text in (0, 1, 5)] == [(0, "title"), (0, "text"), (2, "text")]
    assert apart.describe_blank() == "4 of 10 texts are empty (rows 1, 2, 3)"
    assert list(open_corpus(file, "title,text", "\n")) == ["first one", "three", "four", "last five"]


def test_another_column_has_the_ids(tmp_path):
    file = write(tmp_path / "a.csv")
    assert open_text("--corpus", file, "text", id_column="title").record(3).id == "four"
    with pytest.raises(DataError, match=r"a\.csv has no column 'key'.*: name the columns with --column and --id"):
        open_text("--corpus", file, "text", id_column="key")
    (tmp_path / "a.jsonl").write_text('{"text": "a", "key": ["\\ud800"]}\n')
    with pytest.raises(DataError, match=r"a\.jsonl line 1: the id contains an unpaired surrogate"):
        open_text("--corpus", str(tmp_path / "a.jsonl"), id_column="key")
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(ConfigError, match=r"--id key: .*a\.txt has lines but no columns"):
        open_text("--corpus", str(tmp_path / "a.txt"), "text", id_column="key")
    with pytest.raises(ConfigError, match="--id key: standard input has lines but no columns; leave it out"):
        open_text("--corpus", "-", "text", id_column="key")


def test_spaces_around_the_names_of_columns_do_not_count(tmp_path):
    (tmp_path / "a.csv").write_text("id, text\n1,one two\n")
    assert list(open_text("--corpus", str(tmp_path / "a.csv")).texts) == ["one two"]


def test_rows_are_counted_through_files_of_all_kinds(tmp_path):
    (tmp_path / "a.txt").write_text("\n\none\n\n")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf\nlast"))
    files = f"{tmp_path}/a.txt,{write(tmp_path / 'b.jsonl')},{tmp_path}/c.txt.gz,{write(tmp_path / 'd.csv')}"
    records = open_records(files, Columns())
    assert list(records.sentences) == ["one", "one", "three", "five", "last", "one", "three", "five"]
    rows = [2, 4, 6, 8, 10, 11, 13, 15]
    assert records.sentences.rows(np.arange(8)).tolist() == rows
    assert [records.record(row).id for row in rows] == [None, "x", 7, None, None, "x", "7", ""]
    assert [records.file_and_row(sentence) for sentence in (0, 2, 4, 7)] == [(0, 2), (1, 2), (2, 1), (3, 4)]
    with pytest.raises(ConfigError, match="some files have several texts in a record and others have one"):
        open_records(files, Columns(("title", "text")))
    assert open_corpus(files, "title,text").rows(np.arange(10)).tolist() == [2, 4, 4, 6, 7, 8, 8, 10, 11, 11]


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_lines_of_large_text_are_kept_in_the_cache(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(text_file, "LARGE", 1)
    monkeypatch.setattr(text_file, "BLOCK", 3)
    monkeypatch.setattr(module, "CHUNK", at_once)
    (tmp_path / "a.txt").write_text("\n  \na bc\n\n\nd\r\n\t\ne")
    (tmp_path / "b.txt").write_text("\n\nf\n\n")
    sentences = open_corpus(f"{tmp_path}/a.txt,{tmp_path}/b.txt")
    for _ in range(2):
        assert sentences.lines.tolist() == [2, 5, 7, 10]
        assert list(blank_texts(sentences)) == [0, 1, 3, 4, 6, 8, 9, 11]
        assert [sentences.file_and_line(number) for number in range(4)] == [(0, 3), (0, 6), (0, 8), (1, 3)]
        sentences = open_corpus(f"{tmp_path}/a.txt,{tmp_path}/b.txt")
    assert len(list((tmp_path / "cache").rglob("lines.bin"))) == 1


def test_an_id_of_any_json_is_kept_and_a_change_of_ids_is_another_conversion(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"_id": {"$oid": "5f"}, "text": "a"}\n\n{"_id": 1.5, "text": "b"}\n{"text": "c"}\n')
    records = open_records(str(tmp_path / "a.jsonl"), Columns())
    assert [records.record(row).id for row in range(records.count)] == [{"$oid": "5f"}, 1.5, None]
    (tmp_path / "a.jsonl").write_text('{"_id": 2, "text": "a"}\n\n{"_id": 3, "text": "b"}\n{"text": "c"}\n')
    assert open_records(str(tmp_path / "a.jsonl"), Columns()).record(0).id == 2


def test_an_id_that_json_cannot_hold_is_missing_or_refused(tmp_path):
    """`pandas` writes NaN for a missing value; no other program reads it, or Infinity, in what `search --json` prints."""
    (tmp_path / "a.jsonl").write_text('{"_id": NaN, "text": "a"}\n{"_id": "x", "text": "b"}\n')
    records = open_records(str(tmp_path / "a.jsonl"), Columns())
    assert [records.record(row).id for row in range(2)] == [None, "x"]
    (tmp_path / "a.jsonl").write_text('{"_id": "x", "text": "a"}\n{"_id": [Infinity], "text": "b"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl line 2: the id \[inf\] is not a number in JSON; give another --id"):
        open_records(str(tmp_path / "a.jsonl"), Columns())
