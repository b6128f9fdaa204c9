"""Rank documents by their words with BM25, the baseline that needs no model (extra `bm25`)."""

from collections.abc import Sequence
from types import ModuleType

import numpy as np

from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.evaluation.rankings import NO_DOCUMENT, Run

NAME = "BM25"
MISSING = "BM25 is left out, since it needs a package: pip install bm25s"


def package() -> ModuleType | None:
    """Return the package bm25s, None if it is not installed."""
    try:
        import bm25s
    except ImportError:
        return None
    return bm25s


def rank(queries: Sequence[str], documents: Lines, depth: int) -> Run:
    """Return the `depth` best documents of each query that share a word with it.

    Words are those of bm25s in lower case, without its English stop words. k1 is 1.5 and b is 0.75, with the formula of Lucene.
    Memory grows with the words of the documents.
    """
    bm25s = package()
    assert bm25s is not None
    texts = list(documents)
    words, depth = bm25s.tokenize(texts, show_progress=False), min(depth, len(texts))
    if not any(words.ids):
        return Run(np.full((len(queries), depth), NO_DOCUMENT, np.int64), np.zeros((len(queries), depth), np.float32))
    retriever = bm25s.BM25()
    retriever.index(words, show_progress=False)
    query_words = bm25s.tokenize(list(queries), return_ids=False, show_progress=False)
    rows, scores = retriever.retrieve(query_words, k=depth, show_progress=False)
    order = np.lexsort((rows, -scores), axis=1)
    rows, scores = np.take_along_axis(rows, order, 1).astype(np.int64), np.take_along_axis(scores, order, 1)
    return Run(np.where(scores > 0, rows, NO_DOCUMENT), scores)
