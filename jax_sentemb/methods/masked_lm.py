"""Masked-language-model training: to make a BERT from a text file, or to make a BERT know a domain before a contrastive step."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.base import Learned, Method
from jax_sentemb.models.bert import MAX_POSITIONS
from jax_sentemb.models.heads import init_token_head, token_states
from jax_sentemb.models.layers import random_bits
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.models.token_loss import token_loss
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

MASK_STREAM = 1 << 21


def mask_counts(width: int, probability: float) -> np.ndarray:
    """How many of 0 .. `width` maskable tokens are selected, int32: the rounded share (halves to even), at least one of any."""
    counts = np.maximum(np.rint(probability * np.arange(width + 1)), 1).astype(np.int32)
    counts[0] = 0
    return counts


def select_tokens(rows: Rows, seeds: Array, probability: float, separator: int) -> tuple[Array, Array, Array]:
    """Bool [R, T]: the selected tokens; int32 [R, M]: their places, padded; bool [R, M]: which of those places are selected ones.

    A row has an exact number of them, drawn without replacement from its tokens other than [CLS] and [SEP] (BERT's code does so up
    to its `max_predictions_per_seq`), by its seed alone: padding changes nothing.
    """
    width = rows.tokens.shape[1]
    place = jnp.arange(width, dtype=jnp.uint32)
    maskable = rows.mask & (place > 0) & (place < rows.mask.sum(-1, keepdims=True) - 1) & (rows.tokens != separator)
    counts = mask_counts(max(width - 2, 0), probability)
    count = jnp.asarray(counts)[maskable.sum(-1, keepdims=True)]
    # A random number with the place in its low bits: all differ, and one sort gives the order and the places.
    draw = (random_bits(seeds, MASK_STREAM, (width,)) >> 12) * jnp.uint32(MAX_POSITIONS) | place
    draw = jnp.where(maskable, draw, jnp.uint32(2**32 - 1))
    ordered = jnp.sort(draw, axis=-1)[:, : int(counts[-1])]
    largest = jnp.take_along_axis(ordered, jnp.maximum(count - 1, 0), axis=-1)
    places = jnp.minimum(ordered % MAX_POSITIONS, width - 1).astype(jnp.int32)
    return maskable & (draw <= largest), places, jnp.arange(places.shape[1]) < count


def masked_lm_loss(encoder: Any, params: Params, rows: Rows, seeds: Array, probability: float) -> tuple[Array, Array, Array]:
    """Of each row [R]: summed cross entropy of its selected tokens, their number, and how many of them are predicted right.

    Of the selected tokens 80 % become [MASK], 10 % a random token, 10 % stay, as in BERT; [CLS] and [SEP] are never selected. The
    last layer and the head compute the selected tokens only.
    """
    config = encoder.config
    selected, places, real = select_tokens(rows, seeds, probability, config.sep_token_id)
    kind, other = (random_bits(seeds, MASK_STREAM + number, selected.shape[1:]) for number in (1, 2))
    replaced = jnp.where(kind < jnp.uint32(0.8 * 2**32), config.mask_token_id, (other % config.vocab_size).astype(jnp.int32))
    changed = selected & (kind < jnp.uint32(0.9 * 2**32))
    masked = Rows(jnp.where(changed, replaced, rows.tokens), rows.mask)
    states = encoder.apply({"params": params["encoder"]}, masked, seeds, token_places=places).hidden[-1]
    states = token_states(params["token_head"], states, encoder)
    targets = jnp.take_along_axis(rows.tokens, places, axis=-1)
    words, bias = params["encoder"]["embeddings"]["word"], params["token_head"]["bias"]
    found: Any = token_loss(states.reshape(-1, states.shape[-1]), words, bias, targets.reshape(-1), encoder.dtype)
    loss, right = (jnp.where(real, values.reshape(real.shape), 0).sum(-1, dtype=jnp.float32) for values in found)
    return loss, real.sum(-1, dtype=jnp.float32), right


class Encoded(NamedTuple):
    loss: Array  # float32 [B] summed over selected tokens
    count: Array  # float32 [B] selected tokens
    right: Array  # float32 [B] of them predicted right


@dataclass
class MaskedLM(Method):
    """BERT's masked-language-model loss (Devlin et al. 2019), without next-sentence prediction; masks are drawn anew each epoch.

    The embedding, for scores while it trains, is the pooled state; `params` are {"encoder", "token_head"}, and the export carries
    the head. `mlm_probability`: the share of a row's tokens that is predicted: 0.15 in BERT, 0.4 in Wettig et al. 2023.
    """

    mlm_probability: float = 0.15
    pooling: str = "mean"
    reads_packed = True

    def check(self, encoder: Any, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range."""
        if not 0 < self.mlm_probability < 1:
            raise ConfigError(f"method.mlm_probability={self.mlm_probability} must be inside 0 to 1 (BERT: 0.15)")
        if self.pooling not in POOLINGS:
            raise ConfigError(f"method.pooling={self.pooling!r} is not one of {', '.join(POOLINGS)}")

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Distinct sentences, or rows packed from consecutive ones (`data.pack`)."""
        return corpus.packed() if corpus.pack else corpus.plain()

    def init(self, encoder: Any, loaded: Params, key: Array) -> Learned:
        """{"encoder", "token_head"}; the head is fresh unless the directory has one."""
        head = loaded.get("token_head") or init_token_head(key, encoder.config.hidden_size, encoder.config.vocab_size)
        return Learned({"encoder": loaded["encoder"], "token_head": head})

    def encode(self, encoder: Any, params: Params, state: TrainState, batch: Batch, seeds: Array) -> Encoded:
        """Masks, predicts, compares."""
        return Encoded(*masked_lm_loss(encoder, params, batch.rows, seeds, self.mlm_probability))

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """Mean cross entropy over the selected tokens of the batch, in nats; metrics: the share predicted right."""
        count = jnp.maximum(encoded.count.sum(), 1.0)
        return encoded.loss.sum() / count, ({"accuracy": encoded.right.sum() / count}, None)
