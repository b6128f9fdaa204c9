"""InferSent: a BiLSTM-max encoder learns from labelled sentence pairs (Conneau et al. 2017), ConsSent's supervised baseline."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.losses import softmax_cross_entropy
from jax_sentemb.methods.base import InitialState, Method, Objective, Seeds
from jax_sentemb.methods.labelled_pairs import EncodedPairs, check_classes
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.heads import class_logits, init_classifier
from jax_sentemb.models.rnn import init_rnn
from jax_sentemb.models.word_vectors import check_words, lstm_max
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


@dataclass
class InferSent(Method):
    """A bidirectional LSTM over word vectors; the embedding is the maximum over time [2 hidden].

    Three linear layers over (u, v, |u - v|, u * v) predict which of `classes` a pair has. The maximum is over real tokens (that of
    the first published version includes padding).
    `params`: "lstm", "classifier", and the word vectors.
    """

    classes: tuple[str, ...] = ("contradiction", "entailment", "neutral")  # labels of the pairs
    hidden: int = setting(2048, least=1)  # width of the LSTM in each direction
    classifier_width: int = setting(512, least=1)  # width of the layers above the pair
    pooling: str = setting("max", choices=("max",))  # the maximum over time
    reads_pairs = True

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """Return the parts of the parameters that an embedding depends on, in addition to word vectors."""
        return ("lstm",)

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        check_words(encoder)
        super().check(encoder, batch_size)
        check_classes(self.classes)

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return pairs with a class."""
        return corpus.pairs(tuple(self.classes))

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return a fresh LSTM and classifier, both initialised as in torch, and the word vectors."""
        lstm_key, class_key = jax.random.split(key)
        return InitialState({
            **loaded,
            "lstm": init_rnn(lstm_key, "lstm", encoder.config.hidden_size, self.hidden),
            "classifier": init_classifier(class_key, 8 * self.hidden, self.classifier_width, len(self.classes)),
        })  # fmt: skip

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> EncodedPairs:
        """Encode both sentences of each pair."""
        assert batch.label is not None
        vectors = self.embed(encoder, params, batch.rows)
        return EncodedPairs(vectors[0::2], vectors[1::2], batch.label)

    def objective(self, params: Params, state: TrainState, encoded: EncodedPairs) -> Objective:
        """Return the cross entropy over the classes."""
        first, second = encoded.first, encoded.second
        features = jnp.concatenate([first, second, jnp.abs(first - second), first * second], axis=-1)
        loss, accuracy = softmax_cross_entropy(class_logits(params["classifier"], features), encoded.label.astype(jnp.int32))
        return loss, ({"accuracy": accuracy}, None)

    def embed(self, encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows embedding"]:
        """Return the maximum over real tokens of both directions; 0 for a sentence without tokens."""
        return lstm_max(encoder, params, "lstm", rows)
