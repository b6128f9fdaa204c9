"""An LSTM language model as a sentence encoder, ConsSent's baseline without perturbations (Brahma 2018, section 5)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.losses import sampled_softmax_loss
from jax_sentemb.methods.base import InitialState, Method, Objective, Seeds
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.heads import init_linear
from jax_sentemb.models.rnn import init_rnn, run_rnn
from jax_sentemb.models.word_vectors import check_words, vector_part, word_states
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class WordStates(NamedTuple):
    """The state after each word, the numbers of the words as floats (exact below 2^24), and the token mask as numbers."""

    states: Float[Array, "batch tokens hidden"]
    tokens: Float[Array, "batch tokens"]
    mask: Float[Array, "batch tokens"]


@dataclass
class LanguageModel(Method):
    """A forward LSTM over word vectors that predicts each next word; the embedding is its last state [hidden].

    A word's score is the dot product of its vector with a linear map of the state, plus a bias of the word. The right word is
    compared with `candidates` words that are drawn uniformly from the vocabulary for each batch (sampled softmax); 0: all words.
    The paper does not say how its softmax is computed. `params`: "lstm", "output", "word_bias", and the word vectors.
    """

    hidden: int = setting(4096, least=1)  # width of the LSTM
    candidates: int = setting(8192, least=0)  # words that the right one is compared with, drawn for each batch; 0: all
    pooling: str = setting("last", choices=("last",))  # the last state

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """Return the parts of the parameters that an embedding depends on, in addition to word vectors."""
        return ("lstm",)

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        check_words(encoder)
        super().check(encoder, batch_size)

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return a fresh LSTM and output layer, initialised as in torch, and the word vectors."""
        lstm_key, output_key = jax.random.split(key)
        inputs = encoder.config.hidden_size
        return InitialState({
            **loaded,
            "lstm": init_rnn(lstm_key, "lstm", inputs, self.hidden, directions=("forward",)),
            "output": init_linear(output_key, self.hidden, inputs),
            "word_bias": jnp.zeros(encoder.config.vocab_size),
        })  # fmt: skip

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> WordStates:
        """Return the state after every word."""
        rows = batch.rows
        states = run_rnn("lstm", params["lstm"], word_states(encoder, params, rows), rows.mask, encoder.dtype).states
        return WordStates(states, rows.tokens.astype(jnp.float32), rows.mask.astype(jnp.float32))

    def objective(self, params: Params, state: TrainState, encoded: WordStates) -> Objective:
        """Return the cross entropy of the next word."""
        vectors = vector_part(params)["vectors"]
        bias, count = params["word_bias"], len(vectors)
        output = params["output"]
        predicted = jnp.matmul(encoded.states[:, :-1], output["kernel"], precision="highest") + output["bias"]
        words, mask = encoded.tokens[:, 1:].astype(jnp.int32), encoded.mask[:, 1:]
        drawn, expected = jnp.arange(count), 0.0
        if 0 < self.candidates < count:
            key = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
            drawn = jax.random.randint(jax.random.fold_in(key, 1), (self.candidates,), 0, count)
            expected = jnp.log(self.candidates / count)  # of a word among the drawn ones; the right word is always there
        right = (predicted * vectors[words]).sum(-1) + bias[words]
        others = jnp.einsum("bte,ke->btk", predicted, vectors[drawn], precision="highest") + bias[drawn] - expected
        others = jnp.where(drawn == words[..., None], -jnp.inf, others)
        return sampled_softmax_loss(right, others, mask), ({}, None)

    def embed(self, encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows embedding"]:
        """Return the state after the last word."""
        return run_rnn("lstm", params["lstm"], word_states(encoder, params, rows), rows.mask, encoder.dtype).last
