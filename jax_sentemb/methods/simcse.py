"""SimCSE, miCSE and ESimCSE: contrastive learning of two dropout views of a sentence against other sentences.

SimCSE is Gao et al. 2021 (unsupervised). `ami` adds attention mutual information, `momentum` a queue of negatives from a
momentum encoder; both together are miCSE (Klein and Nabi 2023). `repetition` with `momentum` is ESimCSE (Wu et al. 2022).
`rank_consistency` adds the loss of RankCSE that needs no teacher (Liu et al. 2023).
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import alignment, info_nce, info_nce_without_negatives, rank_consistency
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.base import Carry, EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.methods.masked_lm import masked_lm_loss
from jax_sentemb.methods.views import TwoViews, add_ami_loss, two_dropout_views, two_texts, view_seed
from jax_sentemb.models.architectures import bert_config
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.heads import apply_head, check_token_head, init_head, init_token_head
from jax_sentemb.models.pooling import POOLINGS, pool
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

MOMENTUM_VIEW, MASKED_VIEW = 2, 3  # numbers of the other forward passes, which have their own dropout


@dataclass
class Momentum:
    """A momentum encoder that fills a FIFO queue of negatives (miCSE section 3.1; the code of ESimCSE, which it builds on).

    Its weights are the moving average `decay * own + (1 - decay) * online` of the encoder; the MLP head is the online one. It
    encodes the tokens of the first view with its own dropout and without gradient; its embeddings enter the queue after the step's
    loss. From the second epoch on the queue can have a sentence of the batch, which is not used as its own negative (the papers do
    not say).
    """

    queue_size: int = setting(384, least=1)  # number of embeddings in the queue of negatives
    decay: float = setting(0.995, least=0, below=1)  # decay of the moving average of the encoder's weights
    # Dropout of hidden states and attention (the paper does not say which; ESimCSE's code uses none).
    dropout: float = setting(0.3, least=0, below=1)


class SimCSEViews(NamedTuple):
    """The two views before the head and, if they are used, the momentum view after it, the masked-LM loss and row numbers."""

    views: TwoViews
    momentum: Float[Array, "batch embedding"] | None
    masked_loss: Float[Array, " batch"] | None  # summed over masked tokens
    masked_count: Float[Array, " batch"] | None
    row: Float[Array, " batch"] | None  # float32 numbers of the sentences


@dataclass
class SimCSE(EmbeddingMethod):
    """InfoNCE over dropout views; the embedding is the pooled state before the MLP head, which is used in training only.

    negatives=False is the ablation of miCSE's Table 4. mlm_weight > 0 adds the masked-language-model loss of SimCSE's `do_mlm`
    (15 % of the tokens; a third forward pass). With `repetition` tokens of the second view are repeated: its length then does not
    tell whose view it is. The state's `params` are {"encoder", "head", "token_head" (only with mlm_weight)}.
    """

    temperature: float = setting(0.05, above=0)  # divides the cosines (papers: 0.05)
    pooling: str = setting("cls", choices=POOLINGS)  # how token states become an embedding
    head: bool = True  # use an MLP on the embedding in training
    negatives: bool = True  # use negatives; False: the positive pair alone (miCSE, Table 4)
    # Largest share of repeated tokens of the second view (ESimCSE: 0.32); 0: none.
    repetition: float = setting(0.0, least=0, most=1)
    # Weight of the divergence of the similarity lists of the two views (RankCSE: 1); 0: none.
    rank_consistency: float = setting(0.0, least=0)
    rank_temperature: float = setting(0.05, above=0, used_if="rank_consistency")  # divides the cosines in these lists
    mlm_weight: float = setting(0.0, least=0)  # weight of a masked-language-model loss; 0: none
    mlm_probability: float = setting(0.15, above=0, below=1, used_if="mlm_weight")  # share of the tokens that this loss predicts
    ami: AttentionMI | None = None  # attention mutual information; None: not used
    momentum: Momentum | None = None  # momentum encoder with a queue of negatives; None: not used
    validation_selects: ClassVar[bool] = False
    queues_embeddings: ClassVar[bool] = True  # `embeddings` is empty if it holds vectors after a head

    @property
    def embeddings(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the fields that `train.matryoshka` cuts, none if a queue holds vectors after the head."""
        return () if self.momentum is not None and self.head else ("first", "second")

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a hyper-parameter is out of range or does not fit the encoder."""
        if self.ami is not None and self.repetition:
            raise ConfigError(
                Setting("method.ami"),
                " cannot be used with ",
                Setting("method.repetition", self.repetition),
                ": a repeated token moves those after it, so the attention of the two views does not correspond; set ",
                Setting("method.repetition", 0),
            )
        if self.momentum is not None and not self.negatives:
            raise ConfigError(
                Setting("method.momentum"),
                " is a queue of negatives, and there are none with ",
                Setting("method.negatives", False),
                ": set ",
                Setting("method.momentum", None),
            )
        if self.rank_consistency and batch_size < 3:
            raise ConfigError(
                Setting("method.rank_consistency", self.rank_consistency),
                " compares the order of other sentences; give at least ",
                Setting("data.batch_size", 3),
            )
        super().check(encoder, batch_size)
        if self.mlm_weight:
            check_token_head(encoder)

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return distinct sentences, each with a copy that has repeated tokens if `repetition` is not 0."""
        return corpus.word_repeated(self.repetition, seed) if self.repetition else corpus.plain()

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder", "head", ...}, the momentum copy of the encoder and an empty queue."""
        width = encoder.config.hidden_size
        head_key, token_key = jax.random.split(key)
        params: Params = {"encoder": loaded["encoder"]}
        if self.head:
            params["head"] = init_head(head_key, width)
        if self.mlm_weight:
            fresh = init_token_head(token_key, bert_config(encoder))
            params["token_head"] = loaded.get("token_head") or fresh
        if self.momentum is None:
            return InitialState(params)
        copy = jax.tree.map(jnp.copy, loaded["encoder"])  # a copy: the step donates its state, leaf by leaf
        size = self.momentum.queue_size
        return InitialState(params, copy, jnp.zeros((size, width)), jnp.full(size, -1, jnp.int32))

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> SimCSEViews:
        """Encode both views in one pass over 2B rows, then the momentum view and the masked sentences if they are used."""
        rows = batch.rows
        momentum = masked_loss = masked_count = row = None
        if self.repetition:
            views = two_texts(encoder, params, rows, seeds, self.pooling)
            rows = Rows(*(values[0::2] for values in rows))  # the sentences without repeated tokens
        else:
            views = two_dropout_views(encoder, params["encoder"], rows, seeds, self.ami, self.pooling)
        if self.momentum is not None:
            momentum = self._momentum_view(self.momentum, encoder, params, state, rows, seeds)
            row = None if batch.row is None else batch.row.astype(jnp.float32)
        if self.mlm_weight:
            masked_loss, masked_count, _ = masked_lm_loss(
                encoder, params, rows, view_seed(seeds, MASKED_VIEW), self.mlm_probability
            )
        return SimCSEViews(views, momentum, masked_loss, masked_count, row)

    def objective(self, params: Params, state: TrainState, encoded: SimCSEViews) -> Objective:
        """Return InfoNCE plus the terms of AMI and MLM, the metrics, and the momentum embeddings and row numbers for the queue."""
        first, second = (self._project(params, view) for view in (encoded.views.first, encoded.views.second))
        queue_valid = sentences = None
        if state.queue is not None:
            # Entry number k entered k // B steps ago. The product of step and batch size could overflow int32.
            queue_valid = jnp.arange(len(state.queue)) // len(first) < state.step
            sentences = None if encoded.row is None or state.queue_rows is None else (encoded.row, state.queue_rows)
        if self.negatives:
            loss, accuracy = info_nce(first, second, self.temperature, state.queue, queue_valid, sentences)
        else:
            loss, accuracy = info_nce_without_negatives(first, second, self.temperature)
        metrics = {"contrastive": loss, "accuracy": accuracy, "alignment": alignment(first, second)}
        if self.rank_consistency:
            metrics["rank_consistency"] = rank_consistency(first, second, self.rank_temperature)
            loss = loss + self.rank_consistency * metrics["rank_consistency"]
        loss = add_ami_loss(self.ami, loss, metrics, encoded.views)
        if encoded.masked_loss is not None and encoded.masked_count is not None:
            metrics["mlm"] = encoded.masked_loss.sum() / jnp.maximum(encoded.masked_count.sum(), 1.0)
            loss = loss + self.mlm_weight * metrics["mlm"]
        return loss, (metrics, (encoded.momentum, encoded.row))

    def post_update(self, state: TrainState, carry: Carry) -> TrainState:
        """Move the momentum encoder towards the new weights and put the step's momentum embeddings at the front of the queue."""
        if self.momentum is None or state.queue is None or state.queue_rows is None or state.ema_params is None:
            return state
        moved = 1.0 - self.momentum.decay
        # A frozen weight stays exact.
        average = jax.tree.map(lambda new, old: old + moved * (new - old), state.params["encoder"], state.ema_params)
        vectors, row = carry
        rows = jnp.full(len(vectors), -1, jnp.int32) if row is None else row.astype(jnp.int32)
        size = self.momentum.queue_size
        queue, queue_rows = jnp.concatenate([vectors, state.queue])[:size], jnp.concatenate([rows, state.queue_rows])[:size]
        return state._replace(ema_params=average, queue=queue, queue_rows=queue_rows)

    def _project(self, params: Params, embeddings: Float[Array, "batch embedding"]) -> Float[Array, "batch embedding"]:
        return apply_head(params["head"], embeddings) if self.head else embeddings

    def _momentum_view(
        self,
        momentum: Momentum,
        encoder: TokenEncoder,
        params: Params,
        state: TrainState,
        rows: Rows,
        seeds: Seeds,
    ) -> Float[Array, "batch embedding"]:
        assert state.ema_params is not None
        seeds = view_seed(seeds, MOMENTUM_VIEW)
        options = {"dropout_rate": momentum.dropout, "first_token_only": self.pooling == "cls"}
        output = encoder.apply({"params": state.ema_params}, rows, seeds, **options)
        return jax.lax.stop_gradient(self._project(params, pool(output.hidden, rows.mask, self.pooling)))
