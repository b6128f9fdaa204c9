"""Word vectors as an encoder: the states of a sentence are the vectors of its words."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from jax_sentemb.models.bert import Bert, BertConfig, BertOutput
from jax_sentemb.types import Array, Params, Rows

FROZEN = "frozen"  # the part of the parameters that no optimiser touches


@dataclass(frozen=True)
class WordsConfig:
    """A table of word vectors; the names are those of a BertConfig where they mean the same."""

    vocab_size: int
    hidden_size: int  # of a vector
    pad_token_id: int = 0
    max_position_embeddings: int = 2**20  # words have no positions
    position_offset: int = 0
    model_type: str = "words"


@dataclass(frozen=True)
class WordVectors:
    """Called as a Bert is; its parameters are {"vectors": [V, E]}, in the part "encoder" if trained, else in "frozen"."""

    config: WordsConfig
    dtype: Any = jnp.float32
    dropout: float = 0.0

    def apply(self, variables: dict[str, Params], rows: Rows, seeds: Array | None = None) -> BertOutput:
        """The vectors [R, T, E] of the words, 0 at padding."""
        vectors = variables["params"]["vectors"][rows.tokens]
        return BertOutput([jnp.where(rows.mask[..., None], vectors, 0.0)], {})


def make_encoder(config: BertConfig | WordsConfig, dtype: Any = jnp.float32, dropout: float = 0.1) -> Any:
    """A Bert or a table of word vectors: both map rows to token states."""
    return WordVectors(config, dtype) if isinstance(config, WordsConfig) else Bert(config, dtype, dropout)


def word_states(encoder: Any, params: Params, rows: Rows) -> Array:
    """Word vectors [R, T, E] from the part of `params` that has them."""
    part = params["encoder"] if "encoder" in params else params[FROZEN]
    return encoder.apply({"params": part}, rows).hidden[-1]
