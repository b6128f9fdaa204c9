"""InferSent: a BiLSTM-max encoder learns from labelled sentence pairs (Conneau et al. 2017), ConsSent's supervised baseline."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import softmax_cross_entropy
from jax_sentemb.methods.base import Learned, Method
from jax_sentemb.models.heads import class_logits, init_classifier
from jax_sentemb.models.rnn import init_rnn
from jax_sentemb.models.word_vectors import check_words, lstm_max
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class Encoded(NamedTuple):
    first: Array  # [B, 2H]
    second: Array  # [B, 2H]
    label: Array  # float32 [B]


@dataclass
class InferSent(Method):
    """A bidirectional LSTM over word vectors, the maximum over time as embedding [2 hidden].

    Three linear layers over (u, v, |u - v|, u * v) tell which of `classes` a pair has. The maximum is over real tokens (that of the
    first published version includes padding).
    `params`: "lstm", "classifier", and the word vectors.
    """

    classes: tuple[str, ...] = ("contradiction", "entailment", "neutral")
    hidden: int = 2048
    classifier_width: int = 512
    pooling: str = "max"

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """The parts of the parameters that an embedding depends on, beside word vectors."""
        return ("lstm",)

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        check_words(encoder)
        if len(set(self.classes)) < max(len(self.classes), 2):
            raise ConfigError(f"method.classes={tuple(self.classes)} must be at least two different names")
        if min(self.hidden, self.classifier_width) < 1 or self.pooling != "max":
            raise ConfigError("method: hidden and classifier_width must be at least 1, pooling max")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Pairs with a class."""
        return corpus.pairs(tuple(self.classes))

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """A fresh LSTM and classifier around the word vectors, both as torch initialises them."""
        lstm_key, class_key = jax.random.split(key)
        return Learned({
            **loaded,
            "lstm": init_rnn(lstm_key, "lstm", encoder.config.hidden_size, self.hidden),
            "classifier": init_classifier(class_key, 8 * self.hidden, self.classifier_width, len(self.classes)),
        })  # fmt: skip

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """Both sentences of each pair."""
        vectors = self.embed(encoder, params, batch.rows)
        return Encoded(vectors[0::2], vectors[1::2], batch.label)

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Cross entropy over the classes."""
        first, second = encoded.first, encoded.second
        features = jnp.concatenate([first, second, jnp.abs(first - second), first * second], axis=-1)
        loss, accuracy = softmax_cross_entropy(class_logits(params["classifier"], features), encoded.label.astype(jnp.int32))
        return loss, ({"accuracy": accuracy}, None)

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """The maximum over real tokens of both directions; 0 for a sentence without any."""
        return lstm_max(encoder, params, "lstm", rows)
