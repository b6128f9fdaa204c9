"""Mirror-BERT: a sentence and its copy with a masked span attract each other, the rest of the batch repels (Liu et al. 2021)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import alignment, nt_xent
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.base import Learned, Method
from jax_sentemb.methods.views import add_ami_loss, two_dropout_views, view_seeds
from jax_sentemb.models.pooling import POOLINGS, sentence_embedding
from jax_sentemb.types import Array, Batch, Params, TrainState


class Encoded(NamedTuple):
    first: Array  # [B, E]
    second: Array  # [B, E]
    information: Array | None  # [B, S] attention MI
    valid: Array | None  # [B, S] fraction of valid samples
    lengths: Array  # float32 [B] tokens


@dataclass
class MirrorBERT(Method):
    """NT-Xent over 2B embeddings, both views as anchors; no head.

    span: characters of the second view that become one [MASK], where a sentence has at least 30; 0 leaves dropout as the only
    difference. `ami` needs span=0: a masked span moves the tokens behind it, so attention entries of two views do not correspond.
    pooling "mean" is over real tokens (the published script's `mean` includes padding, its `mean_std` is this one).
    Drophead is not offered. `params` are {"encoder"}.
    """

    temperature: float = 0.04
    pooling: str = "cls"
    span: int = 5
    ami: AttentionMI | None = None

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range or two of them exclude each other."""
        if not self.temperature > 0:
            raise ConfigError(f"method.temperature={self.temperature} must be greater than 0 (paper: 0.04)")
        if self.pooling not in POOLINGS:
            raise ConfigError(f"method.pooling={self.pooling!r} is not one of {', '.join(POOLINGS)}")
        if self.span < 0:
            raise ConfigError(f"method.span={self.span} must be at least 0 characters (paper: 5; 0: no masking)")
        if self.ami is not None and self.span:
            raise ConfigError(
                f"method.ami cannot be used with span masking (method.span={self.span}): the mask moves the tokens behind it, "
                "so the attention of the two views does not correspond; set --config.method.span=0"
            )
        self.check_ami(encoder)

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Distinct sentences, beside a copy with a masked span if there is one."""
        return corpus.span_masked(self.span, seed) if self.span else corpus.plain()

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """{"encoder"}."""
        return Learned({"encoder": loaded["encoder"]})

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """Both views in one pass over 2B rows, each with its own dropout."""
        if not self.span:
            views = two_dropout_views(encoder, params["encoder"], batch.rows, seeds, self.ami, self.pooling)
            return Encoded(*views, batch.rows.mask.sum(-1, dtype=jnp.float32))
        pooled = sentence_embedding(encoder, params, batch.rows, self.pooling, seeds=view_seeds(seeds))
        return Encoded(pooled[0::2], pooled[1::2], None, None, batch.rows.mask[0::2].sum(-1, dtype=jnp.float32))

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """NT-Xent - AMI; metrics."""
        loss, accuracy = nt_xent(encoded.first, encoded.second, self.temperature)
        metrics = {"contrastive": loss, "accuracy": accuracy, "alignment": alignment(encoded.first, encoded.second)}
        return add_ami_loss(self.ami, loss, metrics, encoded), (metrics, None)
