"""A cross-encoder: both sentences of a pair in one row, a score out of it (Devlin et al. 2019). A baseline without embeddings."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import softmax_cross_entropy
from jax_sentemb.methods.base import Learned, Method
from jax_sentemb.models.heads import init_head, pair_score
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class Encoded(NamedTuple):
    scores: Array  # [B, 1], or [B, C] logits of classes
    label: Array  # float32 [B]


@dataclass
class CrossEncoder(Method):
    """A linear map of BERT's pooled [CLS] learns the label of a pair.

    task: "scores" is the squared difference with score / top_score, as in BERT's own STS-B figure; "classes" is softmax over
    `classes` (NLI), whose first one stands for "alike": its log probability is the score on similarity sets. Development and test
    scores are correlations with gold; there is no embedding of a sentence. `params` are {"encoder", "pooler", "classifier"}; the
    export is a transformers sequence classifier, and a run can go on from it, with a classifier of its own.
    """

    task: str = "scores"
    classes: tuple[str, ...] = ("entailment", "neutral", "contradiction")
    top_score: float = 5.0
    pooling: str = "cls"
    is_cross_encoder = True  # `embed` takes rows of joined pairs and gives their score

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range."""
        if self.task not in ("classes", "scores"):
            raise ConfigError(f"method.task={self.task!r} is not 'classes' or 'scores'")
        if len(set(self.classes)) < max(len(self.classes), 2):
            raise ConfigError(f"method.classes={tuple(self.classes)} must be at least two different names")
        if not self.top_score > 0:
            raise ConfigError(f"method.top_score={self.top_score} must be greater than 0 (STS-B: 5)")
        if encoder.config.model_type != "bert":
            raise ConfigError(f"a cross-encoder of a {encoder.config.model_type} is not supported: give a BERT as encoder.weights")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Pairs with a class or a score, as one row each."""
        return corpus.pairs(tuple(self.classes) if self.task == "classes" else (), joined=True)

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """{"encoder", "pooler", "classifier"}: BERT's own pooler where the directory has it, a fresh classifier."""
        pooler_key, class_key = jax.random.split(key)
        width = encoder.config.hidden_size
        pooler = loaded.get("pooler") or init_head(pooler_key, width)
        outputs = len(self.classes) if self.task == "classes" else 1
        classifier = {"kernel": 0.02 * jax.random.normal(class_key, (width, outputs)), "bias": jnp.zeros(outputs)}
        return Learned({"encoder": loaded["encoder"], "pooler": pooler, "classifier": classifier})

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """The score or the logits of every pair, with dropout in the encoder and in front of the classifier."""
        return Encoded(pair_score(encoder, params, batch.rows, seeds), batch.label)

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Mean squared error of the score, or cross entropy; metrics."""
        if self.task == "scores":
            return jnp.square(encoded.scores[:, 0] - encoded.label / self.top_score).mean(), ({}, None)
        loss, accuracy = softmax_cross_entropy(encoded.scores, encoded.label.astype(jnp.int32))
        return loss, ({"accuracy": accuracy}, None)

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """The score [R, 1] or the logits [R, C] of rows of joined pairs, without dropout."""
        return pair_score(encoder, params, rows)
