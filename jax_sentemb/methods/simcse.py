"""SimCSE and miCSE: two dropout views of a sentence attract each other, other sentences repel.

SimCSE alone is Gao et al. 2021 (unsupervised). `ami` adds attention mutual information, `momentum` a queue of negatives from a
momentum encoder; both together are miCSE (Klein and Nabi 2023).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jax_sentemb.errors import ConfigError
from jax_sentemb.losses import alignment, info_nce, masked_token_loss
from jax_sentemb.methods import Learned
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.head import apply_head, init_head, init_token_head, token_logits
from jax_sentemb.models.layers import mix, random_bits
from jax_sentemb.models.pooling import POOLINGS, pool
from jax_sentemb.types import Array, Params, Rows, TrainState

VIEWS = 2
MOMENTUM_VIEW, MASKED_VIEW = 2, 3  # numbers of the further forward passes: each has its own dropout
MASK_STREAM = 1 << 21


@dataclass
class Momentum:
    """A momentum encoder that fills a FIFO queue of negatives (miCSE section 3.1; the code of ESimCSE, which it builds on).

    Its weights are the moving average `decay * own + (1 - decay) * online` of the encoder; the MLP head is the online one. It reads
    the first view's tokens with its own dropout, without gradient, and its embeddings enter the queue after the step's loss.
    """

    queue_size: int = 384
    decay: float = 0.995
    dropout: float = 0.3  # hidden states and attention (the paper does not say which; ESimCSE's code uses none)


class Encoded(NamedTuple):
    first: Array  # [B, E] projected embedding of view 1
    second: Array  # [B, E]
    momentum: Array | None  # [B, E]
    information: Array | None  # [B, S] attention MI
    valid: Array | None  # [B, S] fraction of valid samples
    lengths: Array  # float32 [B] tokens
    masked_loss: Array | None  # [B] summed over masked tokens
    masked_count: Array | None  # [B]


@dataclass
class SimCSE:
    """InfoNCE over dropout views; the embedding is the pooled state before the MLP head, which exists in training only.

    negatives=False is miCSE's Table 4. mlm_weight > 0 adds the masked-language-model loss of SimCSE's `do_mlm` (15 % of the
    tokens; a third forward pass). The state's `params` are {"encoder", "head", "token_head" (only with mlm_weight)}.
    """

    temperature: float = 0.05
    pooling: str = "cls"
    head: bool = True
    negatives: bool = True
    mlm_weight: float = 0.0
    mlm_probability: float = 0.15
    ami: AttentionMI | None = None
    momentum: Momentum | None = None

    def check(self, encoder: Any) -> None:
        """Raise ConfigError if a hyper-parameter is out of range or does not fit the encoder."""
        if not self.temperature > 0:
            raise ConfigError(f"method.temperature={self.temperature} must be greater than 0 (papers: 0.05)")
        if self.pooling not in POOLINGS:
            raise ConfigError(f"method.pooling={self.pooling!r} is not one of {', '.join(POOLINGS)}")
        if self.mlm_weight < 0 or not 0 < self.mlm_probability < 1:
            raise ConfigError(
                f"method.mlm_weight={self.mlm_weight} must be >= 0, mlm_probability={self.mlm_probability} inside 0 to 1"
            )
        if self.ami is not None:
            self.ami.check(encoder.config.num_hidden_layers, encoder.config.num_attention_heads)
        if (momentum := self.momentum) is not None:
            if momentum.queue_size < 1 or not 0 <= momentum.decay < 1 or not 0 <= momentum.dropout < 1:
                raise ConfigError(
                    f"method.momentum: queue_size={momentum.queue_size} must be at least 1, decay={momentum.decay} and "
                    f"dropout={momentum.dropout} from 0 to below 1"
                )

    def init(self, encoder: Any, encoder_params: Params, key: Array) -> Learned:
        """{"encoder", "head", ...}, the momentum copy of the encoder and an empty queue."""
        width = encoder.config.hidden_size
        head_key, token_key = jax.random.split(key)
        params = {"encoder": encoder_params}
        if self.head:
            params["head"] = init_head(head_key, width)
        if self.mlm_weight:
            params["token_head"] = init_token_head(token_key, width, encoder.config.vocab_size)
        if self.momentum is None:
            return Learned(params)
        copy = jax.tree.map(jnp.copy, encoder_params)  # a copy: the step donates its state, leaf by leaf
        return Learned(params, copy, jnp.zeros((self.momentum.queue_size, width)))

    def encode(self, encoder: Any, params: Params, state: TrainState, rows: Rows, seeds: Array) -> Encoded:
        """Both views in one pass over 2B rows; then the momentum view and the masked sentences if they are wanted."""
        lengths = rows.mask.sum(-1, dtype=jnp.int32)
        both = Rows(*(jnp.repeat(x, VIEWS, axis=0) for x in rows))
        both_seeds = jnp.stack([_view_seeds(seeds, view) for view in range(VIEWS)], axis=1).reshape(-1)
        information = valid = momentum = masked_loss = masked_count = None
        if self.ami is None:
            output = self._apply(encoder, params["encoder"], both, both_seeds)
        else:
            layers = self.ami.chosen_layers(encoder.config.num_hidden_layers)
            slices = self.ami.slices(layers, encoder.config.num_attention_heads)
            positions = self.ami.sample(seeds, lengths, rows.tokens.shape[1], slices)
            observe = self.ami.observe(positions, layers, VIEWS)
            output = self._apply(encoder, params["encoder"], both, both_seeds, observe=observe, observed_layers=layers)
            information, valid = self.ami.mutual_information(output.observed, positions)
        projected = self._project(params, pool(output.hidden, both.mask, self.pooling))
        if self.momentum is not None:
            momentum = self._momentum_view(encoder, params, state, rows, seeds)
        if self.mlm_weight:
            masked_loss, masked_count = self._masked(encoder, params, rows, seeds)
        return Encoded(
            projected[0::2], projected[1::2], momentum, information, valid,
            lengths.astype(jnp.float32), masked_loss, masked_count,
        )  # fmt: skip

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> tuple[Array, tuple[dict[str, Array], Any]]:
        """InfoNCE - AMI + MLM; metrics; the momentum embeddings for the queue."""
        first, second = encoded.first, encoded.second
        queue_valid = None if state.queue is None else jnp.arange(len(state.queue)) < state.step * len(first)
        loss, accuracy = info_nce(first, second, self.temperature, state.queue, queue_valid, self.negatives)
        metrics = {"contrastive": loss, "accuracy": accuracy, "alignment": alignment(first, second)}
        if encoded.information is not None:
            term, metrics["attention_mi"] = self.ami.term(encoded.information, encoded.valid, encoded.lengths)
            loss = loss + term
        if encoded.masked_loss is not None:
            metrics["mlm"] = encoded.masked_loss.sum() / jnp.maximum(encoded.masked_count.sum(), 1.0)
            loss = loss + self.mlm_weight * metrics["mlm"]
        return loss, (metrics, encoded.momentum)

    def after(self, state: TrainState, carry: Any) -> TrainState:
        """Momentum encoder moved towards the new weights, this step's momentum embeddings at the head of the queue."""
        if self.momentum is None or state.queue is None:
            return state
        average = optax.incremental_update(state.params["encoder"], state.ema_params, 1.0 - self.momentum.decay)
        queue = jnp.concatenate([carry, state.queue])[: self.momentum.queue_size]
        return state._replace(ema_params=average, queue=queue)

    def embed(self, encoder: Any, params: Params, rows: Rows) -> Array:
        """Pooled state of the encoder without dropout, before the head."""
        return pool(self._apply(encoder, params["encoder"], rows).hidden, rows.mask, self.pooling)

    def _apply(self, encoder: Any, encoder_params: Params, rows: Rows, seeds: Array | None = None, **options: Any) -> Any:
        return encoder.apply({"params": encoder_params}, rows, seeds, **options)

    def _project(self, params: Params, embeddings: Array) -> Array:
        return apply_head(params["head"], embeddings) if self.head else embeddings

    def _momentum_view(self, encoder: Any, params: Params, state: TrainState, rows: Rows, seeds: Array) -> Array:
        seeds = _view_seeds(seeds, MOMENTUM_VIEW)
        output = self._apply(encoder, state.ema_params, rows, seeds, dropout_rate=self.momentum.dropout)
        return jax.lax.stop_gradient(self._project(params, pool(output.hidden, rows.mask, self.pooling)))

    def _masked(self, encoder: Any, params: Params, rows: Rows, seeds: Array) -> tuple[Array, Array]:
        """Of the selected tokens 80 % become [MASK], 10 % a random token, 10 % stay, as in BERT; [CLS] and [SEP] are left alone."""
        seeds = _view_seeds(seeds, MASKED_VIEW)
        place = jnp.arange(rows.tokens.shape[1])
        inner = (place > 0) & (place < rows.mask.sum(-1, keepdims=True) - 1)
        chosen, kind, other = (random_bits(seeds, MASK_STREAM + n, place.shape) for n in range(3))
        selected = inner & (chosen < jnp.uint32(self.mlm_probability * 2**32))
        replaced = jnp.where(
            kind < jnp.uint32(0.8 * 2**32),
            encoder.config.mask_token_id,
            (other % encoder.config.vocab_size).astype(jnp.int32),
        )
        changed = selected & (kind < jnp.uint32(0.9 * 2**32))
        masked = Rows(jnp.where(changed, replaced, rows.tokens), rows.mask)
        states = self._apply(encoder, params["encoder"], masked, seeds).hidden[-1]
        logits = token_logits(params["token_head"], params["encoder"]["embeddings"]["word"], states, encoder)
        return masked_token_loss(logits, rows.tokens, selected)


def _view_seeds(seeds: Array, view: int) -> Array:
    return mix(seeds + jnp.uint32((view + 1) * 0x9E3779B1 % 2**32))
