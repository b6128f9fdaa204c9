"""Corpora from files: what is a line, what is refused, and that every way of packing a text gives the same sentences."""

import csv
import gzip
import hashlib
import json
import lzma
import os
import pickle
import shutil
import time

import pytest

from jax_sentemb.data import text_file
from jax_sentemb.data.cache import cache_folder
from jax_sentemb.data.corpus_files import open_corpus, open_text
from jax_sentemb.data.tokenizer import new_tokenizer
from jax_sentemb.errors import ConfigError, DataError, ResourceError

SENTENCES = ["One sentence.", 'A "quoted" one, with a comma', "caf\u00e9 \u6f22\u5b57 \U0001f600", "tab\tinside"]
TEXT = "".join(f"{sentence}\n" for sentence in SENTENCES).encode()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


def corpus_of(tmp_path, content, name="corpus.txt"):
    (tmp_path / name).write_bytes(content)
    return open_corpus(str(tmp_path / name))


def refused(files, **options):
    """The message of the DataError, checked to be one line."""
    with pytest.raises(DataError) as caught:
        list(open_corpus(str(files), **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write_table(path, delimiter=","):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter) if delimiter == "," else None
        for row in [("id", "text"), *enumerate(SENTENCES[:3])]:
            writer.writerow(row) if writer else file.write(delimiter.join(map(str, row)) + "\r\n")


def test_every_kind_of_file_gives_the_same_sentences(tmp_path):
    rows = "".join(json.dumps({"text": sentence, "other": 1}) + "\n" for sentence in SENTENCES[:3]).encode()
    text = "".join(f"{sentence}\n" for sentence in SENTENCES[:3]).encode()
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(text))
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + rows + b"\n")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(rows))
    write_table(tmp_path / "a.csv")
    write_table(tmp_path / "a.tsv", "\t")
    (tmp_path / "a.tsv.xz").write_bytes(lzma.compress((tmp_path / "a.tsv").read_bytes()))
    found = sorted(tmp_path.glob("a.*"))
    assert len(found) == 8
    for path in found:
        corpus = open_corpus(str(path))
        assert list(corpus) == SENTENCES[:3], path
        assert corpus.fingerprint == hashlib.sha256(text).hexdigest(), path


def test_a_line_break_inside_a_field_is_a_space_and_a_missing_column_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('name,sentence\n1,"two\nlines"\n\n2,"and\r\nmore"\n', encoding="utf-8", newline="")
    assert list(open_corpus(str(path), column="sentence")) == ["two lines", "and more"]
    assert "only name, sentence" in refused(path)
    with pytest.raises(ConfigError, match="is empty"):
        open_corpus(str(path), column=" ,")
    (tmp_path / "a.jsonl").write_text('{"texts": 1, "more": 2}\n{"text": "a"}\n')
    assert "line 1 has no key 'text', only texts, more: name the column" in refused(tmp_path / "a.jsonl")
    (tmp_path / "b.csv").write_text("a,text\n1\n")
    assert "line 2 has 1 field," in refused(tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2 is a list, not an object"),
        ("null", "line 2 is missing, not an object"),
        ('{"text": 3}', "line 2: text is a number, not text"),
        ('{"text": ["good"]}', "line 2: text is a list, not text"),
        ('{"text": true}', "line 2: text is true or false, not text"),
        ('{"text": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "line 2: not JSON"),
    ],
)
def test_a_bad_json_row_is_named(tmp_path, row, named):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' + row + "\n", encoding="utf-8")
    assert named in refused(path)
    path.write_text('{"text": "good"}\n{"text": "good again"}\n', encoding="utf-8")
    assert len(open_corpus(str(path))) == 2  # the failed conversion left nothing behind


@pytest.mark.parametrize("row", ['{"text": null}', "{}", '{"text": ""}'])
def test_a_json_row_without_text_is_blank_and_keeps_its_number(tmp_path, row):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "good"}}\n{row}\n{{"text": "better"}}\n', encoding="utf-8")
    assert list(open_corpus(str(path))) == ["good", "better"]
    assert [open_text("--corpus", str(path), "text").texts[row] for row in range(3)] == ["good", "", "better"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_bytes_that_are_not_utf8_are_named_with_line_and_offset(tmp_path, name):
    content = b'{"text": "caf\xe9"}\n' if name == "a.jsonl" else b"text\ncaf\xe9\n"
    (tmp_path / name).write_bytes(content)
    line, byte = content[: content.index(0xE9)].count(b"\n") + 1, content.index(0xE9)
    assert f"line {line}, byte {byte}: not UTF-8" in refused(tmp_path / name)


def test_files_that_are_not_there_or_damaged_are_named(tmp_path):
    (tmp_path / "good.txt").write_bytes(TEXT)
    (tmp_path / "folder.txt").mkdir()
    for name in ("a.doc", "a.parquet.gz"):
        (tmp_path / name).write_bytes(TEXT)
    (tmp_path / "short.txt.gz").write_bytes(gzip.compress(TEXT)[:-9])
    (tmp_path / "short.txt.xz").write_bytes(lzma.compress(TEXT)[:-9])
    (tmp_path / "no.txt.gz").write_bytes(TEXT)
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "blank.txt").write_bytes(b"\n \n")
    for name, named in {
        "missing.txt": "no such file",
        "good.txt,missing.txt": "no such file",
        "folder.txt": "is a directory",
        "*.none": "no file matches",
        "a.doc": "unknown file format",
        "a.parquet.gz": "unknown file format",
        "short.txt.gz": "cannot be read",
        "short.txt.xz": "cannot be read",
        "no.txt.gz": "cannot be read",
        "empty.txt": "contains no sentence (0 lines",
        "blank.txt": "contains no sentence (2 lines",
    }.items():
        message = refused(",".join(str(tmp_path / part) for part in name.split(",")))
        assert named in message
        assert name.split(",")[-1] in message
    assert "data.files is empty" in refused(" , ")


def test_several_files_and_globs_follow_each_other(tmp_path):
    for name in ("b.txt", "a.txt", "c, d.txt", "e #\u6f22 \U0001f600.txt"):
        (tmp_path / name).write_bytes(name[:1].encode() + b"1\n\n" + name[:1].encode() + b"2")
    (tmp_path / "z.txt").mkdir()
    assert list(open_corpus(f"{tmp_path}/b.txt, {tmp_path}/a.txt")) == ["b1", "b2", "a1", "a2"]
    every = open_corpus(f"{tmp_path}/*.txt")
    assert list(every) == [f"{letter}{number}" for letter in "abce" for number in "12"]
    assert [every[number] for number in (7, 0, 3, 4)] == ["e2", "a1", "b2", "c1"]
    assert every.report == {"lines": 12, "blank": 4, "bytes": 24}
    assert list(open_corpus(f"{tmp_path}/c, d.txt")) == ["c1", "c2"]
    for number in (-1, 8):
        with pytest.raises(IndexError):
            every[number]


@pytest.fixture
def read(monkeypatch):
    """Every corpus is LARGE; the files that are read from beginning to end."""
    names, blocks = [], text_file.read_blocks

    def counted(path, opener=open):
        names.append(path.name)
        yield from blocks(path, opener)

    monkeypatch.setattr(text_file, "LARGE", 1)
    monkeypatch.setattr(text_file, "read_blocks", counted)
    return names


def test_a_large_corpus_is_read_once_and_gives_the_same_sentences(tmp_path, read, monkeypatch):
    content = "\ufeffone\n\n\u00e9t\u00e9\r\n \nlast".encode()
    (tmp_path / "b.txt").write_bytes(b"\nb\n")
    (tmp_path / "c.txt").write_bytes(b"")
    first = corpus_of(tmp_path, content)
    both = f"{tmp_path}/b.txt,{tmp_path}/c.txt,{tmp_path}/corpus.txt"
    two = open_corpus(both)
    assert read == ["corpus.txt", "b.txt", "c.txt", "corpus.txt"]
    for corpus, again in ((first, open_corpus(str(tmp_path / "corpus.txt"))), (two, open_corpus(both))):
        copy = pickle.loads(pickle.dumps(again))
        copy.open()
        assert list(corpus) == list(again) == list(copy)
        assert (corpus.report, corpus.fingerprint) == (again.report, again.fingerprint) == (copy.report, copy.fingerprint)
    assert len(read) == 4
    monkeypatch.setattr(text_file, "LARGE", 1 << 20)
    small = open_corpus(both)
    assert len(read) == 7
    assert (list(small), small.report, small.fingerprint) == (list(two), two.report, two.fingerprint)
    assert list(two) == ["b", "one", "\u00e9t\u00e9", "last"]


def test_an_edit_of_a_large_file_does_not_go_unnoticed(tmp_path, read):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n")
    os.utime(path, (1, 1))
    corpus = open_corpus(str(path))
    time.sleep(0.02)  # a tick of the file system's clock
    path.write_bytes(b"two\n")
    os.utime(path, (1, 1))
    with pytest.raises(DataError, match="changed while it was read") as caught:
        pickle.loads(pickle.dumps(corpus)).open()
    assert "\n" not in str(caught.value)
    edited = open_corpus(str(path))
    assert list(edited) == ["two"]
    assert edited.fingerprint == hashlib.sha256(b"two\n").hexdigest()


def test_a_damaged_index_is_made_again(tmp_path, read):
    corpus_of(tmp_path, TEXT)
    (index,) = cache_folder().glob("*.index/starts.bin")
    for damage in (b"", index.read_bytes()[:-1], b"\1" + index.read_bytes()[1:]):
        index.write_bytes(damage)
        assert list(open_corpus(str(tmp_path / "corpus.txt"))) == SENTENCES
    assert len(read) == 4


def test_a_large_packed_file_is_read_once(tmp_path, read):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(TEXT))
    for _ in range(3):
        assert list(open_corpus(str(path))) == SENTENCES
    assert read.count(path.name) == 3  # its digest, its text, and whether it still is what it was
    time.sleep(0.02)
    path.write_bytes(gzip.compress(b"other\n"))
    assert list(open_corpus(str(path))) == ["other"]


def test_a_refused_large_file_leaves_nothing_behind(tmp_path, read):
    (tmp_path / "a.txt").write_bytes(b"good\nbad \xe9\n")
    assert "line 2, byte 9" in refused(tmp_path / "a.txt")
    assert [path.suffix for path in cache_folder().iterdir()] in ([".lock"], [])
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"good\nbad \xe9\n"))
    assert refused(tmp_path / "a.txt.gz").startswith(f"{tmp_path / 'a.txt.gz'} line 2, byte 9: not UTF-8")
    assert not list(cache_folder().glob("*.text"))  # the unpacked text


def test_an_edited_compressed_file_is_converted_again_and_a_copy_is_not(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\n", mtime=0))
    os.utime(path, (1, 1))
    assert list(open_corpus(str(path))) == ["one"]
    path.write_bytes(gzip.compress(b"two\n", mtime=0))
    os.utime(path, (1, 1))
    assert list(open_corpus(str(path))) == ["two"]
    (tmp_path / "b.txt.gz").write_bytes(path.read_bytes())
    open_corpus(str(tmp_path / "b.txt.gz"))
    assert len(list(cache_folder().glob("*.text"))) == 2


PACKED = {
    "a.txt.gz": gzip.compress(TEXT * 100),
    "a.jsonl": b"".join(json.dumps({"text": sentence}).encode() + b"\n" for sentence in SENTENCES),
    "a.csv": b"text\n" + b"".join(f'"{number} words"\n'.encode() for number in range(600)),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_damaged_conversion_is_made_again(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(PACKED[name])
    whole = list(open_corpus(str(path)))
    (entry,) = cache_folder().glob("*.text")
    for file in sorted(entry.iterdir()):
        content = file.read_bytes()
        half = content[: content.rfind(b"\n", 0, len(content) // 2) + 1]  # at the end of a line: good UTF-8
        flipped = bytes([*content[:-3], content[-3] ^ 1, *content[-2:]])
        for damage in (half, b"", flipped, content + b"more\n"):
            file.write_bytes(damage)
            assert list(open_corpus(str(path))) == whole
            assert file.read_bytes() == content
    shutil.rmtree(entry)
    entry.mkdir()  # what a power failure may leave
    assert list(open_corpus(str(path))) == whole


def test_a_damaged_hash_is_computed_again(tmp_path, read):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(PACKED["a.txt.gz"])
    whole = open_corpus(str(path)).fingerprint
    (entry,) = cache_folder().glob("*.sha256")
    for damage in (b"", b"0" * 64, (entry / "about.json").read_bytes().replace(b"a", b"b", 1)):
        (entry / "about.json").write_bytes(damage)
        assert open_corpus(str(path)).fingerprint == whole
        assert len(list(cache_folder().glob("*.text"))) == 1  # no second one under another hash


def test_a_damaged_vocabulary_is_made_again(tmp_path, read):
    corpus = corpus_of(tmp_path, TEXT)
    whole = new_tokenizer(corpus, 200).fingerprint
    (entry,) = cache_folder().glob("*.vocabulary")
    for file in sorted(entry.iterdir()):
        content = file.read_bytes()
        for damage in (content[: len(content) // 2], content.replace(b"e", b"f", 1), None):
            file.unlink() if damage is None else file.write_bytes(damage)
            assert new_tokenizer(corpus, 200).fingerprint == whole
            assert file.read_bytes() == content


@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_is_edited_while_it_is_converted_or_indexed_is_refused(tmp_path, read, monkeypatch, large):
    monkeypatch.setattr(text_file, "LARGE", 1 if large else 1 << 20)
    blocks, edits = text_file.read_blocks, []

    def meanwhile(path, opener=open):
        if path.suffix == ".gz" and not large and not edits:  # the digest comes before the text
            edits.append(path)
            yield from blocks(path, opener)
            return
        time.sleep(0.02)
        content = path.read_bytes()
        path.write_bytes(gzip.compress(b"other\n") if opener is gzip.open else b"other\n")
        yield from blocks(path, opener)
        path.write_bytes(content)

    for name, content in (("a.txt.gz", gzip.compress(TEXT)), ("b.txt", TEXT)):
        (tmp_path / name).write_bytes(content)
        edits.clear()
        with monkeypatch.context() as patch:
            patch.setattr(text_file, "read_blocks", meanwhile)
            assert "changed while it was read" in refused(tmp_path / name)
        assert {path.suffix for path in cache_folder().glob("*")} <= {".lock"}
        assert list(open_corpus(str(tmp_path / name))) == SENTENCES
        shutil.rmtree(cache_folder(), ignore_errors=True)


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "file"))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT))
    with pytest.raises(ResourceError, match="set JAX_SENTEMB_CACHE to another folder"):
        open_corpus(str(tmp_path / "a.txt.gz"))
    assert list(open_corpus(str(tmp_path / "a.txt.gz"), cache=tmp_path / "other")) == SENTENCES
