"""An LSTM language model as a sentence encoder, ConsSent's baseline without perturbations (Brahma 2018, section 5)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import sampled_softmax_loss
from jax_sentemb.methods.base import Learned, Method
from jax_sentemb.models.heads import init_linear
from jax_sentemb.models.rnn import init_rnn, run_rnn
from jax_sentemb.models.word_vectors import check_words, vector_part, word_states
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class Encoded(NamedTuple):
    states: Array  # [B, T, H]
    tokens: Array  # float32 [B, T]: word numbers, exact below 2^24
    mask: Array  # float32 [B, T]


@dataclass
class LanguageModel(Method):
    """A forward LSTM over word vectors that predicts each next word; the embedding is its last state [hidden].

    A word's score is the dot product of its vector with a linear map of the state, plus a bias of the word. `candidates` words,
    drawn evenly from the vocabulary for each batch, stand against the right one (sampled softmax); 0: all of them. The paper does
    not say how its softmax is computed. `params`: "lstm", "output", "word_bias", and the word vectors.
    """

    hidden: int = 4096
    candidates: int = 8192
    pooling: str = "last"

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """The parts of the parameters that an embedding depends on, beside word vectors."""
        return ("lstm",)

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        check_words(encoder)
        if self.hidden < 1 or self.candidates < 0 or self.pooling != "last":
            raise ConfigError("method: hidden must be at least 1, candidates at least 0, pooling last")

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """A fresh LSTM and output layer around the word vectors, as torch initialises them."""
        lstm_key, output_key = jax.random.split(key)
        inputs = encoder.config.hidden_size
        return Learned({
            **loaded,
            "lstm": init_rnn(lstm_key, "lstm", inputs, self.hidden, directions=("forward",)),
            "output": init_linear(output_key, self.hidden, inputs),
            "word_bias": jnp.zeros(encoder.config.vocab_size),
        })  # fmt: skip

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """The state after every word."""
        rows = batch.rows
        states = run_rnn("lstm", params["lstm"], word_states(encoder, params, rows), rows.mask, encoder.dtype).states
        return Encoded(states, rows.tokens.astype(jnp.float32), rows.mask.astype(jnp.float32))

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Cross entropy of the next word."""
        vectors = vector_part(params)["vectors"]
        bias, count = params["word_bias"], len(vectors)
        output = params["output"]
        predicted = jnp.matmul(encoded.states[:, :-1], output["kernel"], precision="highest") + output["bias"]
        words, mask = encoded.tokens[:, 1:].astype(jnp.int32), encoded.mask[:, 1:]
        drawn, expected = jnp.arange(count), 0.0
        if 0 < self.candidates < count:
            key = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
            drawn = jax.random.randint(jax.random.fold_in(key, 1), (self.candidates,), 0, count)
            expected = jnp.log(self.candidates / count)  # of a word among the drawn; the right one is there for certain
        right = (predicted * vectors[words]).sum(-1) + bias[words]
        others = jnp.einsum("bte,ke->btk", predicted, vectors[drawn], precision="highest") + bias[drawn] - expected
        others = jnp.where(drawn == words[..., None], -jnp.inf, others)
        return sampled_softmax_loss(right, others, mask), ({}, None)

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """The state after the last word."""
        return run_rnn("lstm", params["lstm"], word_states(encoder, params, rows), rows.mask, encoder.dtype).last
