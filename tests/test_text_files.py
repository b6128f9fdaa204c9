"""What counts as a file, a line and a sentence."""

import gzip
import json
import lzma

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jax_sentemb.errors import DataError
from jax_sentemb.text import files
from jax_sentemb.text.files import open_corpus

# Everything that some splitter takes for the end of a line, and a quote and separators for the tables.
SENTENCES = ["plain", "é and 漢字 and 😀", "a\u2028b\u2029c", "next\x85line", "a\x0bb\x0cc", 'say "x", he said', "last one"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


def refusal(files: str, **options) -> str:
    """The message of the DataError, which is one line."""
    with pytest.raises(DataError) as error:
        list(open_corpus(files, **options))
    assert "\n" not in str(error.value)
    return str(error.value)


def table(separator: str, quoting: bool) -> bytes:
    quoted = (f'"{line.replace(chr(34), 2 * chr(34))}"' if quoting else line for line in SENTENCES)
    return "".join(f"{separator.join(row)}\n" for row in [("id", "text"), *(("1", line) for line in quoted)]).encode()


CONTENT = {
    ".txt": "".join(line + "\n" for line in SENTENCES).encode(),
    ".jsonl": "".join(json.dumps({"text": line, "id": 1}, ensure_ascii=False) + "\n" for line in SENTENCES).encode(),
    ".csv": table(",", quoting=True),
    ".tsv": table("\t", quoting=False),
}
CONTENT |= {".txt.gz": gzip.compress(CONTENT[".txt"]), ".txt.xz": lzma.compress(CONTENT[".txt"])}


@pytest.mark.parametrize("kind", CONTENT)
def test_every_kind_holds_the_same_sentences(tmp_path, kind):
    path = tmp_path / f"corpus{kind}"
    path.write_bytes(CONTENT[kind])
    assert list(open_corpus(str(path))) == SENTENCES
    assert list(open_corpus(str(path))) == SENTENCES  # from the cache


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\r\r\nc\n", ["a\rb\r", "c"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\n \n\t\r\na\n\x00\n\nb\n\n", ["a", "b"]),
        (b"  a  \n", ["  a  "]),
        ("\u3000\n".encode(), ["\u3000"]),
    ],
)
def test_lines(tmp_path, content, expected):
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    sentences = open_corpus(str(path))
    assert list(sentences) == expected
    assert len(sentences) == len(expected)
    assert sentences.report["blank"] == sentences.report["lines"] - len(expected)
    assert sentences.report["bytes"] == len(content)
    with pytest.raises(IndexError):
        sentences[len(expected)]
    with pytest.raises(IndexError):
        sentences[-1]


def test_several_files_and_globs(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(f"{name} one\n{name} two\n")
    (tmp_path / "empty.txt").write_text("")
    names = f"{tmp_path}/c.txt, {tmp_path}/empty.txt,{tmp_path}/[ab].txt"
    sentences = open_corpus(names)
    assert list(sentences) == ["c one", "c two", "a one", "a two", "b one", "b two"]
    assert sentences.report["lines"] == 6


def test_the_fingerprint_follows_the_content_alone(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("one\ntwo\n")
    (tmp_path / "c.txt").write_text("one\ntoo\n")
    first, same, other = (open_corpus(f"{tmp_path}/{name}.txt").fingerprint for name in "abc")
    assert first == same != other


def test_an_edited_file_is_converted_again(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "before"}\n')
    assert list(open_corpus(str(path))) == ["before"]
    path.write_text('{"text": "afterwards"}\n')
    assert list(open_corpus(str(path))) == ["afterwards"]


def test_columns_and_breaks_inside_a_field(tmp_path):
    path = tmp_path / "corpus.csv"
    path.write_bytes(b'text,other\r\n"first\nhalf\r\nend",x\r\nsecond,y\r\n')
    assert list(open_corpus(str(path))) == ["first half end", "second"]
    assert list(open_corpus(str(path), "other")) == ["x", "y"]


def test_a_very_long_line_is_cut_between_characters(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST", 10)
    path = tmp_path / "corpus.txt"
    path.write_text("1234567890\n12345678é9\n123456789é\n漢字漢字漢字\n", encoding="utf-8")
    assert list(open_corpus(str(path))) == ["1234567890", "12345678é", "123456789", "漢字漢"]


@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (b"good\nba\xffd\n", 2, 7),
        (b"\xe9", 1, 0),
        (b"\xef\xbb\xbfgood\n\nlatin \xe9 one\n", 3, 15),
        (b"good\ncut \xe2\x82", 2, 9),
        (b"surrogate \xed\xa0\x80\n", 1, 10),
    ],
)
def test_invalid_utf8_is_named_by_file_line_and_byte(tmp_path, content, line, byte):
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    message = refusal(str(path))
    assert f"{path} line {line}, byte {byte}:" in message


def test_invalid_utf8_beyond_the_first_block(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 4)
    path = tmp_path / "corpus.txt"
    path.write_bytes("éé\nabc\n漢字漢字\nx".encode() + b"\x80\n")
    assert "line 4, byte 23:" in refusal(str(path))


@pytest.mark.parametrize("kind", [".txt.gz", ".txt.xz"])
def test_a_truncated_archive_is_refused_each_time(tmp_path, kind):
    path = tmp_path / f"corpus{kind}"
    whole = CONTENT[kind]
    path.write_bytes(whole[: len(whole) // 2])
    for _ in range(2):  # nothing half read is left in the cache
        assert str(path) in refusal(str(path))
    path.write_bytes(b"no archive")
    assert str(path) in refusal(str(path))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"id,sentence\n1,x\n", ["no column 'text'", "id, sentence", "data.column"]),
        ("a.tsv", b"", ["no column 'text'"]),
        ("a.csv", b"id,text\n1,x\n2\n", ["line 3", "1 fields", "field 2"]),
        ("a.csv", b"text\ncaf\xe9\n", ["not UTF-8"]),
        ("a.jsonl", b'{"text": "x"}\n{"txt": "y"}\n', ["line 2", "no key 'text'"]),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', ["line 2", "not JSON"]),
        ("a.jsonl", b'{"text": null}\n', ["line 1", "NoneType"]),
        ("a.jsonl", b"[1]\n", ["line 1"]),
        ("a.jsonl", b'{"text": "\\ud83d"}\n', ["line 1", "surrogate"]),
        ("a.jsonl", b"[" * 100_000, ["line 1", "not JSON"]),
        ("a.txt", b"", ["no sentence"]),
        ("a.txt", b"\n \n\r\n", ["no sentence in 3 lines"]),
        ("a.parquet", b"PAR1", ["unknown kind", ".jsonl"]),
    ],
)
def test_what_is_refused(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    message = refusal(str(path))
    assert str(path) in message
    for word in words:
        assert word in message


def test_what_is_not_there(tmp_path):
    assert "no such file" in refusal(f"{tmp_path}/absent.txt")
    assert "no file matches" in refusal(f"{tmp_path}/*.txt")
    assert "is a directory" in refusal(str(tmp_path))
    assert "data.files is empty" in refusal(" , ")


def split_plainly(content: bytes) -> list[str]:
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.removesuffix(b"\r").decode() for line in lines if any(byte > 32 for byte in line)]


def first_wrong_byte(content: bytes) -> int | None:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


PIECES = ["a", "b c", "\n", "\r\n", "\r", " ", "\t", "\x0b", "\x0c", "\x85", "\u2028", "é", "漢", "😀", "\ufeff", "\x00"]
SMALL = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SMALL
@given(st.lists(st.sampled_from(PIECES), max_size=30), st.integers(3, 9))
def test_lines_that_span_blocks(tmp_path, pieces, block):
    content = "".join(pieces).encode()
    expected = split_plainly(content)
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", block)
        if not expected:
            refusal(str(path))
            return
        sentences = open_corpus(str(path))
    assert list(sentences) == expected
    assert sentences.report["lines"] == content.count(b"\n") + (not content.endswith(b"\n"))


@SMALL
@given(st.binary(max_size=24) | st.lists(st.sampled_from([b"a", b"\n", b"\xc3", b"\xa9", b"\xe2", b"\x82", b"\xf0"])).map(b"".join))
def test_any_bytes_are_read_or_refused_at_the_right_place(tmp_path, content):
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", 3)
        if (wrong := first_wrong_byte(content)) is not None:
            assert f"line {content[:wrong].count(bytes([10])) + 1}, byte {wrong}:" in refusal(str(path))
            return
        if expected := split_plainly(content):
            sentences = open_corpus(str(path))
            assert [sentences[int(number)] for number in np.arange(len(sentences))] == expected
        else:
            refusal(str(path))
