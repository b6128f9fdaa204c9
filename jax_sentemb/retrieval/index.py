"""Search approximately by cosine with an HNSW graph (Malkov and Yashunin 2018) in a file, through the faiss package.

The file is in the format of faiss, followed by a line of JSON that names the sources of the vectors. faiss ignores this line.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Real

from jax_sentemb import provenance
from jax_sentemb.cosines import rounded
from jax_sentemb.errors import ConfigError, DataError, Setting, first_line
from jax_sentemb.files import replacing, sole_writer
from jax_sentemb.provenance import SEARCH_INDEX, Source
from jax_sentemb.retrieval.search import CORPUS_BLOCK, Hits
from jax_sentemb.retrieval.sources import VectorSource, check_vectors, original_rows, prepare, rows_with_text
from jax_sentemb.retrieval.vector_store import Vectors
from jax_sentemb.types import OnProgress, no_progress

BLOCK = 1 << 20  # bytes that are hashed at once
LAST_LINE_LIMIT = 1 << 16  # bytes at the end of the file that are searched for the last line


def build_index(
    vectors: VectorSource, file: Path, sources: Mapping[str, Any] | None = None, progress: OnProgress = no_progress
) -> None:
    """Write an HNSW graph of vectors to a file. All vectors are in memory while the graph is built or searched.

    Args:
        vectors: The vectors [N, E].
        file: The file to write.
        sources: What the vectors were made from; by default what `vector_sources` returns.
        progress: Called with the number of rows in the graph, and with the number of all rows.

    Raises:
        NumericsError: A vector is not finite. Nothing is written then.
    """
    faiss = _faiss()
    mark = provenance.mark(SEARCH_INDEX, vector_sources(vectors) if sources is None else sources)
    vectors, numbers = rows_with_text(vectors)
    graph = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 200
    index = faiss.IndexIDMap(graph)
    progress(0, len(vectors))
    for start in range(0, len(vectors), CORPUS_BLOCK):
        rows = np.arange(start, min(start + CORPUS_BLOCK, len(vectors)))
        block = np.asarray(prepare(vectors[start : start + CORPUS_BLOCK], True))
        check_vectors(block)
        index.add_with_ids(block, original_rows(rows, numbers))
        progress(int(rows[-1]) + 1, len(vectors))
    with sole_writer(file), replacing(file) as partial:
        faiss.write_index(index, str(partial))
        with partial.open("rb+") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            line = {"bytes": size, "sha256": _digest(stream, size), provenance.KEY: mark}
            stream.write(f"\n{json.dumps(line)}\n".encode())


def search_index(
    queries: Real[np.ndarray, "*queries width"],
    file: Path,
    top_k: int = 10,
    effort: int = 128,
    sources: Mapping[str, Any] | None = None,
    verify: bool = True,
) -> Hits:
    """Search an index approximately, and return what `search` returns.

    Args:
        queries: The queries [Q, E].
        file: A file that `build_index` wrote.
        top_k: The number of results for a query.
        effort: The number of candidates that the search considers. A larger number misses fewer rows and takes longer.
        sources: What the index must have been made from; None accepts any sources.
        verify: Whether to compare the file with its SHA-256.

    Raises:
        ConfigError: The queries have another width than the index, or faiss is not installed.
        DataError: The index is damaged, or was made from other sources.
        NumericsError: A query is not finite.
    """
    faiss = _faiss()
    check_index(file, sources or {}, verify)
    try:
        index = faiss.read_index(str(file))
    except RuntimeError as error:
        raise DataError(f"--index {file} cannot be read as an index: {first_line(error)}; delete it, and make it again") from None
    queries = np.atleast_2d(queries)
    if index.d != queries.shape[1]:
        raise ConfigError(f"--index {file} has {index.d} dimensions, the queries have {queries.shape[1]}; use one model for both")
    prepared = np.asarray(prepare(queries, True))
    check_vectors(prepared)
    k = min(top_k, index.ntotal)
    faiss.downcast_index(index.index).hnsw.efSearch = max(effort, k)
    scores, rows = index.search(prepared, k)
    return Hits(rows.astype(np.int64), rounded(scores, index.d))


def vector_sources(vectors: VectorSource) -> dict[str, Any]:
    """Return what vectors on disk were made from, or the SHA-256 of vectors in memory."""
    if isinstance(vectors, Vectors):
        return vectors.sources
    digest = hashlib.sha256(repr(tuple(vectors.shape)).encode())
    for start in range(0, len(vectors), CORPUS_BLOCK):
        digest.update(np.ascontiguousarray(vectors[start : start + CORPUS_BLOCK], np.float32).data)
    return {"vectors": Source("an array", digest.hexdigest())}


def check_index(file: Path, sources: Mapping[str, Any], verify: bool) -> None:
    """Raise DataError for an index that is damaged or was made from other sources."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(stream.seek(0, os.SEEK_END) - LAST_LINE_LIMIT, 0))
            line = _parse(stream.read().removesuffix(b"\n").rpartition(b"\n")[2])
            provenance.check(f"--index {file}", line, SEARCH_INDEX, sources)
            stream.seek(0)
            size = line.get("bytes")
            is_intact = isinstance(size, int) and 0 <= size < file.stat().st_size
            if isinstance(size, int) and is_intact and verify:
                is_intact = _digest(stream, size) == line.get("sha256")
    except OSError as error:
        raise DataError(f"--index {file}: {error.strerror}") from None
    if not is_intact:
        raise DataError(
            Setting("--index", file), " is damaged: its size or SHA-256 differs from its last line; ", *SEARCH_INDEX.remedy
        )


def _digest(stream: IO[bytes], size: int) -> str:
    """Return the SHA-256 of the next `size` bytes."""
    digest = hashlib.sha256()
    while size and (block := stream.read(min(size, BLOCK))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()


def _parse(line: bytes) -> dict[str, Any]:
    """Return the content of the last line; {} if it is damaged."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _faiss() -> Any:
    try:
        import faiss  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError("an approximate index needs the faiss package: pip install faiss-cpu numkong usearch") from None
    return faiss
