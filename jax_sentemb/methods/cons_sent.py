"""ConsSent: an encoder learns to tell sentences from perturbed ones, or which parts of sentences match (Brahma 2018)."""

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.data.perturb import CLASSIFIED, RANKED
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import ranking_loss, softmax_cross_entropy
from jax_sentemb.methods.base import InitialState, Method, Objective, Seeds
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.heads import class_logits, init_classifier
from jax_sentemb.models.rnn import init_rnn
from jax_sentemb.models.word_vectors import check_words, lstm_max
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

MULTITASK = "MT"
IN_TURN = "DNPCIR"  # the order of the tasks' batches; the tasks of each encoder have the paper's order


class ConsSentVectors(NamedTuple):
    """Sentences, or their two parts for the tasks that rank, and their labels."""

    sentences: Float[Array, "batch *parts embedding"]
    label: Float[Array, " batch"] | None


@dataclass
class ConsSent(Method):
    """A bidirectional LSTM over word vectors; the embedding is the maximum over time of both directions [2 hidden].

    The tasks are:

    * "D" deletes `k` random tokens of half of the sentences, "P" permutes k, "I" inserts k and "R" replaces k. Three linear layers
      classify which sentences are unchanged.
    * "N" and "C" split a sentence in two, at random or by a cut, and rank its second part among `k` by dot product.
    * "MT" takes a batch of each of the six in turn. One encoder learns D, P, I and R, with a classifier for each. The other learns
      N and C. The embedding is both side by side [4 hidden].

    The paper does not say the following. All tasks have the same `k`. Each encoder and each classifier has its own optimiser: a
    part that a step does not train keeps its values, moments and schedule. All tasks have equally many batches, so the first
    encoder is trained in four of six steps. The maximum is over real tokens; InferSent, whose encoder this is, includes padding.

    `params`: "lstm", "classifier" (D, P, I, R), "lstm_of_parts" and "classifier_D"... (MT), and the word vectors.
    """

    # D, P, I or R (perturbed sentences), N or C (parts of sentences), MT (all six).
    task: str = setting("R", choices=(*CLASSIFIED, *RANKED, MULTITASK))
    k: int = setting(2, least=1)  # tokens that are changed, or candidates of N and C
    hidden: int = setting(2048, least=1)  # width of the LSTM in each direction
    classifier_width: int = setting(512, least=1, used_if="task=D|P|I|R|MT")  # width of the layers above the embedding
    pooling: str = setting("max", choices=("max",))  # the maximum over time

    @property
    def embedding_params(self) -> tuple[str, ...]:
        """Return the parts of the parameters that an embedding depends on, in addition to word vectors."""
        return ("lstm", "lstm_of_parts") if self.task == MULTITASK else ("lstm",)

    @property
    def step_shares(self) -> dict[str, Fraction]:
        """Return the share of the steps in which each encoder and classifier is trained, for MT."""
        if self.task != MULTITASK:
            return {}
        tasks = {"lstm": len(CLASSIFIED), "lstm_of_parts": len(RANKED)} | {f"classifier_{task}": 1 for task in CLASSIFIED}
        return {part: Fraction(count, len(IN_TURN)) for part, count in tasks.items()}

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range, or the encoder is not a table of word vectors."""
        check_words(encoder)
        super().check(encoder, batch_size)
        least = 1 if self.task in ("D", "I", "R") else 2
        if self.k < least:
            raise ConfigError(Setting("method.k", self.k), f" must be at least {least} for task {self.task}")
        if self.task not in CLASSIFIED and self.k > batch_size:
            raise ConfigError(
                Setting("method.k", self.k), ": the candidates must be at most ", Setting("data.batch_size", batch_size)
            )

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return perturbed sentences, or sentences split in two."""
        if self.task == MULTITASK:
            return corpus.perturbed_in_turn(IN_TURN, self.k, seed)
        return corpus.perturbed(self.task, self.k, seed)

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return a fresh LSTM and classifier, both initialised as in torch, and the word vectors."""
        lstm_key, class_key, parts_key = jax.random.split(key, 3)
        inputs = encoder.config.hidden_size
        params: Params = {**loaded, "lstm": init_rnn(lstm_key, "lstm", inputs, self.hidden)}
        sizes = 2 * self.hidden, self.classifier_width, 2
        if self.task in CLASSIFIED:
            params["classifier"] = init_classifier(class_key, *sizes)
        elif self.task == MULTITASK:
            keys = jax.random.split(class_key, len(CLASSIFIED))
            params |= {
                f"classifier_{task}": init_classifier(task_key, *sizes) for task, task_key in zip(CLASSIFIED, keys, strict=True)
            }
            params["lstm_of_parts"] = init_rnn(parts_key, "lstm", inputs, self.hidden)
        return InitialState(params)

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> ConsSentVectors:
        """Encode every text with the encoder of its task."""
        of_parts = self.task == MULTITASK and batch.tokens.ndim == 3
        vectors = lstm_max(encoder, params, "lstm_of_parts" if of_parts else "lstm", batch.rows)
        return ConsSentVectors(vectors.reshape(*batch.tokens.shape[:-1], -1), batch.label)

    def objective(self, params: Params, state: TrainState, encoded: ConsSentVectors) -> Objective:
        """Return the cross entropy of the classifier, or of the right candidate."""
        if encoded.sentences.ndim == 3:
            loss, accuracy = ranking_loss(encoded.sentences[:, 0], encoded.sentences[:, 1], self.k)
            return loss, ({"accuracy": accuracy}, None)
        assert encoded.label is not None
        label = encoded.label.astype(jnp.int32)
        if self.task == MULTITASK:  # a label is 2 * the index of the task, the same in a batch, plus 1 for unchanged sentences
            classifiers = [params[f"classifier_{task}"] for task in CLASSIFIED]
            classifier = jax.tree.map(lambda *leaves: jnp.stack(leaves)[label[0] // 2], *classifiers)
        else:
            classifier = params["classifier"]
        loss, accuracy = softmax_cross_entropy(class_logits(classifier, encoded.sentences), label % 2)
        return loss, ({"accuracy": accuracy}, None)

    def embed(self, encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows embedding"]:
        """Return the maximum over real tokens of both directions, of both encoders for MT; 0 for a sentence without tokens."""
        return jnp.concatenate([lstm_max(encoder, params, name, rows) for name in self.embedding_params], axis=-1)
