"""What a look at every sentence of a corpus finds: characters that hardly anybody put there on purpose, and lengths."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jax_sentemb.data.corpus_files import LONGEST, Sentences
from jax_sentemb.data.workers import Reader

SAMPLE = 50_000  # sentences whose whole length is looked at
CHUNK = 1000
OVERLONG = f"longer than {LONGEST} bytes"

# UTF-8 that somebody took for Latin-1 or Windows-1252: an accented letter, a curly quote, Cyrillic, an emoji, a byte order mark.
_SECOND = (
    "[\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122]"
)
_MOJIBAKE = (
    f"\u00c3{_SECOND}|\u00c2[\u00a0-\u00bf]|\u00e2[\u0080\u20ac]{_SECOND}|(?:[\u00d0\u00d1]{_SECOND}){{2}}|"
    f"\u00f0[\u0178\u009f]{_SECOND}|\u00ef\u00bb\u00bf"
)
_HTML = r"</?[A-Za-z][\w:-]*(?:\s[^<>]*)?/?>|&(?:[A-Za-z]{2,8}|#\d{2,7}|#x[\da-fA-F]{2,6});"
_OTHER_WORD = "a word with one is another word: delete them"
# Name -> pattern, and what to do about it.
ODD = {
    "NUL": ("\0", "no text file has them: is it one?"),
    "control character": ("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]", "delete them, for instance with tr -d"),
    "lone carriage return": ("\r", "it ends no line here: replace it by a line feed where a line ends"),
    "replacement character U+FFFD": ("\ufffd", "text was lost when the file was converted: convert the original again"),
    "byte order mark inside": ("\ufeff", "files were joined with their marks: delete them"),
    "zero-width character": ("[\u00ad\u200b-\u200d\u2060]", f"{_OTHER_WORD} (but U+200C and U+200D where the script has them)"),
    "direction mark": ("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", _OTHER_WORD),
    "mojibake": (_MOJIBAKE, "UTF-8 was read as Latin-1 somewhere: repair it, for instance with the package ftfy"),
    "HTML tag or entity": (_HTML, "take the text out of it"),
    OVERLONG: ("(?!)", "the rest of them is not read: one sentence, one line"),
}
_PATTERNS = {name: re.compile(pattern) for name, (pattern, _) in ODD.items()}
_ANY = re.compile("|".join(f"(?:{pattern})" for pattern, _ in ODD.values()))


class Found(NamedTuple):
    """How many sentences have something, and which is the first, from 0."""

    sentences: int
    first: int


def odd_sentences(sentences: Sentences) -> dict[str, Found]:
    """The kinds of ODD that occur."""
    found: dict[str, Found] = {}

    def note(name: str, number: int) -> None:
        known = found.get(name, Found(0, number))
        found[name] = Found(known.sentences + 1, known.first)

    for number, text in enumerate(sentences):
        if len(text) > LONGEST // 4 - 4 and len(text.encode()) > LONGEST - 4:  # it was cut, and the last character with it
            note(OVERLONG, number)
        if text.isascii() and text.isprintable() and "<" not in text and "&" not in text:
            continue
        if _ANY.search(text):
            for name, pattern in _PATTERNS.items():
                if pattern.search(text):
                    note(name, number)
    return found


def token_lengths(sentences: Sentences, tokenizer: Reader, longest: int) -> np.ndarray:
    """Tokens of up to SAMPLE evenly spaced sentences, special ones included and at most `longest` counted; int64, sorted."""
    numbers = range(0, len(sentences), -(-len(sentences) // SAMPLE))
    lengths = [
        len(row)
        for start in range(0, len(numbers), CHUNK)
        for row in tokenizer.encode([sentences[number] for number in numbers[start : start + CHUNK]], longest)[0]
    ]
    return np.sort(np.array(lengths, np.int64))


def histogram(lengths: np.ndarray, edges: Sequence[int]) -> dict[int, int]:
    """Edge -> how many lengths lie above the edge before and not above this one."""
    counts = np.bincount(np.searchsorted(edges, lengths), minlength=len(edges))
    return dict(zip(edges, counts.tolist(), strict=True))
