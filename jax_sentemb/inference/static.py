"""Embed sentences with a static table: the mean of the vectors of a sentence's pieces, without running an encoder."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float, Int

from jax_sentemb.cosines import unit_length
from jax_sentemb.data.containers import check_text
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.formats.encode_settings import EncodeSettings
from jax_sentemb.formats.static_embedding import StaticTable
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.types import Array, EncodedSentences, OnCount, Params, Rows, no_progress

AT_ONCE = 1 << 12  # sentences of a product: their pieces and vectors stay small
LONGEST = 1 << 20  # pieces of a sentence: a table has no positions


class Pieces:
    """The pieces of sentences without [CLS] and [SEP], as ids and as a matrix of their shares."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.inner = tokenizer
        self.pad_id, self.unk_id = tokenizer.pad_id, tokenizer.unk_id
        self.vocab_size, self.fingerprint = tokenizer.vocab_size, tokenizer.fingerprint

    def encode(self, sentences: Sequence[str], max_seq_length: int) -> tuple[list[Int[np.ndarray, " _"]], int]:
        """Return int32 ids of each sentence, at most `max_seq_length`, and how many sentences were cut."""
        check_text(sentences)
        ids, counts = self.inner.pieces(sentences, max_seq_length)
        rows = np.split(ids, np.cumsum(counts)[:-1]) if len(counts) else []
        return [row[:max_seq_length] for row in rows], int((counts > max_seq_length).sum())

    def share_matrix(self, sentences: Sequence[str], max_seq_length: int, rows: int) -> "tuple[scipy.sparse.csr_matrix, int]":
        """Return the share of each piece in each sentence, float32 [N, rows], and how many sentences were cut."""
        check_text(sentences)
        ids, counts = self.inner.pieces(sentences, max_seq_length)
        lengths = np.minimum(counts, max_seq_length)
        if (cut := int((counts > lengths).sum())) > 0:
            position = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
            ids = ids[position < max_seq_length]
        shares = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
        return scipy.sparse.csr_matrix((shares, ids, np.append(0, np.cumsum(lengths))), shape=(len(lengths), rows)), cut


class StaticEmbedder(Embedder):
    """An Embedder of the parameters {"table": float32 [V, E]}; 0 for a sentence without a piece.

    It runs on the host, with one sparse product for many sentences, so nothing is compiled or padded. `embed` does the same on a
    device.
    """

    def __init__(self, tokenizer: Tokenizer, normalize: bool, max_seq_length: int = LONGEST) -> None:
        self._pieces, self._normalize = Pieces(tokenizer), normalize
        super().__init__(self._mean, self._pieces, max_seq_length)

    def encode(
        self,
        params: Params,
        sentences: Sequence[Any],
        batch_size: int = 0,
        progress: OnCount = no_progress,
        max_seq_length: int = 0,
    ) -> EncodedSentences:
        """Return embeddings float32 [N, E] in the order of the sentences; `batch_size` is not used."""
        table = np.asarray(params["table"], np.float32)
        numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentences))}
        distinct = list(numbers)
        vectors = np.zeros((len(distinct), table.shape[1]), np.float32)
        longest, truncated = max_seq_length or self.max_seq_length, 0
        for start in range(0, len(distinct), AT_ONCE):
            batch = distinct[start : start + AT_ONCE]
            matrix, cut = self._pieces.share_matrix(batch, longest, len(table))
            vectors[start : start + AT_ONCE] = matrix @ table
            truncated += cut
            progress(len(batch))
        vectors = unit_length(vectors) if self._normalize else vectors
        return EncodedSentences(vectors[[numbers[sentence] for sentence in sentences]], truncated)

    def width(self, params: Params) -> int:
        """Return the width of an embedding."""
        return params["table"].shape[1]

    def sharded(
        self, sharding: jax.sharding.Sharding | None, batch_size: int = 64, buckets: Sequence[int] | None = None
    ) -> "StaticEmbedder":
        """Return a copy: a table is read on the host, without padding."""
        return StaticEmbedder(self._pieces.inner, self._normalize, self.max_seq_length)

    def table_of(self, params: Params, max_seq_length: int, settings: EncodeSettings) -> StaticTable:
        """Return the table as it is written to files."""
        cut = None if max_seq_length >= LONGEST else max_seq_length
        return StaticTable(np.asarray(params["table"], np.float32), self._pieces.inner, self._normalize, cut, settings)

    def _mean(self, params: Params, rows: Rows) -> Float[Array, "rows width"]:
        return mean_of_pieces(params["table"], rows, self._normalize)


def mean_of_pieces(table: Float[Array, "pieces width"], rows: Rows, normalize: bool) -> Float[Array, "rows width"]:
    """Return the mean of the vectors of each row's pieces, float32 [R, E], at unit length if `normalize`; 0 without pieces."""
    weights = rows.mask.astype(jnp.float32)
    means = jnp.einsum("rte,rt->re", table[rows.tokens], weights) / jnp.maximum(weights.sum(1, keepdims=True), 1)
    return means / jnp.maximum(jnp.linalg.norm(means, axis=-1, keepdims=True), 1e-12) if normalize else means
