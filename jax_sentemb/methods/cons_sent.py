"""ConsSent: an encoder learns to tell whole sentences from perturbed ones, or which parts belong together (Brahma 2018)."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.data.perturb import CLASSIFIED, RANKED
from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import ranking_loss, softmax_cross_entropy
from jax_sentemb.methods.base import Learned, Method
from jax_sentemb.models.heads import class_logits, init_classifier
from jax_sentemb.models.rnn import init_rnn
from jax_sentemb.models.word_vectors import check_words, lstm_max
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

MULTITASK = "MT"
IN_TURN = "DNPCIR"  # a batch of each; the tasks of either encoder in the paper's order


class Encoded(NamedTuple):
    sentences: Array  # [B, 2H], or [B, 2, 2H] for the tasks that rank
    label: Array | None  # float32 [B]


@dataclass
class ConsSent(Method):
    """A bidirectional LSTM over word vectors, the maximum over time of both directions as embedding [2 hidden].

    task: "D" deletes `k` random tokens of half of the sentences, "P" permutes k, "I" inserts k, "R" replaces k, and two linear
    layers and a third tell which sentences are whole; "N" and "C" part a sentence, at random or by a cut, and rank its second part
    among `k` by dot product. "MT" takes a batch of each of the six in turn: one encoder learns D, P, I, R with a classifier each,
    another one N and C, and the embedding is both side by side [4 hidden]; `k` is that of all tasks (the paper does not say). Each
    encoder and each classifier has an optimiser of its own: what a step does not train keeps its values, moments and schedule. All
    tasks have as many batches, so the first encoder is trained in four steps of six (the paper names neither).
    The maximum is over real tokens (InferSent, whose encoder this is, let padding win; the paper does not say).
    `params`: "lstm", "classifier" (D, P, I, R), "lstm_of_parts" and "classifier_D"... (MT), and the word vectors.
    """

    task: str = "R"
    k: int = 2
    hidden: int = 2048
    classifier_width: int = 512
    pooling: str = "max"

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """The parts of the parameters that an embedding depends on, beside word vectors."""
        return ("lstm", "lstm_of_parts") if self.task == MULTITASK else ("lstm",)

    @property
    def shares(self) -> dict[str, Fraction]:
        """In which share of the steps each encoder and classifier is trained, where that is not all of them."""
        if self.task != MULTITASK:
            return {}
        tasks = {"lstm": len(CLASSIFIED), "lstm_of_parts": len(RANKED)} | {f"classifier_{task}": 1 for task in CLASSIFIED}
        return {part: Fraction(count, len(IN_TURN)) for part, count in tasks.items()}

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        check_words(encoder)
        tasks = (*CLASSIFIED, *RANKED, MULTITASK)
        if self.task not in tasks:
            raise ConfigError(f"method.task={self.task!r} is not one of {', '.join(tasks)}")
        least = 1 if self.task in ("D", "I", "R") else 2
        if self.k < least:
            raise ConfigError(f"method.k={self.k} must be at least {least} for task {self.task}")
        if self.task not in CLASSIFIED and self.k > batch_size:
            raise ConfigError(f"method.k={self.k} candidates are more than data.batch_size={batch_size}")
        if min(self.hidden, self.classifier_width) < 1 or self.pooling != "max":
            raise ConfigError("method: hidden and classifier_width must be at least 1, pooling max")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Sentences made inconsistent, or cut in two."""
        if self.task == MULTITASK:
            return corpus.perturbed_in_turn(IN_TURN, self.k, seed)
        return corpus.perturbed(self.task, self.k, seed)

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """A fresh LSTM and classifier around the word vectors, both as torch initialises them."""
        lstm_key, class_key, parts_key = jax.random.split(key, 3)
        inputs = encoder.config.hidden_size
        params: Params = {**loaded, "lstm": init_rnn(lstm_key, "lstm", inputs, self.hidden)}
        sizes = 2 * self.hidden, self.classifier_width, 2
        if self.task in CLASSIFIED:
            params["classifier"] = init_classifier(class_key, *sizes)
        elif self.task == MULTITASK:
            keys = jax.random.split(class_key, len(CLASSIFIED))
            params |= {f"classifier_{task}": init_classifier(one, *sizes) for task, one in zip(CLASSIFIED, keys, strict=True)}
            params["lstm_of_parts"] = init_rnn(parts_key, "lstm", inputs, self.hidden)
        return Learned(params)

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """Every text by the encoder of its task."""
        of_parts = self.task == MULTITASK and batch.tokens.ndim == 3
        vectors = lstm_max(encoder, params, "lstm_of_parts" if of_parts else "lstm", batch.rows)
        return Encoded(vectors.reshape(*batch.tokens.shape[:-1], -1), batch.label)

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Cross entropy over whole or not, or over the candidates."""
        if encoded.sentences.ndim == 3:
            loss, accuracy = ranking_loss(encoded.sentences[:, 0], encoded.sentences[:, 1], self.k)
            return loss, ({"accuracy": accuracy}, None)
        label = encoded.label.astype(jnp.int32)
        if self.task == MULTITASK:  # all labels of a batch are of one task: 2 * its place, and 1 for whole sentences
            classifiers = [params[f"classifier_{task}"] for task in CLASSIFIED]
            classifier = jax.tree.map(lambda *leaves: jnp.stack(leaves)[label[0] // 2], *classifiers)
        else:
            classifier = params["classifier"]
        loss, accuracy = softmax_cross_entropy(class_logits(classifier, encoded.sentences), label % 2)
        return loss, ({"accuracy": accuracy}, None)

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """The maximum over real tokens of both directions, of both encoders for MT; 0 for a sentence without any."""
        return jnp.concatenate([lstm_max(encoder, params, name, rows) for name in self.embedding_params], axis=-1)
