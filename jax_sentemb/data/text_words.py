"""Find the words of a text in any script."""

import itertools
import re
import unicodedata

# Characters of scripts without spaces: Thai, Lao, Myanmar, Khmer, Hiragana, Katakana, Han.
SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
RUNS = re.compile(rf"([{SPACELESS}]{{2,}})|[{SPACELESS}]|[^{SPACELESS}\s]+")
LONG = re.compile(rf"[{SPACELESS}]{{2}}|.{{4,}}")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; for scripts without spaces the pairs of neighbouring characters."""
    text = unicodedata.normalize("NFKC", text).lower()
    words: list[str] = []
    for run in RUNS.finditer("".join(character if _is_of_word(character) else " " for character in text)):
        words += map("".join, itertools.pairwise(run[1])) if run[1] else [run[0]]
    return words


def long_words_of(text: str) -> set[str]:
    """Return the distinct words of four characters or more, and the pairs of scripts without spaces."""
    return set(filter(LONG.match, words_of(text)))


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
