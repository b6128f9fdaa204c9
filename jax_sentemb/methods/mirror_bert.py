"""Mirror-BERT: contrastive learning of a sentence and a copy with a masked span (Liu et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import alignment, nt_xent
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.base import EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.methods.views import TwoViews, add_ami_loss, two_dropout_views, two_texts
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, TrainState


@dataclass
class MirrorBERT(EmbeddingMethod):
    """NT-Xent over 2B embeddings with both views as anchors, without a head.

    * span: the number of characters of the second view that become one [MASK] if the sentence has at least 30. With 0 the views
      differ in dropout only.
    * ami needs span=0: a masked span moves the tokens after it, so attention entries of the two views do not correspond.
    * pooling: "mean" is over real tokens. The published script's `mean` includes padding, its `mean_std` does not.

    Drophead is not implemented. `params` are {"encoder"}.
    """

    temperature: float = setting(0.04, above=0)  # divides the cosines (paper: 0.04)
    pooling: str = setting("cls", choices=POOLINGS)  # how token states become an embedding
    span: int = setting(5, least=0)  # characters of the second view that become one [MASK]; 0: none
    ami: AttentionMI | None = None  # attention mutual information, with span=0; None: not used
    embeddings: ClassVar[tuple[str, ...]] = ("first", "second")
    validation_selects: ClassVar[bool] = False

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range or two of them exclude each other."""
        if self.ami is not None and self.span:
            raise ConfigError(
                Setting("method.ami"),
                " cannot be used with span masking (",
                Setting("method.span", self.span),
                "): the mask moves the tokens after it, so the attention of the two views does not correspond; set ",
                Setting("method.span", 0),
            )
        super().check(encoder, batch_size)

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return distinct sentences, each with a copy that has a masked span if `span` is not 0."""
        return corpus.span_masked(self.span, seed) if self.span else corpus.plain()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder"}."""
        return InitialState({"encoder": loaded["encoder"]})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> TwoViews:
        """Return both views from one pass over 2B rows, each with its own dropout."""
        if not self.span:
            return two_dropout_views(encoder, params["encoder"], batch.rows, seeds, self.ami, self.pooling)
        return two_texts(encoder, params, batch.rows, seeds, self.pooling)

    def objective(self, params: Params, state: TrainState, encoded: TwoViews) -> Objective:
        """Return NT-Xent plus the term of AMI, and the metrics."""
        loss, accuracy = nt_xent(encoded.first, encoded.second, self.temperature)
        metrics = {"contrastive": loss, "accuracy": accuracy, "alignment": alignment(encoded.first, encoded.second)}
        return add_ami_loss(self.ami, loss, metrics, encoded), (metrics, None)
