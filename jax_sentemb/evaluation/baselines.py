"""What needs no training: similarity of sentences from the words they share."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

WORD = re.compile(r"\w+")


def bag_of_words_similarity(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """Cosine of the lower-cased word counts of each pair, float64 [N]; 0 where a side has no word."""
    return np.array([_cosine(_counts(one), _counts(other)) for one, other in zip(first, second, strict=True)])


def _counts(sentence: str) -> Counter[str]:
    return Counter(WORD.findall(sentence.lower()))


def _cosine(first: Counter[str], second: Counter[str]) -> float:
    lengths = sum(n * n for n in first.values()) * sum(n * n for n in second.values())
    return sum(n * second[word] for word, n in first.items()) / lengths**0.5 if lengths else 0.0
