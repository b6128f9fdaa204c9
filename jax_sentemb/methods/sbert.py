"""Supervised baselines: SBERT (Reimers and Gurevych 2019), and the fine-tuned rows of IS-BERT's STS-B table."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import paired_cosine, softmax_cross_entropy
from jax_sentemb.methods.base import EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.methods.labelled_pairs import EncodedPairs, check_classes
from jax_sentemb.methods.views import view_seeds
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.pooling import POOLINGS, sentence_embedding
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, TrainState


@dataclass
class SBERT(EmbeddingMethod):
    """One encoder embeds both sentences of a pair, and the embeddings predict the label of the pair.

    task: "classes" is softmax over a linear map of (u, v, |u - v|) with one of `classes` as label (SBERT on NLI). "scores" is the
    squared difference of cosine and score / top_score (SBERT on STS-B). With `convolution` the encoder is that of IS-BERT: "scores"
    is then its `ft`, or its `ssl+ft` if the weights come from an IS-BERT. `params` are {"encoder", "cnn", "classifier"}.
    """

    task: str = setting("scores", choices=("scores", "classes"))  # whether pairs have scores or classes
    classes: tuple[str, ...] = setting(("contradiction", "entailment", "neutral"), used_if="task=classes")  # labels of the pairs
    top_score: float = setting(5.0, above=0, used_if="task=scores")  # the largest gold score (STS-B: 5)
    pooling: str = setting("mean", choices=POOLINGS)  # how token states become an embedding
    convolution: Convolution | None = None  # IS-BERT's, between encoder and pooling; None: not used
    text_role: ClassVar[str] = ""  # scored pairs are read with the default prompt too
    reads_pairs: ClassVar[bool] = True

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a setting is out of range."""
        super().check(encoder, batch_size)
        check_classes(self.classes)
        if self.convolution is not None:
            self.convolution.check()
            if self.pooling != "mean":
                problem = " cannot follow a convolution: set "
                raise ConfigError(Setting("method.pooling", self.pooling), problem, Setting("method.pooling", "mean"))

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return pairs with a class or a score."""
        return corpus.pairs(tuple(self.classes)) if self.task == "classes" else corpus.pairs(top_score=self.top_score)

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder", "cnn", "classifier"}; the convolution is loaded or fresh.

        The classifier is drawn from U(-b, b), b = 1 / sqrt(3E).
        """
        cnn_key, class_key = jax.random.split(key)
        params: Params = {"encoder": loaded["encoder"]}
        width = encoder.config.hidden_size
        if self.convolution is not None:
            params["cnn"] = self.convolution.loaded_or_new(loaded.get("cnn"), cnn_key, width)
            width = self.convolution.width
        if self.task == "classes":
            bound = (3 * width) ** -0.5
            kernel = jax.random.uniform(class_key, (3 * width, len(self.classes)), jnp.float32, -bound, bound)
            params["classifier"] = {"kernel": kernel, "bias": jnp.zeros(len(self.classes))}
        return InitialState(params)

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> EncodedPairs:
        """Encode both sentences of each pair in one pass over 2B rows, each with its own dropout."""
        assert batch.label is not None
        vectors = sentence_embedding(encoder, params, batch.rows, self.pooling, self.convolution, view_seeds(seeds))
        return EncodedPairs(vectors[0::2], vectors[1::2], batch.label)

    def objective(self, params: Params, state: TrainState, encoded: EncodedPairs) -> Objective:
        """Return the cross entropy or the squared error of the cosine, and the metrics."""
        first, second = encoded.first, encoded.second
        if self.task == "scores":
            return jnp.square(paired_cosine(first, second) - encoded.label / self.top_score).mean(), ({}, None)
        features = jnp.concatenate([first, second, jnp.abs(first - second)], axis=-1)
        logits = jnp.matmul(features, params["classifier"]["kernel"], precision="highest") + params["classifier"]["bias"]
        loss, accuracy = softmax_cross_entropy(logits, encoded.label.astype(jnp.int32))
        return loss, ({"accuracy": accuracy}, None)
