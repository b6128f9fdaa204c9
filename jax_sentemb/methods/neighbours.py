"""Contrastive learning of neighbouring sentences: a sentence and the next one of its document are a positive pair."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.losses import alignment, symmetric_info_nce
from jax_sentemb.methods.base import EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.methods.views import TwoViews, two_texts
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, TrainState


@dataclass
class Neighbours(EmbeddingMethod):
    """Symmetric InfoNCE of the cosines of neighbouring sentences, with the other pairs of the batch as negatives.

    Positives from the same document are those of DeCLUTR (Giorgi et al. 2021), whose spans may overlap and are longer than a
    sentence. Here they are two consecutive sentences, and there is no masked-language-model loss. `params` are {"encoder"}.
    """

    temperature: float = setting(0.05, above=0)  # divides the cosines (DeCLUTR: 0.05)
    pooling: str = setting("mean", choices=POOLINGS)  # how token states become an embedding
    embeddings: ClassVar[tuple[str, ...]] = ("first", "second")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return pairs of neighbouring sentences."""
        return corpus.neighbours()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder"}."""
        return InitialState({"encoder": loaded["encoder"]})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> TwoViews:
        """Return the embeddings of both sentences of each pair from one pass over 2B rows, each with its own dropout."""
        return two_texts(encoder, params, batch.rows, seeds, self.pooling)

    def objective(self, params: Params, state: TrainState, encoded: TwoViews) -> Objective:
        """Return the loss and the metrics."""
        loss, accuracy = symmetric_info_nce(encoded.first, encoded.second, 1.0 / self.temperature)
        metrics = {"contrastive": loss, "accuracy": accuracy, "alignment": alignment(encoded.first, encoded.second)}
        return loss, (metrics, None)
