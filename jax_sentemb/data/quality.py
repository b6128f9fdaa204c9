"""Suspicious characters and length statistics of a corpus."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.workers import Reader, texts_in_parts

SAMPLE = 50_000  # sentences whose lengths are measured
CHUNK = 1000
LONG = 1 << 16  # bytes of a line that is hardly a sentence
OVERLONG = f"longer than {LONG} bytes"

# UTF-8 that was decoded as Latin-1 or Windows-1252: an accented letter, a curly quote, Cyrillic, an emoji, a byte order mark.
_SECOND = (
    "[\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122]"
)
_MOJIBAKE = (
    f"\u00c3{_SECOND}|\u00c2[\u00a0-\u00bf]|\u00e2[\u0080\u20ac]{_SECOND}|(?:[\u00d0\u00d1]{_SECOND}){{2}}|"
    f"\u00f0[\u0178\u009f]{_SECOND}|\u00ef\u00bb\u00bf"
)
_HTML = r"</?[A-Za-z][\w:-]*(?:\s[^<>]*)?/?>|&(?:[A-Za-z]{2,8}|#\d{2,7}|#x[\da-fA-F]{2,6});"
_OTHER_WORD = "it makes a word a different word: delete it"
# Name -> pattern and advice.
ODD = {
    "NUL": ("\0", "text files do not contain it: check that this is a text file"),
    "control character": ("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]", "delete it, for instance with tr -d"),
    "lone carriage return": ("\r", "it does not end a line: replace it by a line feed where a line ends"),
    "replacement character U+FFFD": ("\ufffd", "text was lost when the file was converted: convert the original again"),
    "byte order mark inside": ("\ufeff", "files were joined without removing their byte order marks: delete it"),
    "zero-width character": (
        "[\u00ad\u200b-\u200d\u2060]",
        f"{_OTHER_WORD} (but keep U+200C and U+200D where the script needs them)",
    ),
    "direction mark": ("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", _OTHER_WORD),
    "mojibake": (_MOJIBAKE, "UTF-8 was decoded as Latin-1: repair it, for instance with the package ftfy"),
    "HTML tag or entity": (_HTML, "extract the text"),
    OVERLONG: ("(?!)", "only its first tokens are read: write one sentence a line"),
}
_PATTERNS = {name: re.compile(pattern) for name, (pattern, _) in ODD.items()}
_ANY = re.compile("|".join(f"(?:{pattern})" for pattern, _ in ODD.values()))


class Found(NamedTuple):
    """The number of sentences with a kind of suspicious character, and the first of them, from 0."""

    sentences: int
    first: int


def odd_sentences(sentences: Sentences) -> dict[str, Found]:
    """The kinds of ODD that occur in the corpus."""
    found: dict[str, Found] = {}

    def note(name: str, number: int) -> None:
        known = found.get(name, Found(0, number))
        found[name] = Found(known.sentences + 1, known.first)

    for number, text in enumerate(sentences):
        if len(text) > LONG // 4 and len(text.encode()) > LONG:
            note(OVERLONG, number)
        if text.isascii() and text.isprintable() and "<" not in text and "&" not in text:
            continue
        if _ANY.search(text):
            for name, pattern in _PATTERNS.items():
                if pattern.search(text):
                    note(name, number)
    return found


def token_lengths(sentences: Sentences, tokenizer: Reader, longest: int) -> Int[np.ndarray, " sample"]:
    """Numbers of tokens of up to SAMPLE evenly spaced sentences; int64, sorted.

    Special tokens are included. Sentences are cut after `longest` tokens.
    """
    numbers = range(0, len(sentences), -(-len(sentences) // SAMPLE))
    lengths = [
        len(row)
        for start in range(0, len(numbers), CHUNK)
        for texts in texts_in_parts(sentences, numbers[start : start + CHUNK])
        for row in tokenizer.encode(texts, longest)[0]
    ]
    return np.sort(np.array(lengths, np.int64))


def histogram(lengths: Int[np.ndarray, " sample"], edges: Sequence[int]) -> dict[int, int]:
    """Edge -> number of lengths that are greater than the previous edge and not greater than this one."""
    counts = np.bincount(np.searchsorted(edges, lengths), minlength=len(edges))
    return dict(zip(edges, counts.tolist(), strict=True))
