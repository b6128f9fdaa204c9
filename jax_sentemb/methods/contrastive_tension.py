"""Contrastive Tension: two encoders agree on the same sentence and disagree on different ones (Carlsson et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Key

from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import alignment, contrastive_tension, symmetric_info_nce
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.base import EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.methods.views import TwoViews, add_ami_loss, two_encoders, view_seeds
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, TrainState


@dataclass
class ContrastiveTension(EmbeddingMethod):
    """Two encoders learn large dot products for the same sentence and small ones for different sentences.

    * form: "pairs" is the paper's binary cross entropy with one positive pair in `group`. "in_batch" is the form of
      sentence-transformers: symmetric cross entropy over the batch with a trained scale that starts at `scale`.
    * dropout: False, as in the published code.
    * ami compares the attention of the two encoders for every sentence of the batch (the paper does not say how it adds AMI to CT).
      Without dropout both encoders start equal, and AMI's gradient is 0 until they differ.
    * keep: the encoder that is exported. "better" has the higher score of `eval.select`, as in the paper. Without a score, and with
      "second", the second encoder is exported, as in sentence-transformers.

    The checkpoint of the best weights has the exported one as "encoder". `params` are {"encoder" (the second), "first",
    "logit_scale" (in_batch only)}.
    """

    form: str = setting("pairs", choices=("pairs", "in_batch"))  # pairs: the paper; in_batch: sentence-transformers
    group: int = setting(8, least=2, used_if="form=pairs")  # size of a group with one positive pair
    scale: float = setting(20.0, above=0, used_if="form=in_batch")  # initial factor of the cosines
    pooling: str = setting("mean", choices=POOLINGS)  # how token states become an embedding
    dropout: bool = False  # use dropout in training; the published code does not
    ami: AttentionMI | None = None  # attention mutual information of the two encoders; None: not used
    keep: str = setting("better", choices=("better", "second"))  # the encoder to export; better: by eval.select
    encoder_parts: ClassVar[tuple[str, ...]] = ("encoder", "first")
    validation_selects: ClassVar[bool] = False

    @property
    def embeddings(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the fields that `train.matryoshka` cuts, none for form=pairs, which has dot products of any length."""
        return ("first", "second") if self.form == "in_batch" else ()

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range or does not fit the encoder."""
        super().check(encoder, batch_size)
        if self.form == "pairs" and (batch_size % self.group or batch_size - batch_size // self.group < 2):
            raise ConfigError(
                Setting("data.batch_size", batch_size),
                " must be a multiple of ",
                Setting("method.group", self.group),
                " with at least 2 negative pairs",
            )

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return two encoders with the same weights."""
        params: Params = {"encoder": loaded["encoder"], "first": jax.tree.map(jnp.copy, loaded["encoder"])}
        if self.form == "in_batch":
            params["logit_scale"] = jnp.log(jnp.float32(self.scale))
        return InitialState(params)

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> TwoViews:
        """Encode every sentence with both encoders."""
        rows = batch.rows
        both = params["first"], params["encoder"]
        return two_encoders(encoder, both, rows, view_seeds(seeds) if self.dropout else None, seeds, self.ami, self.pooling)

    def objective(self, params: Params, state: TrainState, encoded: TwoViews) -> Objective:
        """Return the contrastive loss plus the term of AMI, and the metrics."""
        first, second = encoded.first, encoded.second
        if self.form == "in_batch":
            loss, accuracy = symmetric_info_nce(first, second, jnp.exp(params["logit_scale"]))
        else:
            loss, accuracy = contrastive_tension(first, second, self.group)
        metrics = {"contrastive": loss, "accuracy": accuracy, "alignment": alignment(first, second)}
        return add_ami_loss(self.ami, loss, metrics, encoded), (metrics, None)

    def encoders(self, params: Params) -> dict[str, Params]:
        """Return the parameters with each of the two encoders as the exported one; the second one comes first, as the default."""
        swapped = {**params, "encoder": params["first"], "first": params["encoder"]}
        return {"second": params} | ({"first": swapped} if self.keep == "better" else {})
