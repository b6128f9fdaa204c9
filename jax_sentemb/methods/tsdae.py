"""TSDAE: a decoder writes a sentence from the embedding of a copy without most of its tokens (Wang et al., EMNLP Findings 2021).

References:
    Wang, Reimers and Gurevych 2021; the code is DenoisingAutoEncoderLoss of sentence-transformers.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.methods.base import EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.methods.views import view_seed
from jax_sentemb.models.architectures import bert_config
from jax_sentemb.models.bert import Bert
from jax_sentemb.models.decoder import decode, init_cross_attention
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.models.heads import check_token_head, init_token_head, token_states
from jax_sentemb.models.pooling import POOLINGS, sentence_embedding
from jax_sentemb.models.token_loss import token_loss
from jax_sentemb.settings import setting
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState

ENCODER_PASS, DECODER_PASS = 0, 1  # forward passes, each with its own dropout


class WrittenTokens(NamedTuple):
    """For each sentence: the loss summed over its tokens after the first, their number, and how many are predicted correctly."""

    loss: Float[Array, " batch"]
    tokens: Float[Array, " batch"]
    right: Float[Array, " batch"]


@dataclass
class TSDAE(EmbeddingMethod):
    """Cross entropy of the tokens of a sentence, by a decoder that sees the embedding of a copy with deleted tokens.

    The decoder is the encoder with a causal mask: it has the same weights. Its cross-attention has new weights, and sees the
    embedding and nothing else. The masked-language-model head of the start predicts the words, if there is one. The state's
    `params` are {"encoder", "cross_attention", "decoder_head"}; the encoder alone is exported.
    """

    deletion: float = setting(0.6, above=0, below=1)  # probability that a token between [CLS] and [SEP] is deleted
    pooling: str = setting("cls", choices=POOLINGS)  # how token states become an embedding

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a setting is out of range, or the layers of the encoder cannot decode."""
        super().check(encoder, batch_size)
        check_token_head(encoder)
        family = FAMILIES[bert_config(encoder).model_type]
        if not family.can_decode:
            problem = f": the layers of a {family.title} cannot decode; start from a BERT or a RoBERTa"
            raise ConfigError(Setting("encoder.weights"), problem)

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return distinct sentences, each with a copy without most of its tokens."""
        return corpus.tokens_deleted(self.deletion, seed)

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder", "cross_attention", "decoder_head"}."""
        cross_key, head_key = jax.random.split(key)
        config = bert_config(encoder)
        head = loaded.get("token_head") or init_token_head(head_key, config)
        cross = init_cross_attention(cross_key, config)
        return InitialState({"encoder": loaded["encoder"], "cross_attention": cross, "decoder_head": head})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> WrittenTokens:
        """Embed the copies, and predict each token of the sentences from those before it."""
        assert isinstance(encoder, Bert)
        whole, copies = (Rows(*(values[view::2] for values in batch.rows)) for view in (0, 1))
        vectors = sentence_embedding(encoder, params, copies, self.pooling, seeds=view_seed(seeds, ENCODER_PASS))
        read = Rows(whole.tokens[:, :-1], whole.mask[:, :-1])
        weights = params["encoder"], params["cross_attention"]
        states = decode(encoder, weights, read, vectors, view_seed(seeds, DECODER_PASS))
        states = token_states(params["decoder_head"], states, encoder)
        targets, real = whole.tokens[:, 1:], whole.mask[:, 1:]
        words, bias = params["encoder"]["embeddings"]["word"], params["decoder_head"]["bias"]
        losses: tuple[Array, Array] = token_loss(
            states.reshape(-1, states.shape[-1]), words, bias, targets.reshape(-1), encoder.dtype
        )
        loss, right = (jnp.where(real, values.reshape(real.shape), 0).sum(-1, dtype=jnp.float32) for values in losses)
        return WrittenTokens(loss, real.sum(-1, dtype=jnp.float32), right)

    def objective(self, params: Params, state: TrainState, encoded: WrittenTokens) -> Objective:
        """Return the mean cross entropy of the tokens of the batch in nats, and the share of correct predictions as a metric."""
        count = jnp.maximum(encoded.tokens.sum(), 1.0)
        return encoded.loss.sum() / count, ({"accuracy": encoded.right.sum() / count}, None)
