"""Masked-language-model training, of a new BERT or to adapt a BERT to a domain before contrastive training."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Key, UInt

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.methods.base import EmbeddingMethod, Learned, Objective, Seeds
from jax_sentemb.models.architectures import bert_config
from jax_sentemb.models.bert_config import MAX_POSITIONS
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.heads import check_token_head, init_token_head, token_states
from jax_sentemb.models.layers import random_bits
from jax_sentemb.models.pooling import POOLINGS
from jax_sentemb.models.token_loss import token_loss
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

MASK_STREAM = 1 << 21


def mask_counts(width: int, probability: float) -> Int[np.ndarray, " counts"]:
    """The number of selected tokens for 0 .. `width` maskable ones, int32: the share, rounded half to even, at least 1; 0 for 0."""
    counts = np.maximum(np.rint(probability * np.arange(width + 1)), 1).astype(np.int32)
    counts[0] = 0
    return counts


def select_tokens(
    rows: Rows, seeds: UInt[Array, " rows"], probability: float, separator: int, positions: int = MAX_POSITIONS
) -> tuple[Bool[Array, "rows tokens"], Int[Array, "rows places"], Bool[Array, "rows places"]]:
    """Bool [R, T]: the selected tokens; int32 [R, M]: their places, padded; bool [R, M]: which of those places are not padding.

    A row has an exact number of them, drawn without replacement from its tokens other than [CLS] and [SEP] (as in BERT's code up to
    its `max_predictions_per_seq`). The draw depends on the row's seed only, so padding changes nothing. `positions`: a power of two
    above the number of tokens of any row.
    """
    width = rows.tokens.shape[1]
    place = jnp.arange(width, dtype=jnp.uint32)
    maskable = rows.mask & (place > 0) & (place < rows.mask.sum(-1, keepdims=True) - 1) & (rows.tokens != separator)
    counts = mask_counts(max(width - 2, 0), probability)
    count = jnp.asarray(counts)[maskable.sum(-1, keepdims=True)]
    # Random numbers with the place in their low bits: they all differ, and one sort gives both order and places.
    draw = (random_bits(seeds, MASK_STREAM, (width,)) >> positions.bit_length()) * jnp.uint32(positions) | place
    draw = jnp.where(maskable, draw, jnp.uint32(2**32 - 1))
    ordered = jnp.sort(draw, axis=-1)[:, : int(counts[-1])]
    largest = jnp.take_along_axis(ordered, jnp.maximum(count - 1, 0), axis=-1)
    places = jnp.minimum(ordered % positions, width - 1).astype(jnp.int32)
    return maskable & (draw <= largest), places, jnp.arange(places.shape[1]) < count


def masked_lm_loss(
    encoder: TokenEncoder, params: Params, rows: Rows, seeds: UInt[Array, " rows"], probability: float
) -> tuple[Float[Array, " rows"], Float[Array, " rows"], Float[Array, " rows"]]:
    """For each row [R]: summed cross entropy of its selected tokens, the number of these, and how many of them are predicted right.

    Of the selected tokens 80 % become [MASK], 10 % a random token, and 10 % stay, as in BERT; [CLS] and [SEP] are never selected.
    The last layer and the head compute the selected tokens only.
    """
    config = bert_config(encoder)
    selected, places, real = select_tokens(rows, seeds, probability, config.sep_token_id, config.counted_positions)
    kind, other = (random_bits(seeds, MASK_STREAM + number, selected.shape[1:]) for number in (1, 2))
    replaced = jnp.where(kind < jnp.uint32(0.8 * 2**32), config.mask_token_id, (other % config.vocab_size).astype(jnp.int32))
    changed = selected & (kind < jnp.uint32(0.9 * 2**32))
    masked = Rows(jnp.where(changed, replaced, rows.tokens), rows.mask)
    states = encoder.apply({"params": params["encoder"]}, masked, seeds, token_places=places).hidden[-1]
    states = token_states(params["token_head"], states, encoder)
    targets = jnp.take_along_axis(rows.tokens, places, axis=-1)
    words, bias = params["encoder"]["embeddings"]["word"], params["token_head"]["bias"]
    found: tuple[Array, Array] = token_loss(states.reshape(-1, states.shape[-1]), words, bias, targets.reshape(-1), encoder.dtype)
    loss, right = (jnp.where(real, values.reshape(real.shape), 0).sum(-1, dtype=jnp.float32) for values in found)
    return loss, real.sum(-1, dtype=jnp.float32), right


class MaskedLosses(NamedTuple):
    """For each sentence: the loss summed over its selected tokens, the number of these, and how many are predicted right."""

    loss: Float[Array, " batch"]
    selected: Float[Array, " batch"]
    right: Float[Array, " batch"]


@dataclass
class MaskedLM(EmbeddingMethod):
    """BERT's masked-language-model loss (Devlin et al. 2019) without next-sentence prediction; each epoch draws new masks.

    The embedding, for scores during training, is the pooled state. `params` are {"encoder", "token_head"}; the export includes the
    head. `mlm_probability` is the share of a row's tokens that is predicted: 0.15 in BERT, 0.4 in Wettig et al. 2023.
    """

    mlm_probability: float = setting(0.15, above=0, below=1)  # share of a row's tokens that is predicted
    pooling: str = setting("mean", choices=POOLINGS)  # of the embedding
    reads_packed = True
    trains_sentences = False

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a setting is out of range or the encoder has no masked-language-model head."""
        super().check(encoder, batch_size)
        check_token_head(encoder)

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Distinct sentences, or rows packed from consecutive ones (`data.pack`)."""
        return corpus.packed() if corpus.pack else corpus.plain()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> Learned:
        """{"encoder", "token_head"}; the head is fresh unless the directory has one."""
        head = loaded.get("token_head") or init_token_head(key, bert_config(encoder))
        return Learned({"encoder": loaded["encoder"], "token_head": head})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> MaskedLosses:
        """Masks tokens of every sentence and predicts them."""
        return MaskedLosses(*masked_lm_loss(encoder, params, batch.rows, seeds, self.mlm_probability))

    def objective(self, params: Params, state: TrainState, encoded: MaskedLosses) -> Objective:
        """Mean cross entropy over the selected tokens of the batch, in nats; metrics: the share predicted right."""
        count = jnp.maximum(encoded.selected.sum(), 1.0)
        return encoded.loss.sum() / count, ({"accuracy": encoded.right.sum() / count}, None)
