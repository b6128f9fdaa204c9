"""Approximate search by cosine with an HNSW graph (Malkov and Yashunin 2018) in a file, through the faiss package."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Real

from jax_sentemb.errors import ConfigError
from jax_sentemb.files import replacing, sole_writer
from jax_sentemb.retrieval.search import CORPUS, Hits, VectorSource, prepare


def build_index(vectors: VectorSource, file: Path) -> None:
    """Writes an HNSW graph of the vectors to a file. All vectors are in memory while the graph is built or searched."""
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 200
    for start in range(0, len(vectors), CORPUS):
        index.add(np.asarray(prepare(vectors[start : start + CORPUS], True)))
    with sole_writer(file), replacing(file) as partial:
        faiss.write_index(index, str(partial))


def search_index(queries: Real[np.ndarray, "*queries width"], file: Path, top_k: int = 10, effort: int = 128) -> Hits:
    """Same as `search`, but approximate, with a file of `build_index`. A larger `effort` misses fewer rows and takes longer."""
    faiss = _faiss()
    try:
        index = faiss.read_index(str(file))
    except RuntimeError as error:
        raise ConfigError(f"{file} cannot be read as an index: {str(error).splitlines()[0][:200]}") from None
    queries = np.atleast_2d(queries)
    if index.d != queries.shape[1]:
        raise ConfigError(f"{file} is an index of {index.d} dimensions, the queries have {queries.shape[1]}")
    kept = min(top_k, index.ntotal)
    index.hnsw.efSearch = max(effort, kept)
    scores, rows = index.search(np.asarray(prepare(queries, True)), kept)
    return Hits(rows.astype(np.int64), scores)


def _faiss() -> Any:
    try:
        import faiss  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError("an approximate index needs the faiss package: pip install 'jax_sentemb[ann]'") from None
    return faiss
