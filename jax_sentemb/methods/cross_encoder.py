"""Cross-encoder: a pair of sentences is scored as one row (Devlin et al. 2019). A baseline without sentence embeddings."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import softmax_cross_entropy
from jax_sentemb.methods.base import InitialState, Method, Objective, Seeds
from jax_sentemb.methods.labelled_pairs import check_classes
from jax_sentemb.models.architectures import bert_config
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.models.heads import init_head, pair_score
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


class PairScores(NamedTuple):
    """The score [B, 1] or the logits of classes [B, C] of each pair, and its label."""

    scores: Float[Array, "batch outputs"]
    label: Float[Array, " batch"]


@dataclass
class CrossEncoder(Method):
    """A linear map of BERT's pooled [CLS] learns the label of a pair.

    task: "scores" is the squared difference from score / top_score, as in BERT's STS-B result; "classes" is softmax over `classes`
    (NLI). The first class means "similar": its log probability is the score on similarity sets. Development and test scores are
    correlations with gold scores; a sentence has no embedding. `params` are {"encoder", "pooler", "classifier"}; the export is a
    sequence classifier of transformers, and a run can start from it with a new classifier.
    """

    task: str = setting("scores", choices=("scores", "classes"))  # whether pairs have scores or classes
    # Labels of the pairs; the first means similar.
    classes: tuple[str, ...] = setting(("entailment", "neutral", "contradiction"), used_if="task=classes")
    top_score: float = setting(5.0, above=0, used_if="task=scores")  # the largest gold score (STS-B: 5)
    pooling: str = setting("cls", choices=("cls",))  # the score is read from [CLS]
    reads_pairs = True
    is_cross_encoder = True  # `embed` takes rows of joined pairs and returns their scores

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a setting is out of range."""
        super().check(encoder, batch_size)
        check_classes(self.classes)
        model_type = bert_config(encoder).model_type
        if "classifier" not in FAMILIES[model_type].heads:
            raise ConfigError(f"a cross-encoder of a {model_type} is not supported: give a BERT as ", Setting("encoder.weights"))

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return pairs with a class or a score, as one row each."""
        if self.task == "classes":
            return corpus.pairs(tuple(self.classes), joined=True)
        return corpus.pairs(joined=True, top_score=self.top_score)

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder", "pooler", "classifier"}. The pooler may come from the directory."""
        pooler_key, class_key = jax.random.split(key)
        width = encoder.config.hidden_size
        pooler = loaded.get("pooler") or init_head(pooler_key, width)
        outputs = len(self.classes) if self.task == "classes" else 1
        classifier = {"kernel": 0.02 * jax.random.normal(class_key, (width, outputs)), "bias": jnp.zeros(outputs)}
        return InitialState({"encoder": loaded["encoder"], "pooler": pooler, "classifier": classifier})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> PairScores:
        """Return the score or the logits of every pair, with dropout in the encoder and before the classifier."""
        assert batch.label is not None
        return PairScores(pair_score(encoder, params, batch.rows, seeds), batch.label)

    def objective(self, params: Params, state: TrainState, encoded: PairScores) -> Objective:
        """Return the mean squared error of the score or the cross entropy, and the metrics."""
        if self.task == "scores":
            return jnp.square(encoded.scores[:, 0] - encoded.label / self.top_score).mean(), ({}, None)
        loss, accuracy = softmax_cross_entropy(encoded.scores, encoded.label.astype(jnp.int32))
        return loss, ({"accuracy": accuracy}, None)

    def embed(self, encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows embedding"]:
        """Return the score [R, 1] or the logits [R, C] of rows of joined pairs, without dropout."""
        return pair_score(encoder, params, rows)
