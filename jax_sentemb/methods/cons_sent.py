"""ConsSent: an encoder learns to tell whole sentences from perturbed ones, or which parts belong together (Brahma 2018)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import class_loss, ranking_loss
from jax_sentemb.methods import Learned
from jax_sentemb.models.rnn import init_rnn, run_rnn
from jax_sentemb.models.words import word_states
from jax_sentemb.text.examples import Corpus, Examples
from jax_sentemb.text.perturb import CLASSIFIED, RANKED
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class Encoded(NamedTuple):
    sentences: Array  # [B, 2H], or [B, 2, 2H] for the tasks that rank
    label: Array | None  # float32 [B]


@dataclass
class ConsSent:
    """A bidirectional LSTM over word vectors, the maximum over time of both directions as embedding [2 hidden].

    task: "D" deletes `k` random tokens of half of the sentences, "P" permutes k, "I" inserts k, "R" replaces k, and two linear
    layers and a third tell which sentences are whole; "N" and "C" part a sentence, at random or by a cut, and rank its second part
    among `k` by dot product. The maximum is over real tokens (InferSent, whose encoder this is, let padding win; the paper does
    not say). `params`: "lstm", "classifier" (D, P, I, R), and the word vectors.
    """

    task: str = "R"
    k: int = 2
    hidden: int = 2048
    classifier_width: int = 512
    pooling: str = "max"

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        if encoder.config.model_type != "words":
            raise ConfigError("this method works on word vectors: build the config with encoder=Words(vectors=...)")
        if self.task not in CLASSIFIED + RANKED:
            raise ConfigError(f"method.task={self.task!r} is not one of {', '.join(CLASSIFIED + RANKED)}")
        least = 1 if self.task in ("D", "I", "R") else 2
        if self.k < least:
            raise ConfigError(f"method.k={self.k} must be at least {least} for task {self.task}")
        if self.task in RANKED and self.k > batch_size:
            raise ConfigError(f"method.k={self.k} candidates are more than data.batch_size={batch_size}")
        if min(self.hidden, self.classifier_width) < 1 or self.pooling != "max":
            raise ConfigError("method: hidden and classifier_width must be at least 1, pooling max")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Sentences made inconsistent, or cut in two."""
        return corpus.perturbed(self.task, self.k, seed)

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """A fresh LSTM and classifier around the word vectors, both as torch initialises them."""
        lstm_key, *keys = jax.random.split(key, 4)
        params: Params = {**loaded, "lstm": init_rnn(lstm_key, "lstm", encoder.config.hidden_size, self.hidden)}
        if self.task in CLASSIFIED:
            widths = (2 * self.hidden, self.classifier_width, self.classifier_width, 2)
            params["classifier"] = {
                name: _linear(layer_key, *widths[place : place + 2])
                for place, (name, layer_key) in enumerate(zip(("first", "second", "output"), keys, strict=True))
            }
        return Learned(params)

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """The embedding of every text."""
        vectors = self.embed(encoder, params, batch.rows)
        return Encoded(vectors.reshape(*batch.tokens.shape[:-1], -1), batch.label)

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Cross entropy over whole or not, or over the candidates."""
        if self.task in RANKED:
            loss, accuracy = ranking_loss(encoded.sentences[:, 0], encoded.sentences[:, 1], self.k)
            return loss, ({"accuracy": accuracy}, None)
        values = encoded.sentences
        for name in ("first", "second", "output"):  # nothing between the layers, as in InferSent's classifier
            layer = params["classifier"][name]
            values = jnp.matmul(values, layer["kernel"], precision="highest") + layer["bias"]
        loss, accuracy = class_loss(values, encoded.label.astype(jnp.int32))
        return loss, ({"accuracy": accuracy}, None)

    def after(self, state: TrainState, carry: Any) -> TrainState:
        """Nothing to do."""
        return state

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """The maximum over real tokens of both directions; 0 for a sentence without any."""
        states = run_rnn("lstm", params["lstm"], word_states(encoder, params, rows), rows.mask, encoder.dtype).states
        largest = jnp.where(rows.mask[..., None], states, -jnp.inf).max(axis=1)
        return jnp.where(rows.mask.any(axis=1, keepdims=True), largest, 0.0)


def _linear(key: Array, inputs: int, outputs: int) -> Params:
    kernel_key, bias_key = jax.random.split(key)
    bound = inputs**-0.5
    return {
        "kernel": jax.random.uniform(kernel_key, (inputs, outputs), jnp.float32, -bound, bound),
        "bias": jax.random.uniform(bias_key, (outputs,), jnp.float32, -bound, bound),
    }
