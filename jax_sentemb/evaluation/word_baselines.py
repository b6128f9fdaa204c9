"""Encode sentences without training: averages of word vectors, tf-idf, overlap of words."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int

from jax_sentemb.cosines import unit_length
from jax_sentemb.data.word_vectors import WordVectorTable
from jax_sentemb.evaluation.postprocess import first_component
from jax_sentemb.types import OnProgress, no_progress

# English function words: pronouns, articles, prepositions, conjunctions, auxiliaries and the most general adverbs.
FUNCTION_WORDS = """
    a about above after again against all am an and any are as at be because been before being below between both but by
    can cannot could did do does doing down during each few for from further had has have having he her here hers herself him
    himself his how i if in into is it its itself just me more most my myself no nor not now of off on once only or other our
    ours ourselves out over own same she should so some such than that the their theirs them themselves then there these they
    this those through to too under until up very was we were what when where which while who whom why will with would you
    your yours yourself yourselves 's 't n't 'd 'll 'm 're 've"""
STOP_WORDS = frozenset(FUNCTION_WORDS.split())
PROJECTIONS = 4096  # Wieting and Kiela 2019
TF_IDF = "tf-idf"  # in tables, and as the name of a model
AT_ONCE = 256  # sentences whose cosines to all others are computed at once


class WordAverageBaseline(NamedTuple):
    """Mean of the vectors of the known words of a sentence (split at spaces); zero for a sentence without known words.

    An unknown word is looked up again in lower case. `sif` is the a of the weights a / (a + p), where p is the frequency of a word
    in the fitted sentences (Arora, Liang and Ma 2017; their removal of the first component is a separate option). With
    `stop_words`, function words and punctuation are left out, as for the GloVe row of Reimers and Gurevych (2019).
    """

    vectors: WordVectorTable
    sif: float | None = None
    stop_words: bool = False
    weights: dict[str, float] | None = None

    def fit(self, sentences: Sequence[str]) -> "WordAverageBaseline":
        """Return the baseline with word weights from these sentences; unchanged without `sif`."""
        if self.sif is None:
            return self
        counts = Counter(word for sentence in sentences for word in sentence.split())
        total = max(1, sum(counts.values()))
        return self._replace(weights={word: self.sif / (self.sif + count / total) for word, count in counts.items()})

    def encode(self, sentences: Sequence[str]) -> Float[np.ndarray, "sentences width"]:
        """Return the embeddings of the sentences, float32."""
        index = {word: row for row, word in enumerate(self.vectors.words)}
        rows, columns, values = [], [], []
        for number, sentence in enumerate(sentences):
            for word in sentence.split():
                if self.stop_words and (word.lower() in STOP_WORDS or not re.search(r"\w", word)):
                    continue
                column = index.get(word, index.get(word.lower()))
                if column is not None:
                    rows.append(number)
                    columns.append(column)
                    values.append(1.0 if self.weights is None else self.weights.get(word, 1.0))
        table = scipy.sparse.csr_matrix((values, (rows, columns)), shape=(len(sentences), len(index)))
        word_counts = np.bincount(rows, minlength=len(sentences)).astype(np.float64)
        return (np.asarray(table @ self.vectors.vectors, np.float64) / np.maximum(word_counts, 1)[:, None]).astype(np.float32)


class RandomProjection(NamedTuple):
    """Random projections of word vectors, the largest value over the words of a sentence (BOREP, Wieting and Kiela 2019).

    The matrix is uniform between -1/sqrt(d) and 1/sqrt(d) for word vectors of d numbers. Unknown words are looked up and left out
    as by `WordAverageBaseline`; a sentence without known words is zero.
    """

    vectors: WordVectorTable
    width: int = PROJECTIONS
    seed: int = 0

    def encode(self, sentences: Sequence[str]) -> Float[np.ndarray, "sentences width"]:
        """Return the embeddings of the sentences, float32."""
        index = {word: row for row, word in enumerate(self.vectors.words)}
        size = self.vectors.vectors.shape[1]
        matrix = np.random.RandomState(self.seed).uniform(-(size**-0.5), size**-0.5, (self.width, size)).astype(np.float32)
        result = np.zeros((len(sentences), self.width), np.float32)
        for number, sentence in enumerate(sentences):
            rows = [index.get(word, index.get(word.lower())) for word in sentence.split()]
            known = [row for row in rows if row is not None]
            if known:
                result[number] = (self.vectors.vectors[known].astype(np.float32) @ matrix.T).max(axis=0)
        return result


class FixedSIF(NamedTuple):
    """SIF whose word weights and first component come from other text than the sentences it encodes.

    The other text is often raw, while the similarity sets are tokenised and in lower case. Both are therefore divided in the same
    way (`split_words`); otherwise "The" and "cats." had other frequencies than "the" and "cats".
    """

    average: WordAverageBaseline
    component: Float[np.ndarray, " width"]

    @classmethod
    def fitted(cls, vectors: WordVectorTable, sif: float, sentences: Sequence[str]) -> "FixedSIF":
        """Return the baseline with weights and first component of `sentences`; the vectors need the words of these, too."""
        words = list(map(split_words, sentences))
        average = WordAverageBaseline(vectors, sif).fit(words)
        return cls(average, first_component(average.encode(words)))

    def encode(self, sentences: Sequence[str]) -> Float[np.ndarray, "sentences width"]:
        """Return the embeddings of the sentences, float32."""
        vectors = self.average.encode(list(map(split_words, sentences)))
        return (vectors - np.outer(vectors @ self.component, self.component)).astype(np.float32)


def split_words(sentence: str) -> str:
    """Return a sentence in lower case, with spaces around its words and punctuation marks; "isn't" becomes "isn 't"."""
    return " ".join(re.findall(r"'\w+|\w+|[^\w\s]", sentence.lower()))


class DocumentCounts(NamedTuple):
    """Count how many of `total` sentences have each word."""

    sentences: Counter[str]
    total: int

    @classmethod
    def of(cls, sentences: Sequence[str]) -> "DocumentCounts":
        """Count the sentences with each word."""
        return cls(Counter(word for sentence in sentences for word in set(_words(sentence))), len(sentences))

    def rarity(self, word: str) -> float:
        """Return the inverse document frequency log((1 + N) / (1 + n)), which is largest for a word that no sentence has."""
        return math.log((1 + self.total) / (1 + self.sentences[word]))


class TfIdf(NamedTuple):
    """Word counts times inverse document frequency, scaled to length 1.

    The columns are the words of the fitted sentences. If these are more than `width`, the columns are `width` random projections
    of them by signs (Johnson and Lindenstrauss 1984), which change a cosine by about 1 / sqrt(width). Without `counts` the
    document frequencies are those of the fitted sentences.
    """

    width: int = PROJECTIONS
    counts: DocumentCounts | None = None
    weights: dict[str, float] | None = None  # by word, in the order of columns

    def fit(self, sentences: Sequence[str]) -> "TfIdf":
        """Return the baseline with the words of these sentences."""
        own = DocumentCounts.of(sentences)
        counts = self.counts or own
        return self._replace(weights={word: counts.rarity(word) for word in sorted(own.sentences)})

    def encode(self, sentences: Sequence[str]) -> Float[np.ndarray, "sentences columns"]:
        """Return the embeddings of the sentences, float32; a sentence without a fitted word is zero."""
        table = self.weighted_counts(sentences)
        if table.shape[1] <= self.width:
            return unit_length(table.toarray())
        signs = 2 * np.random.default_rng(0).integers(0, 2, (table.shape[1], self.width), np.int8) - 1
        return unit_length(np.asarray(table @ signs.astype(np.float32)))

    def weighted_counts(self, sentences: Sequence[str]) -> scipy.sparse.csr_matrix:
        """Return the weighted counts [sentences, fitted words], float32, not scaled or projected."""
        weights = self.weights or {}
        index = {word: column for column, word in enumerate(weights)}
        words = [(row, word) for row, sentence in enumerate(sentences) for word in _words(sentence) if word in index]
        rows, columns = [row for row, _ in words], [index[word] for _, word in words]
        values = np.array([weights[word] for _, word in words], np.float32)
        return scipy.sparse.csr_matrix((values, (rows, columns)), shape=(len(sentences), len(index)))


def _words(sentence: str) -> list[str]:
    return re.findall(r"\w+", sentence.lower())


def _cosine(first: Sequence[str], second: Sequence[str], weight: Callable[[str], float]) -> np.ndarray:
    """Return the cosine [N] of the weighted word counts of each pair; 0 if a sentence has no word."""
    scores = np.zeros(len(first))
    for row, pair in enumerate(zip(first, second, strict=True)):
        first_weights, second_weights = (
            {word: weight(word) * n for word, n in Counter(_words(sentence)).items()} for sentence in pair
        )
        length = math.hypot(*first_weights.values()) * math.hypot(*second_weights.values())
        scores[row] = sum(first_weights[word] * second_weights.get(word, 0.0) for word in first_weights) / length if length else 0.0
    return scores


def bag_of_words_similarity(first: Sequence[str], second: Sequence[str]) -> Float[np.ndarray, " pairs"]:
    """Return the cosine of the word counts of each pair, float64."""
    return _cosine(first, second, lambda word: 1.0)


def tf_idf_similarity(first: Sequence[str], second: Sequence[str], corpus: Sequence[str]) -> Float[np.ndarray, " pairs"]:
    """Return the cosine of word counts times inverse document frequencies in `corpus`, float64."""
    return _cosine(first, second, DocumentCounts.of(corpus).rarity)


def nearest_by_words(
    sentences: Sequence[str], count: int, progress: OnProgress = no_progress
) -> Int[np.ndarray, "sentences count"]:
    """Return the rows of the `count` nearest other sentences of each sentence by the cosine of tf-idf, fewer if there are fewer.

    The document frequencies are those of the sentences, and nothing is projected.
    """
    table = TfIdf().fit(sentences).weighted_counts(sentences)
    lengths = np.maximum(scipy.sparse.linalg.norm(table, axis=1), np.finfo(np.float32).tiny)
    table = scipy.sparse.diags(1 / lengths).dot(table).astype(np.float32).tocsr()
    columns, count = table.T.tocsr(), min(count, len(sentences) - 1)
    nearest = np.empty((len(sentences), count), np.int64)
    progress(0, len(sentences))
    for start in range(0, len(sentences), AT_ONCE):
        cosines = (table[start : start + AT_ONCE] @ columns).toarray()
        rows = np.arange(len(cosines))[:, None]
        cosines[rows, start + rows] = -1  # others have at least 0, since no weight is negative
        best = np.sort(np.argpartition(cosines, -count, axis=1)[:, -count:], axis=1)  # of equal cosines the first row is first
        nearest[start : start + AT_ONCE] = best[rows, np.argsort(-cosines[rows, best], axis=1, kind="stable")]
        progress(start + len(cosines), len(sentences))
    return nearest
