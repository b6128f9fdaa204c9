"""Find the best documents for each query, by the best chunk of each document."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from jax_sentemb.retrieval.search import Hits

MORE = 4  # times as many chunks as documents are searched, then as many times more for queries whose documents are too few

SearchChunks = Callable[[Int[np.ndarray, " n"], int], Hits]  # of the queries with these numbers, for this number of chunks


def best_chunks(search: SearchChunks, queries: int, documents: Int[np.ndarray, " chunks"], top_k: int) -> Hits:
    """Return the best chunk of each of the best documents. A search is repeated with more chunks until the documents are enough.

    Args:
        search: Returns the best chunks of some queries, best first. Missing results have the row -1.
        queries: The number of queries.
        documents: The document of each chunk that can be found; -1 for other rows.
        top_k: The number of documents for a query.

    Returns:
        The rows of chunks and their scores [Q, min(top_k, documents)], best first; the row -1 where the search finds too few.
    """
    searchable = int((documents >= 0).sum())
    top_k = min(top_k, len(np.unique(documents[documents >= 0])))
    rows, scores = np.full((queries, top_k), -1), np.zeros((queries, top_k), np.float32)
    remaining, count = np.arange(queries if top_k else 0), top_k
    while len(remaining):
        count = min(count * MORE, searchable)
        hits = search(remaining, count)
        best = [_first_of_documents(indices, documents, top_k) for indices in hits.indices]
        for query, columns, indices, values in zip(remaining, best, hits.indices, hits.scores, strict=True):
            rows[query, : len(columns)], scores[query, : len(columns)] = indices[columns], values[columns]
        remaining = remaining[[len(columns) < top_k for columns in best]] if count < searchable else remaining[:0]
    return Hits(rows, scores)


def _first_of_documents(
    rows: Int[np.ndarray, " n"], documents: Int[np.ndarray, " chunks"], top_k: int
) -> Int[np.ndarray, " documents"]:
    """Return the positions of the first row of each document, in their order."""
    positions = np.flatnonzero(rows >= 0)
    first = np.unique(documents[rows[positions]], return_index=True)[1]
    return positions[np.sort(first)[:top_k]]
