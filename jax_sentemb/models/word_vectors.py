"""Word vectors as an encoder: the states of a sentence are the vectors of its words."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, UInt

from jax_sentemb.errors import ConfigError
from jax_sentemb.models.bert import BertOutput
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.rnn import run_rnn
from jax_sentemb.types import Array, Params, Rows

FROZEN = "frozen"  # the part of the parameters that is not trained


@dataclass(frozen=True)
class WordsConfig:
    """A table of word vectors; fields with the meaning of a field of BertConfig have its name."""

    vocab_size: int
    hidden_size: int  # of a vector
    pad_token_id: int = 0
    max_position_embeddings: int = 2**20  # words have no positions
    position_offset: int = 0
    model_type: str = "words"


@dataclass(frozen=True)
class WordVectors:
    """An encoder whose token states are word vectors: {"vectors": [V, E]}, the part "encoder" if trained, else "frozen"."""

    config: WordsConfig
    dtype: DTypeLike = jnp.float32
    dropout: float = 0.0
    last_layers: int = 0  # word vectors have no layers

    def apply(self, variables: dict[str, Params], rows: Rows, seeds: UInt[Array, " rows"] | None = None) -> BertOutput:
        """Return the vectors [R, T, E] of the words, 0 at padding."""
        vectors = variables["params"]["vectors"][rows.tokens]
        return BertOutput([jnp.where(rows.mask[..., None], vectors, 0.0)], {})


def vector_part(params: Params) -> Params:
    """Return the part of the parameters with the word vectors: "encoder" if they are trained, else "frozen"."""
    return params["encoder"] if "encoder" in params else params[FROZEN]


def word_states(encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows tokens width"]:
    """Return the word vectors [R, T, E] of `rows`."""
    return encoder.apply({"params": vector_part(params)}, rows).hidden[-1]


def check_words(encoder: TokenEncoder) -> None:
    """Raise ConfigError if the encoder is not a table of word vectors."""
    if encoder.config.model_type != WordsConfig.model_type:
        raise ConfigError("this method works on word vectors: build the config with encoder=Words(vectors=...)")


def pooled_states(
    states: Float[Array, "rows tokens width"], mask: Bool[Array, "rows tokens"], pooling: str
) -> Float[Array, "rows width"]:
    """Return the "mean", "max" or "min" of states [R, T, E] over real tokens, [R, E]; 0 for a row without real tokens."""
    if pooling == "mean":
        return jnp.where(mask[..., None], states, 0.0).sum(1) / jnp.maximum(mask.sum(-1, keepdims=True), 1)
    sign = 1.0 if pooling == "max" else -1.0
    largest = jnp.where(mask[..., None], sign * states, -jnp.inf).max(axis=1)
    return jnp.where(mask.any(axis=1, keepdims=True), sign * largest, 0.0)


def lstm_max(encoder: TokenEncoder, params: Params, lstm: str, rows: Rows) -> Float[Array, "rows width"]:
    """Return the maximum over real tokens of the states of the LSTM `params[lstm]` (InferSent's BiLSTM-max).

    The published code of InferSent includes padding.
    """
    states = run_rnn("lstm", params[lstm], word_states(encoder, params, rows), rows.mask, encoder.dtype).states
    return pooled_states(states, rows.mask, "max")
