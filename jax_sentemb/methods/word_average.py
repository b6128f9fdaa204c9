"""The average of word vectors: nothing is learned. A baseline, and a way to hand word vectors on as a sentence encoder."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.base import Learned, Method
from jax_sentemb.models.word_vectors import check_words, pooled_states, word_states
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class Encoded(NamedTuple):
    sentences: Array  # [B, E]


@dataclass
class WordAverage(Method):
    """The mean of a sentence's word vectors, of which unknown words have the vector 0. `params` are the word vectors alone."""

    pooling: str = "mean"

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """No part of the parameters beside word vectors."""
        return ()

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if the encoder is not a table of word vectors."""
        check_words(encoder)
        if self.pooling != "mean":
            raise ConfigError(f"method.pooling={self.pooling!r}: word vectors are averaged, mean")

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """The word vectors."""
        return Learned(dict(loaded))

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """The averages."""
        return Encoded(self.embed(encoder, params, batch.rows))

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Zero: there is nothing to learn."""
        return jnp.zeros(()), ({}, None)

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """The average over real tokens."""
        return pooled_states(word_states(encoder, params, rows), rows.mask, "mean")
