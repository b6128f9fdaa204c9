"""The average of word vectors, without training: a baseline, and a way to export word vectors as a sentence encoder."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.methods.base import InitialState, Method, Objective, Seeds
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.word_vectors import check_words, pooled_states, word_states
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class Averages(NamedTuple):
    """The average of the word vectors of each sentence."""

    sentences: Float[Array, "batch embedding"]


@dataclass
class WordAverage(Method):
    """The mean of a sentence's word vectors; unknown words have the vector 0. `params` are the word vectors."""

    pooling: str = setting("mean", choices=("mean",))  # the mean

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if the encoder is not a table of word vectors."""
        check_words(encoder)
        super().check(encoder, batch_size)

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the word vectors."""
        return InitialState(dict(loaded))

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> Averages:
        """Average the word vectors of each sentence."""
        return Averages(self.embed(encoder, params, batch.rows))

    def objective(self, params: Params, state: TrainState, encoded: Averages) -> Objective:
        """Return zero, since nothing is trained."""
        return jnp.zeros(()), ({}, None)

    def embed(self, encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows embedding"]:
        """Return the average over real tokens."""
        return pooled_states(word_states(encoder, params, rows), rows.mask, "mean")
