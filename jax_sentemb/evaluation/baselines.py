"""What needs no training: similarity of sentences from the words they share."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np


def _words(sentence: str) -> list[str]:
    return re.findall(r"[a-z]+", sentence.lower())


def _cosine(first: Sequence[str], second: Sequence[str], weight: Callable[[str], float]) -> np.ndarray:
    """Cosine [N] of weighted word counts, pair by pair; 0 where a sentence has no word."""
    scores = np.zeros(len(first))
    for row, pair in enumerate(zip(first, second, strict=True)):
        one, other = ({word: weight(word) * n for word, n in Counter(_words(sentence)).items()} for sentence in pair)
        length = math.hypot(*one.values()) * math.hypot(*other.values())
        scores[row] = sum(one[word] * other.get(word, 0.0) for word in one) / length if length else 0.0
    return scores


def bag_of_words_similarity(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """Baseline: cosine of the word counts of each pair, float64 [N]."""
    return _cosine(first, second, lambda word: 1.0)


def tf_idf_similarity(first: Sequence[str], second: Sequence[str], corpus: Sequence[str]) -> np.ndarray:
    """Baseline: cosine of word counts times the words' inverse document frequency in `corpus`, float64 [N]."""
    documents = Counter(word for sentence in corpus for word in set(_words(sentence)))
    return _cosine(first, second, lambda word: math.log((1 + len(corpus)) / (1 + documents[word])))
