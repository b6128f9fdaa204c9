"""Baselines that need no training: averages of word vectors, tf-idf, and what is done to a set of embeddings as a whole.

A baseline is fitted to all sentences of a task, SentEval's `prepare`, and encodes them then.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_matrix

from jax_sentemb.errors import NumericsError
from jax_sentemb.text.vectors import WordVectors

# Function words of English: pronouns, articles, prepositions, conjunctions, auxiliaries and the most general adverbs.
FUNCTION_WORDS = """
    a about above after again against all am an and any are as at be because been before being below between both but by
    can cannot could did do does doing down during each few for from further had has have having he her here hers herself him
    himself his how i if in into is it its itself just me more most my myself no nor not now of off on once only or other our
    ours ourselves out over own same she should so some such than that the their theirs them themselves then there these they
    this those through to too under until up very was we were what when where which while who whom why will with would you
    your yours yourself yourselves 's 't n't 'd 'll 'm 're 've"""
STOP_WORDS = frozenset(FUNCTION_WORDS.split())


class WordAverage(NamedTuple):
    """Mean of the vectors of a sentence's known words (split at spaces); zero for a sentence without one.

    A word that is unknown as it stands is looked up in lower case. `sif`: words weigh a / (a + p) with their share p of the
    words of the fitted sentences (Arora, Liang and Ma 2017; their removal of the first component is a step of its own).
    `stop_words`: function words and punctuation are left out, as for the GloVe row of Reimers and Gurevych (2019).
    """

    vectors: WordVectors
    sif: float | None = None
    stop_words: bool = False
    weights: dict[str, float] | None = None

    def fit(self, sentences: Sequence[str]) -> "WordAverage":
        """With word weights from these sentences; the same without `sif`."""
        if self.sif is None:
            return self
        counts = Counter(word for sentence in sentences for word in sentence.split())
        total = max(1, sum(counts.values()))
        return self._replace(weights={word: self.sif / (self.sif + count / total) for word, count in counts.items()})

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """float32 [N, E]."""
        index = {word: row for row, word in enumerate(self.vectors.words)}
        rows, columns, values = [], [], []
        for number, sentence in enumerate(sentences):
            for word in sentence.split():
                if self.stop_words and (word.lower() in STOP_WORDS or not re.search(r"\w", word)):
                    continue
                place = index.get(word, index.get(word.lower()))
                if place is not None:
                    rows.append(number)
                    columns.append(place)
                    values.append(1.0 if self.weights is None else self.weights.get(word, 1.0))
        table = csr_matrix((values, (rows, columns)), shape=(len(sentences), len(index)))
        known = np.bincount(rows, minlength=len(sentences)).astype(np.float64)
        return (np.asarray(table @ self.vectors.vectors, np.float64) / np.maximum(known, 1)[:, None]).astype(np.float32)


class TfIdf(NamedTuple):
    """Word counts times inverse document frequency, log((1 + N) / (1 + n)), over the fitted sentences.

    The columns are the `width` words in most of the fitted sentences, or all if there are fewer; memory is N x width.
    """

    width: int = 4096
    frequencies: dict[str, float] | None = None  # idf by word, in the order of columns

    def fit(self, sentences: Sequence[str]) -> "TfIdf":
        """With the words and document frequencies of these sentences."""
        documents = Counter(word for sentence in sentences for word in set(_words(sentence)))
        common = sorted(documents.items(), key=lambda entry: (-entry[1], entry[0]))[: self.width]
        return self._replace(frequencies={word: math.log((1 + len(sentences)) / (1 + count)) for word, count in common})

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """float32 [N, columns]."""
        frequencies = self.frequencies or {}
        index = {word: column for column, word in enumerate(frequencies)}
        table = np.zeros((len(sentences), len(index)), np.float32)
        for number, sentence in enumerate(sentences):
            for word in _words(sentence):
                if word in index:
                    table[number, index[word]] += frequencies[word]
        return table


class Views(NamedTuple):
    """The views that embeddings consist of: what is done to a set of embeddings is done to each view, then views are joined.

    Without widths an embedding is one piece that stays as it is.
    """

    widths: tuple[int, ...] = ()
    average: bool = False  # else side by side

    def each(self, change: Callable[[np.ndarray], np.ndarray], vectors: np.ndarray) -> np.ndarray:
        """Embeddings [N, E] with each view changed as a set."""
        return np.concatenate([change(part) for part in self._parts(vectors)], axis=1)

    def joined(self, vectors: np.ndarray) -> np.ndarray:
        """Embeddings from views [N, sum of widths]: at unit length, averaged or side by side."""
        if not self.widths:
            return vectors
        parts = [unit_length(part) for part in self._parts(vectors)]
        return sum(parts[1:], parts[0]) / len(parts) if self.average else np.concatenate(parts, axis=1)

    def _parts(self, vectors: np.ndarray) -> list[np.ndarray]:
        return np.split(vectors, np.cumsum(self.widths)[:-1], axis=1) if self.widths else [vectors]


NO_VIEWS = Views()


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Embeddings [N, E] at length 1; a zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def first_component(vectors: np.ndarray) -> np.ndarray:
    """First right singular vector of embeddings [N, E] that are not centred: float64 [E]."""
    vectors = _finite(vectors)
    wide = vectors.shape[0] < vectors.shape[1]  # the smaller of the two products has the same singular values
    product = vectors @ vectors.T if wide else vectors.T @ vectors
    top = eigh(product, subset_by_index=[len(product) - 1] * 2)[1][:, 0]
    return unit_length((top @ vectors)[None])[0] if wide else top


def remove_first_component(vectors: np.ndarray) -> np.ndarray:
    """Embeddings [N, E] without their first component (Arora, Liang and Ma 2017; Tang and de Sa 2019): float64."""
    vectors = _finite(vectors)
    component = first_component(vectors)
    return vectors - np.outer(vectors @ component, component)


def whiten(vectors: np.ndarray) -> np.ndarray:
    """Embeddings [N, E] with mean 0 and covariance 1 (BERT-whitening, Su et al. 2021): float64.

    Directions in which the embeddings do not vary, such as those beyond the N - 1 that N sentences span, become 0.
    """
    vectors = _finite(vectors)
    centred = vectors - vectors.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred / max(1, len(vectors)))
    varies = values > 1e-10 * max(values[-1], 0.0)
    return (centred @ axes * np.where(varies, 1 / np.sqrt(np.where(varies, values, 1.0)), 0.0)) if varies.any() else centred


def _finite(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, np.float64)
    if not np.isfinite(vectors).all():
        raise NumericsError("the embeddings are not finite (NaN or Inf)")
    return vectors


def _words(sentence: str) -> Iterable[str]:
    return re.findall(r"[a-z]+", sentence.lower())
