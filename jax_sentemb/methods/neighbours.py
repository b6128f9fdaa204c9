"""Contrastive learning of neighbouring sentences: a sentence and the next one of its document are a positive pair."""

from dataclasses import dataclass

from jaxtyping import Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import alignment, symmetric_info_nce
from jax_sentemb.methods.base import Learned, Method, Objective, Seeds
from jax_sentemb.methods.views import TwoViews, two_texts
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.types import Array, Batch, Params, TrainState


@dataclass
class Neighbours(Method):
    """Symmetric InfoNCE of the cosines of neighbouring sentences, with the other pairs of the batch as negatives.

    Positives from the same document are those of DeCLUTR (Giorgi et al. 2021), whose spans may overlap and are longer than a
    sentence; here they are two consecutive sentences, and there is no masked-language-model loss. `params` are {"encoder"}.
    """

    temperature: float = 0.05  # the cosines are divided by it
    pooling: str = "mean"  # cls, mean or first_last
    anchor: float = 0.0  # weight of the distance to the embeddings of the start; 0: none

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range."""
        if not self.temperature > 0:
            raise ConfigError(Setting("method.temperature", self.temperature), " must be greater than 0 (DeCLUTR: 0.05)")
        self.check_pooling()

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Pairs of neighbouring sentences."""
        return corpus.neighbours()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> Learned:
        """{"encoder"}."""
        return Learned({"encoder": loaded["encoder"]})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> TwoViews:
        """Both sentences of each pair in one pass over 2B rows, each with its own dropout."""
        return two_texts(encoder, params, batch.rows, seeds, self.pooling)

    def objective(self, params: Params, state: TrainState, encoded: TwoViews) -> Objective:
        """The loss; metrics."""
        loss, accuracy = symmetric_info_nce(encoded.first, encoded.second, 1.0 / self.temperature)
        metrics = {"contrastive": loss, "accuracy": accuracy, "alignment": alignment(encoded.first, encoded.second)}
        return loss, (metrics, None)
