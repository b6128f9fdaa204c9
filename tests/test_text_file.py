"""Scans of text files: binary files are refused, and a blank line is found before a line."""

import gzip

import numpy as np
import pytest

from jax_sentemb.data.text_file import follows_blank_line, scan
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
