"""Masked-language-model training: to make a BERT from a text file, or to make a BERT know a domain before a contrastive step."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import masked_token_loss
from jax_sentemb.methods import Learned
from jax_sentemb.models.head import init_token_head, token_logits
from jax_sentemb.models.layers import random_bits
from jax_sentemb.models.pooling import POOLINGS, sentence_embedding
from jax_sentemb.text.examples import Corpus, Examples
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

MASK_STREAM = 1 << 21


def masked_lm_loss(encoder: Any, params: Params, rows: Rows, seeds: Array, probability: float) -> tuple[Array, Array, Array]:
    """Of each row [R]: summed cross entropy of its selected tokens, their number, and how many of them are predicted right.

    Of the selected tokens 80 % become [MASK], 10 % a random token, 10 % stay, as in BERT; [CLS] and [SEP] are never selected.
    """
    place = jnp.arange(rows.tokens.shape[1])
    inner = (place > 0) & (place < rows.mask.sum(-1, keepdims=True) - 1)
    chosen, kind, other = (random_bits(seeds, MASK_STREAM + number, place.shape) for number in range(3))
    selected = inner & (chosen < jnp.uint32(probability * 2**32))
    replaced = jnp.where(
        kind < jnp.uint32(0.8 * 2**32),
        encoder.config.mask_token_id,
        (other % encoder.config.vocab_size).astype(jnp.int32),
    )
    changed = selected & (kind < jnp.uint32(0.9 * 2**32))
    masked = Rows(jnp.where(changed, replaced, rows.tokens), rows.mask)
    states = encoder.apply({"params": params["encoder"]}, masked, seeds).hidden[-1]
    # Only some tokens are asked for: their logits alone are computed, the rest of the room stays empty.
    room = min(len(place), round(2.5 * probability * len(place)) + 4)
    asked = jnp.argsort(~selected, axis=-1, stable=True)[:, :room]
    selected, targets = (jnp.take_along_axis(values, asked, axis=-1) for values in (selected, rows.tokens))
    states = jnp.take_along_axis(states, asked[..., None], axis=1)
    logits = token_logits(params["token_head"], params["encoder"]["embeddings"]["word"], states, encoder)
    loss, count = masked_token_loss(logits, targets, selected)
    right = ((logits.argmax(-1) == targets) & selected).sum(-1, dtype=jnp.float32)
    return loss, count, right


class Encoded(NamedTuple):
    loss: Array  # float32 [B] summed over selected tokens
    count: Array  # float32 [B] selected tokens
    right: Array  # float32 [B] of them predicted right


@dataclass
class MaskedLM:
    """BERT's masked-language-model loss (Devlin et al. 2019), without next-sentence prediction; masks are drawn anew each epoch.

    The embedding, for scores while it trains, is the pooled state; `params` are {"encoder", "token_head"}, and the export carries
    the head.
    """

    probability: float = 0.15
    pooling: str = "mean"

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range."""
        if not 0 < self.probability < 1:
            raise ConfigError(f"method.probability={self.probability} must be inside 0 to 1 (BERT: 0.15)")
        if self.pooling not in POOLINGS:
            raise ConfigError(f"method.pooling={self.pooling!r} is not one of {', '.join(POOLINGS)}")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Distinct sentences."""
        return corpus.plain()

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """{"encoder", "token_head"}; the head is fresh unless the directory has one."""
        head = loaded.get("token_head") or init_token_head(key, encoder.config.hidden_size, encoder.config.vocab_size)
        return Learned({"encoder": loaded["encoder"], "token_head": head})

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """Masks, predicts, compares."""
        return Encoded(*masked_lm_loss(encoder, params, batch.rows, seeds, self.probability))

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Mean cross entropy over the selected tokens of the batch, in nats; metrics: the share predicted right."""
        count = jnp.maximum(encoded.count.sum(), 1.0)
        return encoded.loss.sum() / count, ({"accuracy": encoded.right.sum() / count}, None)

    def after(self, state: TrainState, carry: Any) -> TrainState:
        """Nothing to do."""
        return state

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """Pooled state of the encoder without dropout."""
        return sentence_embedding(encoder, params, rows, self.pooling)
