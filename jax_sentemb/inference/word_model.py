"""Embedders of models on word vectors."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import shown
from jax_sentemb.formats.word_model import method_of, read_files
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.views import NO_VIEWS, Views
from jax_sentemb.methods.multi_view import MultiView
from jax_sentemb.models.word_vectors import WordsConfig, WordVectors
from jax_sentemb.types import Array, Params, Rows


def embedder_of(
    metadata: dict[str, Any], tokenizer: WordTokenizer, batch_size: int = 64, where: str = "model.json", apart: bool = False
) -> Embedder:
    """(params, sentences) -> float32 [N, E]; ModelFileError for facts that describe no method of ours.

    `apart`: the views of a method that has several stay as they are, side by side, for `views_of`.
    """
    method = method_of(metadata, where)
    encoder, length = WordVectors(WordsConfig(**metadata["encoder"])), metadata.get("max_seq_length")
    if not isinstance(length, int) or length < 1:
        raise ModelFileError(f"{where}: max_seq_length={shown(length)} is no number of words")

    def embed(params: Params, rows: Rows) -> Array:
        if apart and isinstance(method, MultiView):
            return jnp.concatenate(method.views_of(encoder, params, rows), axis=-1)
        return method.embed(encoder, params, rows)

    return Embedder(embed, tokenizer, length, batch_size)


def views_of(metadata: dict[str, Any]) -> Views:
    """What the embeddings of `embedder_of(..., apart=True)` consist of."""
    method = method_of(metadata, "model.json")
    if not isinstance(method, MultiView):
        return NO_VIEWS
    poolings = method.pooling.split("+")
    counts = [len(poolings) - (name[0] != "f" and "last" in poolings) for name in method.embedding_params]
    return Views(tuple(2 * method.hidden * count for count in counts), average=method.ensemble == "average")


def read_word_model(directory: str | Path, batch_size: int = 64) -> Callable[[Sequence[str]], np.ndarray]:
    """Sentences -> float32 [N, E] by a directory; ModelFileError where it is damaged or changed."""
    metadata, params, tokenizer = read_files(directory)
    embedder = embedder_of(metadata, tokenizer, batch_size, str(Path(directory) / "model.json"))
    return functools.partial(embedder, params)
