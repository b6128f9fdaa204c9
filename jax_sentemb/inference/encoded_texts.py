"""Encode texts into a folder of vectors, which records their sources. An interrupted call can be continued."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from jax_sentemb import __version__
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.provenance import Source
from jax_sentemb.retrieval.vector_manifest import marked
from jax_sentemb.retrieval.vector_store import Vectors, write_shards
from jax_sentemb.types import EncodedSentences, OnCount, no_progress

if TYPE_CHECKING:
    from jax_sentemb.inference.encoder import SentenceEncoder

ROWS_PER_SHARD = 2048  # rows that an interruption loses at most
INTERMEDIATE = "intermediate"  # entry of the manifest of a folder that `encode_into` made, for a command that may delete it


def encoded_sources(encoder: "SentenceEncoder", name: str, corpus: Source, role: str = "document") -> dict[str, Any]:
    """Return the sources of vectors that are not normalised or quantised.

    Args:
        encoder: The model.
        name: The name of the model in messages.
        corpus: The texts.
        role: "document" or "query", which may have separate prompts; "" is the default prompt.
    """
    settings = encoder.encode_settings
    return {
        "corpus": corpus,
        "model": Source(name, encoder.fingerprint),
        "prompt": settings.prompt_text(role),
        "dtype": encoder.dtype,
        "normalize": False,
        "truncate_dim": encoder.truncate_dim,
        "max_seq_length": encoder.max_seq_length,
        "chunks": None,
        "precision": "float32",
    }


def encode_into(
    folder: Path,
    encoder: "SentenceEncoder",
    sources: dict[str, Any],
    texts: Lines,
    role: str,
    batch_size: int = 64,
    progress: OnCount = no_progress,
) -> Vectors:
    """Encode what is missing in a folder, and return the vectors, which are read on demand. An empty text has a row of zeros.

    Args:
        folder: An empty or new folder, or one of an interrupted call with the same sources.
        encoder: The model.
        sources: The sources that `encoded_sources` returns.
        texts: The texts.
        role: As for `encoded_sources`.
        batch_size: Texts that are encoded at once.
        progress: Called with the number of texts that were encoded or already existed.

    Raises:
        ConfigError: The folder has vectors of other texts or of another model.
        BusyError: Another process writes to the folder.
    """
    prompt = encoder.prompt_for(role)

    def encode(batch: list[str]) -> EncodedSentences:
        vectors = encoder.encode(batch, batch_size, False, prompt=prompt)
        return EncodedSentences(np.asarray(vectors), encoder.truncated)

    recorded = marked({**sources, "records": None, "rows_per_shard": ROWS_PER_SHARD, "format": "npy"})
    write_shards(folder, {"jax_sentemb": __version__, INTERMEDIATE: True, **recorded}, texts, encode, progress)
    return Vectors(folder, verify=False)


def texts_of_unknown_pieces(encoder: "SentenceEncoder", texts: Lines) -> Int[np.ndarray, " n"]:
    """Return the numbers of the texts of which the tokenizer knows no piece, such as emoji. Their vectors say nothing of them."""
    tokenizer, rows = encoder.tokenizer, []
    special = {getattr(tokenizer, name, tokenizer.unk_id) for name in ("unk_id", "cls_id", "sep_id")}
    for start in range(0, len(texts), ROWS_PER_SHARD):
        batch = [texts[row] for row in range(start, min(start + ROWS_PER_SHARD, len(texts)))]
        ids, _ = tokenizer.encode(batch, encoder.max_seq_length)
        rows += [
            start + row for row, pieces in enumerate(ids) if tokenizer.unk_id in pieces and special.issuperset(pieces.tolist())
        ]
    return np.array(rows, np.int64)
