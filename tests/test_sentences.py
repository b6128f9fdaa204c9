"""Sentences of text files: which bytes are a line, how much of a line is read, and what the fingerprint depends on."""

import hashlib

import pytest

from jax_sentemb.data.sentences import LONGEST, Sentences


def corpus_of(folder, content, name="corpus.txt"):
    (folder / name).write_bytes(content)
    return Sentences([folder / name], folder / "cache")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\r\r\ntwo\rthree\n", ["one\r", "two\rthree"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        (b"\xef\xbb\xbf\n\xef\xbb\xbf\n", ["\ufeff"]),
        (b"\n \n\t\r\none\n\x00\n\n", ["one"]),
        ("a\u2028b\u0085c\x0bd\x0ce\x1cf\n".encode(), ["a\u2028b\u0085c\x0bd\x0ce\x1cf"]),
        (b" padded \n", [" padded "]),
    ],
)
def test_lines_end_at_line_feeds_only(tmp_path, content, expected):
    corpus = corpus_of(tmp_path, content)
    assert list(corpus) == expected
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    assert corpus.report == {"lines": lines, "blank": lines - len(expected), "bytes": len(content)}
    assert corpus.fingerprint == hashlib.sha256(content).hexdigest()


def test_the_fingerprint_is_of_the_content_and_of_nothing_else(tmp_path):
    first = corpus_of(tmp_path, b"ab\n", "first.txt").fingerprint
    assert corpus_of(tmp_path, b"ab\n", "second.txt").fingerprint == first
    assert corpus_of(tmp_path, b"ac\n", "second.txt").fingerprint != first
    corpus_of(tmp_path, b"a", "left.txt"), corpus_of(tmp_path, b"b\n", "right.txt")
    both = Sentences([tmp_path / "left.txt", tmp_path / "right.txt"], tmp_path / "cache")
    assert both.fingerprint != first  # other sentences, the same bytes


def test_of_a_very_long_line_only_the_beginning_is_read(tmp_path):
    long = "\u00e9" * 5_000_000
    corpus = corpus_of(tmp_path, f"a{long}\nlast\n{'b' * LONGEST}\n{'c' * LONGEST}".encode())
    assert corpus[0] == "a" + "\u00e9" * ((LONGEST - 1) // 2)
    assert corpus[1] == "last"
    assert [len(corpus[2]), len(corpus[3])] == [LONGEST, LONGEST]
