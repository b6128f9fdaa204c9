"""Crops: two packs of consecutive sentences of a document are a positive pair (Gonzalez-Marquez, Berens and Kobak 2025).

References:
    arXiv 2508.03453, TMLR.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jaxtyping import Float, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.losses import alignment, info_nce
from jax_sentemb.methods.base import EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.methods.views import two_texts
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, TrainState


class Packs(NamedTuple):
    """The embeddings of the two packs of each pair, and the number of the pair in the corpus."""

    first: Float[Array, "batch embedding"]
    second: Float[Array, "batch embedding"]
    pair_number: Float[Array, " batch"] | None


@dataclass
class Crops(EmbeddingMethod):
    """InfoNCE of the two packs of a document. The second packs of the other pairs of the batch are negatives.

    Neighbouring pairs of a document may share a sentence, so they are not negatives of each other.

    The state's `params` are {"encoder"}.
    """

    sentences: int = setting(2, least=1)  # sentences of a pack
    # How many sentences later the second pack begins: below `sentences` the packs overlap, at `sentences` they are neighbours.
    shift: int = setting(1, least=1)
    # "blocks": a line is a sentence, and a blank line ends a document. "lines": a line or record is a document.
    documents: str = setting("blocks", choices=("blocks", "lines"))
    temperature: float = setting(0.05, above=0)  # divides the cosines (paper: 0.05)
    pooling: str = setting("mean", choices=POOLINGS)  # how token states become an embedding
    embeddings: ClassVar[tuple[str, ...]] = ("first", "second")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return pairs of packs, which are drawn anew each epoch."""
        return corpus.crops(self.sentences, self.shift, self.documents, seed)

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder"}."""
        return InitialState({"encoder": loaded["encoder"]})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> Packs:
        """Return the embeddings of both packs from one pass over 2B rows, each with its own dropout."""
        views = two_texts(encoder, params, batch.rows, seeds, self.pooling)
        return Packs(views.first, views.second, batch.label)

    def objective(self, params: Params, state: TrainState, encoded: Packs) -> Objective:
        """Return the loss and the metrics."""
        loss, accuracy = info_nce(encoded.first, encoded.second, self.temperature, pair_numbers=encoded.pair_number)
        metrics = {"contrastive": loss, "accuracy": accuracy, "alignment": alignment(encoded.first, encoded.second)}
        return loss, (metrics, None)
