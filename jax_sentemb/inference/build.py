"""Build the Embedder of a model from its description: a BERT with a pooling, a cross-encoder, or a model on word vectors."""

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
from jaxtyping import Float

from jax_sentemb.data.pairs import JoinedPairs
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import REPLACE_FILE, ModelFileError
from jax_sentemb.files import quote
from jax_sentemb.formats.run_dir import convolution_of, is_words
from jax_sentemb.formats.word_model import WordMethod, method_of
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.views import NO_VIEWS, Views
from jax_sentemb.methods.multi_view import MultiView
from jax_sentemb.models.architectures import make_encoder, transformer_config
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.dense import DENSE, apply_dense
from jax_sentemb.models.heads import pair_score
from jax_sentemb.models.pooling import sentence_embedding
from jax_sentemb.models.word_vectors import WordsConfig
from jax_sentemb.types import Array, Params, Rows

Embed = Callable[[Params, Rows], Float[Array, "rows width"]]


def build_embedder(
    description: dict[str, Any],
    tokenizer: Tokenizer | WordTokenizer,
    batch_size: int = 64,
    dtype: str = "float32",
    separate_views: bool = False,
    where: str = "model.json",
) -> Embedder:
    """Return the Embedder of a model.

    Args:
        description: What model.json of a run has. "encoder" and "max_seq_length" are always needed. A BERT also has "pooling" and,
            if they apply, "convolution", "dense" (the activations of layers after the pooling), "normalize" (to unit length) and
            "scores_pairs" (a cross-encoder). A model on word vectors has "method" and "settings".
        tokenizer: The tokenizer of the model.
        batch_size: Rows of a batch.
        dtype: Precision of the matrix products of a BERT.
        separate_views: Return the views of a multi-view model side by side, see `views_of`.
        where: The file of the description, for messages.

    Returns:
        A function (parameters, sentences) -> embeddings float32 [N, E], or of a cross-encoder (parameters, pairs) -> scores [N, 1].

    Raises:
        ModelFileError: The description fits no method of this package.
    """
    if is_words(description):
        return _word_embedder(description, tokenizer, batch_size, separate_views, where)
    config = transformer_config(description["encoder"])
    is_cross_encoder = description.get("scores_pairs", False)
    if is_cross_encoder:
        embed, parts = _pair_scores(config, dtype), ("encoder", "pooler", "classifier")
    else:
        convolution = convolution_of(description)
        windows = convolution and dataclasses.astuple(convolution)  # a hashable form, for the cache
        normalize, dense = bool(description.get("normalize")), tuple(description.get("dense", ()))
        embed = _sentence_vectors(config, dtype, description["pooling"], windows, normalize, dense)
        parts = ("encoder", *(["cnn"] if windows else []), *([DENSE] if dense else []))
    reader = JoinedPairs(tokenizer) if is_cross_encoder and isinstance(tokenizer, Tokenizer) else tokenizer
    return Embedder(embed, reader, description["max_seq_length"], batch_size, parts=parts)


# Cached, so that all models of a shape have one function: JAX compiles it once for a model in memory and its exports.
@lru_cache(maxsize=32)
def _sentence_vectors(
    config: BertConfig, dtype: str, pooling: str, windows: tuple | None, normalize: bool, dense: tuple[str, ...]
) -> Embed:
    encoder, convolution = make_encoder(config, jnp.dtype(dtype)), Convolution(*windows) if windows else None

    def embed(params: Params, rows: Rows) -> Float[Array, "rows width"]:
        vectors = sentence_embedding(encoder, params, rows, pooling, convolution)
        vectors = apply_dense(params.get(DENSE, {}), dense, vectors)
        if normalize:
            vectors = vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return vectors

    return embed


@lru_cache(maxsize=32)
def _pair_scores(config: BertConfig, dtype: str) -> Embed:
    encoder = make_encoder(config, jnp.dtype(dtype))

    def embed(params: Params, rows: Rows) -> Float[Array, "rows scores"]:
        return pair_score(encoder, params, rows)

    return embed


def _word_embedder(
    description: dict[str, Any], tokenizer: Tokenizer | WordTokenizer, batch_size: int, separate_views: bool, where: str
) -> Embedder:
    method, length = method_of(description, where), description.get("max_seq_length")
    if not isinstance(length, int) or length < 1:
        raise ModelFileError(f"{where}: max_seq_length={quote(length)} is not a number of words; {REPLACE_FILE}")
    embed = _word_vectors(type(method), tuple(vars(method).items()), WordsConfig(**description["encoder"]), separate_views)
    return Embedder(embed, tokenizer, length, batch_size)


@lru_cache(maxsize=32)
def _word_vectors(method_type: type[WordMethod], settings: tuple, config: WordsConfig, separate_views: bool) -> Embed:
    method, encoder = method_type(**dict(settings)), make_encoder(config)

    def embed(params: Params, rows: Rows) -> Float[Array, "rows width"]:
        if separate_views and isinstance(method, MultiView):
            return jnp.concatenate(method.views_of(encoder, params, rows), axis=-1)
        return method.embed(encoder, params, rows)

    return embed


def views_of(description: dict[str, Any]) -> Views:
    """Return the layout of the embeddings of `build_embedder(..., separate_views=True)`."""
    method = method_of(description, "model.json")
    if not isinstance(method, MultiView):
        return NO_VIEWS
    poolings = method.pooling.split("+")
    counts = [len(poolings) - (name[0] != "f" and "last" in poolings) for name in method.embedding_params]
    return Views(tuple(2 * method.hidden * count for count in counts), average=method.ensemble == "average")
