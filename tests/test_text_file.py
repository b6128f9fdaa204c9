"""Scans of text files: binary files are refused, and a blank line is found before a line."""

import gzip
import sys

import numpy as np
import pytest

from jax_sentemb.data.text_file import SPACE, WHITE, follows_blank_line, scan
from jax_sentemb.errors import DataError


def test_what_is_no_text_is_refused(tmp_path):
    for number, content in enumerate(
        [gzip.compress(b"text\n" * 9), "text\n".encode("utf-16"), b"\x7fELF\x02\x01\xc0", b"\xff\xd8\xff\xe0JFIF"]
    ):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(content)
        with pytest.raises(DataError, match="not UTF-8"):
            scan(path, lambda starts: None)


def test_a_blank_line_may_hold_spaces_and_carriage_returns():
    content = b"a\n\nb\n \t\r\nc\nd"
    starts = np.array([content.index(letter) for letter in (b"b", b"c", b"d")])
    assert follows_blank_line(np.frombuffer(content, np.uint8), starts).tolist() == [True, True, False]


def test_a_blank_line_may_hold_white_space_of_any_script(tmp_path):
    assert all(character in WHITE for character in map(chr, range(SPACE + 1, sys.maxunicode)) if character.isspace())
    path, found = tmp_path / "a.txt", bytearray()
    path.write_text("猫\n\u3000\n犬\n\xa0 \u2003\nあ\n\u3042\u3000\n\u2029", encoding="utf-8")
    assert scan(path, found.extend)[:2] == (7, 4)
    content, starts = np.frombuffer(path.read_bytes(), np.uint8), np.frombuffer(found, np.int64)
    assert follows_blank_line(content, starts)[1:].tolist() == [True, True, False]


def test_a_blank_line_may_be_in_two_blocks(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n" + "\u3000".encode() * 4 + b"\nb\n")
    for block in range(3, 20):  # most of them end within a character
        monkeypatch.setattr("jax_sentemb.data.text_file.BLOCK", block)
        assert scan(path, lambda starts: None)[:2] == (3, 2)
