"""IS-BERT: maximise the mutual information of a sentence embedding and the tokens of the sentence (Zhang et al. 2020)."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.losses import token_sentence_jsd
from jax_sentemb.methods.base import EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.pooling import pool
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, TrainState


class TokenFeatures(NamedTuple):
    """Features of each token, the token mask as numbers, and the mean of the features over real tokens."""

    local: Float[Array, "batch tokens embedding"]
    mask: Float[Array, "batch tokens"]
    sentence: Float[Array, "batch embedding"]


@dataclass
class ISBERT(EmbeddingMethod):
    """Convolutions over token states; Jensen-Shannon mutual information of each token with each sentence of the batch.

    The embedding is the mean of the convolved states over real tokens. The discriminator is a dot product, as in the published code
    (Eq. 2 suggests a network). normalization: "pairs" as the code, "sentences" as Eq. 3; relu and reference: see Convolution.
    Each sentence is encoded once, with dropout. `params` are {"encoder", "cnn"}.
    """

    # The convolution between the token states and the mean.
    convolution: Convolution = field(default_factory=Convolution)  # pyright: ignore[reportIncompatibleVariableOverride]
    normalization: str = setting(
        "pairs", choices=("pairs", "sentences")
    )  # normalization of the loss; pairs: the code; sentences: Eq. 3
    pooling: str = setting("mean", choices=("mean",))  # the method is defined for the mean

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a setting is out of range."""
        super().check(encoder, batch_size)
        self.convolution.check()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder", "cnn"}; the convolution is fresh unless the directory has one."""
        cnn = self.convolution.loaded_or_new(loaded.get("cnn"), key, encoder.config.hidden_size)
        return InitialState({"encoder": loaded["encoder"], "cnn": cnn})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> TokenFeatures:
        """Return token features and their mean, with dropout in the encoder."""
        rows = batch.rows
        states = encoder.apply({"params": params["encoder"]}, rows, seeds).hidden[-1]
        local = self.convolution.apply(params["cnn"], states, rows.mask, encoder.dtype)
        return TokenFeatures(local, rows.mask.astype(jnp.float32), pool([local], rows.mask, "mean"))

    def objective(self, params: Params, state: TrainState, encoded: TokenFeatures) -> Objective:
        """Return the negated mutual information, and its two expectations as metrics."""
        loss, positive, negative = token_sentence_jsd(encoded.local, encoded.mask, encoded.sentence, self.normalization)
        return loss, ({"positive": positive, "negative": negative}, None)
