"""Masked-language-model training: train a new BERT, or adapt a BERT to a domain before contrastive training."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Key, UInt

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.methods.base import EmbeddingMethod, InitialState, Objective, Seeds
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
    """Return how many tokens are selected if 0, 1, ... `width` of them are maskable, int32.

    The count is the share `probability`, rounded half to even, and at least 1; it is 0 for no maskable token.
    """
    counts = np.maximum(np.rint(probability * np.arange(width + 1)), 1).astype(np.int32)
    counts[0] = 0
    return counts


def select_tokens(
    rows: Rows, seeds: UInt[Array, " rows"], probability: float, separator: int, positions: int = MAX_POSITIONS
) -> tuple[Bool[Array, "rows tokens"], Int[Array, "rows positions"], Bool[Array, "rows positions"]]:
    """Select an exact number of tokens of each row, without replacement, among those that are not [CLS] or [SEP].

    BERT's code does the same up to its `max_predictions_per_seq`. The draw depends on the row's seed only, so padding
    changes nothing.

    Args:
        rows: The tokens [R, T].
        seeds: A seed of each row, uint32 [R].
        probability: The share of a row's tokens that is selected.
        separator: The id of [SEP].
        positions: A power of two above the number of tokens of any row.

    Returns:
        Which tokens are selected, bool [R, T]. Their indices, int32 [R, M], padded. Which of these are not padding, bool [R, M].
    """
    width = rows.tokens.shape[1]
    index = jnp.arange(width, dtype=jnp.uint32)
    maskable = rows.mask & (index > 0) & (index < rows.mask.sum(-1, keepdims=True) - 1) & (rows.tokens != separator)
    counts = mask_counts(max(width - 2, 0), probability)
    count = jnp.asarray(counts)[maskable.sum(-1, keepdims=True)]
    # Random numbers with the index in their low bits: they all differ, and one sort gives both order and indices.
    draw = (random_bits(seeds, MASK_STREAM, (width,)) >> positions.bit_length()) * jnp.uint32(positions) | index
    draw = jnp.where(maskable, draw, jnp.uint32(2**32 - 1))
    ordered = jnp.sort(draw, axis=-1)[:, : int(counts[-1])]
    largest = jnp.take_along_axis(ordered, jnp.maximum(count - 1, 0), axis=-1)
    indices = jnp.minimum(ordered % positions, width - 1).astype(jnp.int32)
    return maskable & (draw <= largest), indices, jnp.arange(indices.shape[1]) < count


def masked_lm_loss(
    encoder: TokenEncoder, params: Params, rows: Rows, seeds: UInt[Array, " rows"], probability: float
) -> tuple[Float[Array, " rows"], Float[Array, " rows"], Float[Array, " rows"]]:
    """Mask tokens of each row and return the cross entropy of their prediction.

    Of the selected tokens 80 % become [MASK], 10 % a random token, and 10 % stay, as in BERT; [CLS] and [SEP] are never selected.
    The last layer and the head compute the selected tokens only.

    Returns:
        For each row [R]: the summed cross entropy of its selected tokens, their number, and how many are predicted correctly.
    """
    config = bert_config(encoder)
    selected, indices, real = select_tokens(rows, seeds, probability, config.sep_token_id, config.counted_positions)
    action_bits, word_bits = (random_bits(seeds, MASK_STREAM + number, selected.shape[1:]) for number in (1, 2))
    replaced = jnp.where(
        action_bits < jnp.uint32(0.8 * 2**32), config.mask_token_id, (word_bits % config.vocab_size).astype(jnp.int32)
    )
    changed = selected & (action_bits < jnp.uint32(0.9 * 2**32))
    masked = Rows(jnp.where(changed, replaced, rows.tokens), rows.mask)
    states = encoder.apply({"params": params["encoder"]}, masked, seeds, token_indices=indices).hidden[-1]
    states = token_states(params["token_head"], states, encoder)
    targets = jnp.take_along_axis(rows.tokens, indices, axis=-1)
    words, bias = params["encoder"]["embeddings"]["word"], params["token_head"]["bias"]
    losses: tuple[Array, Array] = token_loss(states.reshape(-1, states.shape[-1]), words, bias, targets.reshape(-1), encoder.dtype)
    loss, right = (jnp.where(real, values.reshape(real.shape), 0).sum(-1, dtype=jnp.float32) for values in losses)
    return loss, real.sum(-1, dtype=jnp.float32), right


class MaskedLosses(NamedTuple):
    """For each sentence: the loss summed over its selected tokens, the number of these, and how many are predicted correctly."""

    loss: Float[Array, " batch"]
    selected: Float[Array, " batch"]
    right: Float[Array, " batch"]


@dataclass
class MaskedLM(EmbeddingMethod):
    """BERT's masked-language-model loss (Devlin et al. 2019) without next-sentence prediction; each epoch draws new masks.

    The embedding, for scores during training, is the pooled state. `params` are {"encoder", "token_head"}; the export includes the
    head. `mlm_probability` is the share of a row's tokens that is predicted: 0.15 in BERT, 0.4 in Wettig et al. 2023.
    """

    mlm_probability: float = setting(0.15, above=0, below=1)  # share of the tokens of a row to predict
    pooling: str = setting("mean", choices=POOLINGS)  # how token states become an embedding
    reads_packed = True
    trains_sentences = False

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a setting is out of range or the encoder has no masked-language-model head."""
        super().check(encoder, batch_size)
        check_token_head(encoder)

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return distinct sentences, or rows packed from consecutive ones (`data.pack`)."""
        return corpus.packed() if corpus.pack else corpus.plain()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder", "token_head"}; the head is fresh unless the directory has one."""
        head = loaded.get("token_head") or init_token_head(key, bert_config(encoder))
        return InitialState({"encoder": loaded["encoder"], "token_head": head})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> MaskedLosses:
        """Mask tokens of every sentence and predict them."""
        return MaskedLosses(*masked_lm_loss(encoder, params, batch.rows, seeds, self.mlm_probability))

    def objective(self, params: Params, state: TrainState, encoded: MaskedLosses) -> Objective:
        """Return the mean cross entropy of the selected tokens in nats, and the share of correct predictions as a metric."""
        count = jnp.maximum(encoded.selected.sum(), 1.0)
        return encoded.loss.sum() / count, ({"accuracy": encoded.right.sum() / count}, None)
