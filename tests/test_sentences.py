"""Sentences of text files: which bytes are a line, how much of a line is read, and what the fingerprint depends on."""

import hashlib

import pytest

from jax_sentemb.data import sentences as module
from jax_sentemb.data.sentences import FIRST_READ, Sentences
from jax_sentemb.data.text_file import BLOCK
from jax_sentemb.errors import DataError


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
        ("\u3000\n\u3000\u3042\n\xa0\n".encode(), ["\u3000\u3042"]),
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


def test_a_very_long_line_is_read_whole_or_refused(tmp_path, monkeypatch):
    texts = ["a" + "\u00e9" * 1_500_000, "last", "b" * FIRST_READ, "c" * (FIRST_READ - 1), "d" * (FIRST_READ + BLOCK)]
    for end in ("", "\n", "\r\n" + "\n" * FIRST_READ):
        corpus = corpus_of(tmp_path, ("\n".join(texts) + end).encode())
        assert list(corpus) == texts
    monkeypatch.setattr(module, "LONGEST", BLOCK)
    with pytest.raises(DataError, match=r"corpus\.txt line 1 has more than 1,048,576 bytes"):
        corpus[0]
    assert corpus[1] == "last"
