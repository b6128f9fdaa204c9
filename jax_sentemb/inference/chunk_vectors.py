"""Encode texts of any length: average the vectors of their chunks, take their maximum, or return each."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.cosines import unit_length
from jax_sentemb.data.chunks import Chunk, Chunker
from jax_sentemb.types import OnCount

AT_ONCE = 1 << 14  # chunks that are encoded in one call, so that memory stays bounded

Embed = Callable[[list[str], OnCount], Float[np.ndarray, "texts width"]]


class ChunkEmbeddings(NamedTuple):
    """The embeddings of all chunks of some texts. Chunk i is `texts[rows[i]][starts[i]:ends[i]]`."""

    embeddings: Any  # [C, E]: an array or a tensor, as `encode` returns for texts
    rows: Int[np.ndarray, " chunks"]  # int64, ascending: the number of the text, 0 for a single str
    starts: Int[np.ndarray, " chunks"]  # int64: the first character
    ends: Int[np.ndarray, " chunks"]  # int64: the number after the last character


class ChunkEncoder(NamedTuple):
    """Encodes texts in chunks."""

    chunker: Chunker
    embed: Embed  # of chunks without prompt
    normalize: bool  # whether the model scales its embeddings to length 1

    def each(
        self, texts: Sequence[str], progress: OnCount
    ) -> tuple[Float[np.ndarray, "chunks width"], Int[np.ndarray, "3 chunks"]]:
        """Return the embedding of each chunk, and the number of its text, its start and its end."""
        chunks = [(row, chunk) for row, parts in enumerate(self.chunker.split(texts)) for chunk in parts]
        parts = [texts[row][chunk.start : chunk.end] for row, chunk in chunks]
        embeddings = self.embed(parts, _scaled(progress, len(set(texts)), len(set(parts))))
        spans = np.array([(row, chunk.start, chunk.end) for row, chunk in chunks], np.int64).reshape(-1, 3)
        return embeddings, spans.T

    def pooled(self, texts: Sequence[str], mode: str, progress: OnCount) -> Float[np.ndarray, "texts width"]:
        """Return an embedding for each text.

        It is that of the text if the text is not long. Otherwise it is the mean of the embeddings of its chunks, weighted by their
        numbers of tokens, or the maximum for each number of the embeddings. It has length 1 if those of the model have.
        """
        are_long = np.array(self.chunker.are_long(texts), bool)
        short = np.flatnonzero(~are_long)
        short_vectors = self.embed([texts[row] for row in short.tolist()], progress)
        vectors = np.empty((len(texts), short_vectors.shape[1]), np.float32)
        vectors[short] = short_vectors
        for rows, parts in self._blocks(texts, np.flatnonzero(are_long).tolist()):
            chunks = [texts[row][chunk.start : chunk.end] for row, chunks in zip(rows, parts, strict=True) for chunk in chunks]
            embeddings = self.embed(chunks, _scaled(progress, len({texts[row] for row in rows}), len(set(chunks))))
            pooled = pool(embeddings, parts, mode)
            vectors[rows] = unit_length(pooled) if self.normalize else pooled
        return vectors

    def _blocks(self, texts: Sequence[str], rows: list[int]) -> Iterator[tuple[list[int], list[list[Chunk]]]]:
        """Yield the numbers and chunks of some of the texts, with about AT_ONCE chunks or more."""
        block: tuple[list[int], list[list[Chunk]]] = [], []
        count = 0
        for row, chunks in zip(rows, self.chunker.split(texts[row] for row in rows), strict=True):
            block[0].append(row)
            block[1].append(chunks)
            count += len(chunks)
            if count >= AT_ONCE:
                yield block
                block, count = ([], []), 0
        if count:
            yield block


def pool(
    embeddings: Float[np.ndarray, "chunks width"], parts: Sequence[Sequence[Chunk]], mode: str
) -> Float[np.ndarray, "texts width"]:
    """Return the mean by tokens, or the maximum, of the embeddings of the chunks of each text; float32."""
    counts = np.array([len(chunks) for chunks in parts])
    firsts = np.cumsum(counts) - counts
    if mode == "max":
        return np.maximum.reduceat(embeddings, firsts)
    weights = np.array([max(chunk.tokens, 1) for chunks in parts for chunk in chunks], np.float64)
    sums = np.add.reduceat(embeddings * weights[:, None], firsts)
    return (sums / np.add.reduceat(weights, firsts)[:, None]).astype(np.float32)


def _scaled(progress: OnCount, texts: int, chunks: int) -> OnCount:
    """Return a function that is called with numbers of finished chunks and calls `progress` with numbers of finished texts.

    Equal chunks and equal texts count once, since each is encoded once.
    """
    finished = reported = 0

    def report(count: int) -> None:
        nonlocal finished, reported
        finished += count
        progress(finished * texts // chunks - reported)
        reported = finished * texts // chunks

    return report
