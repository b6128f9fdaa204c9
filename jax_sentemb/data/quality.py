"""Find suspicious characters in a corpus and measure the lengths of its sentences."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.workers import Reader, texts_in_parts

SAMPLE = 50_000  # sentences whose lengths are measured
CHUNK = 1000  # sentences that are tokenised at once
LONG = 1 << 16  # bytes; a longer line is hardly a sentence
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
_OTHER_WORD = "it is invisible and turns a word into a different one: delete it"
# Name -> pattern and advice.
SUSPICIOUS = {
    "NUL": ("\0", "text files do not contain it: check that this is a text file"),
    "control character": ("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]", "delete it, for instance with tr -d"),
    "lone carriage return": ("\r", "it does not end a line: replace it by a line feed if a line should end there"),
    "replacement character U+FFFD": ("\ufffd", "text was lost when the file was converted: convert the original again"),
    "byte order mark inside": ("\ufeff", "files were joined without removing their byte order marks: delete it"),
    "zero-width character": (
        "[\u00ad\u200b-\u200d\u2060]",
        f"{_OTHER_WORD} (but keep U+200C and U+200D if the script needs them)",
    ),
    "direction mark": ("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", _OTHER_WORD),
    "mojibake": (_MOJIBAKE, "UTF-8 was decoded as Latin-1: repair it, for instance with the package ftfy"),
    "HTML tag or entity": (_HTML, "extract the text"),
    OVERLONG: ("(?!)", "only its first tokens are read: write one sentence on each line"),
}
_PATTERNS = {name: re.compile(pattern) for name, (pattern, _) in SUSPICIOUS.items()}
_ANY = re.compile("|".join(f"(?:{pattern})" for pattern, _ in SUSPICIOUS.values()))


class Occurrences(NamedTuple):
    """The number of sentences with a suspicious character, and the number of the first of them, from 0."""

    sentences: int
    first: int


def find_suspicious(sentences: Sentences) -> dict[str, Occurrences]:
    """Return the entries of SUSPICIOUS that occur in the corpus."""
    occurrences: dict[str, Occurrences] = {}

    def count(name: str, number: int) -> None:
        earlier = occurrences.get(name, Occurrences(0, number))
        occurrences[name] = Occurrences(earlier.sentences + 1, earlier.first)

    for number, text in enumerate(sentences):
        if len(text) > LONG // 4 and len(text.encode()) > LONG:
            count(OVERLONG, number)
        if text.isascii() and text.isprintable() and "<" not in text and "&" not in text:
            continue
        if _ANY.search(text):
            for name, pattern in _PATTERNS.items():
                if pattern.search(text):
                    count(name, number)
    return occurrences


def token_lengths(sentences: Sentences, tokenizer: Reader, longest: int) -> Int[np.ndarray, " sample"]:
    """Return the numbers of tokens of up to SAMPLE evenly spaced sentences; int64, sorted.

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
    """Return for each edge the number of lengths that are greater than the previous edge and at most this edge."""
    counts = np.bincount(np.searchsorted(edges, lengths), minlength=len(edges))
    return dict(zip(edges, counts.tolist(), strict=True))
