"""tf-idf as an encoder, for the scores of studies that take an encoder."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.evaluation.word_baselines import DocumentCounts, TfIdf

SENTENCES = 100_000  # of a corpus, in which words are counted


class Words(NamedTuple):
    """tf-idf with the words of the texts on which `fitted` was fitted."""

    fitted: TfIdf

    def encode(self, sentences: Sequence[str], **options: Any) -> np.ndarray:
        """Return the embeddings, whose length is 1 whatever the options."""
        return self.fitted.encode(list(sentences))


def word_encoders(texts: Sequence[str], corpus_file: str, corpus_name: str) -> dict[str, Words]:
    """Return tf-idf with the frequencies of the texts themselves, and with those of the first SENTENCES of a corpus."""
    corpus = open_corpus(corpus_file)
    counts = DocumentCounts.of([corpus[row] for row in range(min(SENTENCES, len(corpus)))])
    return {
        "tf-idf of these sentences": Words(TfIdf().fit(texts)),
        f"tf-idf of {corpus_name}": Words(TfIdf(counts=counts).fit(texts)),
    }
