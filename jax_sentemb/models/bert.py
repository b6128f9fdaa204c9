"""BERT and RoBERTa encoders of any size in Flax, equal to Hugging Face's BertModel / RobertaModel without their pooler.

Written for contrastive learning: dropout masks are independent for every row, head and position (one mask shared by a batch
weakens dropout views), and the attention of any layer can be looked at from inside without keeping a tensor of all layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jax_sentemb.models.layers import DenseParameters, LayerNorm, dropout, keep_mask, matmul
from jax_sentemb.types import Array, Rows

ATTENTION_INPUTS = ("query", "key", "value")
MAX_POSITIONS = 2**11  # strides of the attention's dropout counter: larger than any sequence
ACTIVATIONS = {
    # The exact GELU through erf: jax.nn.gelu goes through erfc, which costs two more passes on a CPU.
    "gelu": lambda x: 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5)),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}


@dataclass(frozen=True)
class BertConfig:
    """The architecture of a BERT; field names are those of Hugging Face's config.json."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    initializer_range: float = 0.02
    pad_token_id: int = 0
    position_offset: int = 0  # position of the first token: 0 in BERT, pad_token_id + 1 in RoBERTa
    model_type: str = "bert"
    mask_token_id: int = 103  # of the tokenizer; only masked-language-model losses use it
    sep_token_id: int = 102  # of the tokenizer; only cross-encoders use it


class Attention(NamedTuple):
    """One layer's attention, as `observe` sees it; the compiler drops what it does not use."""

    scores: Array  # float32 [R, H, T, T], scaled and masked: log probability = scores - log_normalizer
    log_normalizer: Array  # float32 [R, H, T, 1]
    probabilities: Array  # float32 [R, H, T, T], before dropout
    kept: Array | None  # bool [R, H, T, T], False where dropout removed an entry; None without dropout


class BertOutput(NamedTuple):
    hidden: list[Array]  # L + 1 arrays [R, T, D]: the embeddings, then each layer
    observed: dict[int, Any]  # layer (1-based) -> what `observe` returned


Observe = Callable[[int, Attention], Any]


class Bert(nn.Module):
    """Token states of every layer. `dropout` is the rate for hidden states and attention alike."""

    config: BertConfig
    dtype: jnp.dtype = jnp.float32  # of the matrix products; parameters, sums and norms stay float32
    dropout: float = 0.1

    @nn.compact
    def __call__(
        self,
        rows: Rows,
        seeds: Array | None = None,
        *,
        token_types: Array | None = None,
        dropout_rate: float | None = None,
        observe: Observe | None = None,
        observed_layers: tuple[int, ...] = (),
    ) -> BertOutput:
        """Encode `rows`; `seeds` uint32 [R] switches dropout on, `observe` is called with the attention of `observed_layers`.

        `token_types` int32 [R, T] (segments) is 0 everywhere unless given.
        """
        rate = self.dropout if dropout_rate is None else dropout_rate
        hidden = [Embeddings(self.config, name="embeddings")(rows.tokens, token_types, seeds, rate)]
        observed = {}
        for number in range(1, self.config.num_hidden_layers + 1):
            layer = Layer(self.config, self.dtype, number, name=f"layer_{number - 1}")
            states, attention = layer(hidden[-1], rows.mask, seeds, rate)
            hidden.append(states)
            if observe is not None and number in observed_layers:
                observed[number] = observe(number, attention)
        return BertOutput(hidden, observed)


class Embeddings(nn.Module):
    config: BertConfig

    @nn.compact
    def __call__(self, tokens: Array, token_types: Array | None, seeds: Array | None, rate: float) -> Array:
        config, width = self.config, tokens.shape[1]
        normal = nn.initializers.normal(config.initializer_range)
        word = self.param("word", normal, (config.vocab_size, config.hidden_size))
        position = self.param("position", normal, (config.max_position_embeddings, config.hidden_size))
        token_type = self.param("token_type", normal, (config.type_vocab_size, config.hidden_size))
        if width + config.position_offset > config.max_position_embeddings:
            raise ValueError(f"{width} tokens do not fit max_position_embeddings={config.max_position_embeddings}")
        places = position[config.position_offset : config.position_offset + width]
        states = LayerNorm(config.layer_norm_eps, name="norm")(
            word[tokens] + places + token_type[0 if token_types is None else token_types]
        )
        return dropout(states, rate, seeds, 0)


class Layer(nn.Module):
    """Self-attention and feed-forward block, each followed by residual and norm (post-norm, as in BERT)."""

    config: BertConfig
    dtype: jnp.dtype
    number: int

    @nn.compact
    def __call__(self, states: Array, mask: Array, seeds: Array | None, rate: float) -> tuple[Array, Attention]:
        config, stream = self.config, 8 * self.number

        def dense(inputs: Array, name: str, features: int) -> Array:
            kernel, bias = DenseParameters(inputs.shape[-1], features, config.initializer_range, name=name)()
            return matmul(inputs, kernel, self.dtype) + bias

        query, key, value = self.query_key_value(states)
        weights, attention = attend(query, key, mask, seeds, rate, stream)
        context = jnp.matmul(weights.astype(self.dtype), value, preferred_element_type=jnp.float32)
        context = context.swapaxes(1, 2).reshape(states.shape)
        context = dropout(dense(context, "attention_output", config.hidden_size), rate, seeds, stream + 1)
        states = LayerNorm(config.layer_norm_eps, name="attention_norm")(states + context)
        inner = ACTIVATIONS[config.hidden_act](dense(states, "intermediate", config.intermediate_size))
        outer = dropout(dense(inner, "output", config.hidden_size), rate, seeds, stream + 2)
        return LayerNorm(config.layer_norm_eps, name="output_norm")(states + outer), attention

    def query_key_value(self, states: Array) -> list[Array]:
        """Three arrays [R, H, T, D / H] from one product: three small ones are slower."""
        size = self.config.hidden_size
        projections = [DenseParameters(size, size, self.config.initializer_range, name=name)() for name in ATTENTION_INPUTS]
        kernels, biases = zip(*projections, strict=True)
        flat: Array = matmul(states, jnp.concatenate(kernels, axis=1), self.dtype)
        flat = flat + jnp.concatenate(biases)
        heads = flat.astype(self.dtype).reshape(*flat.shape[:2], 3, self.config.num_attention_heads, -1)
        return list(heads.transpose(2, 0, 3, 1, 4))


def attend(query: Array, key: Array, mask: Array, seeds: Array | None, rate: float, stream: int) -> tuple[Array, Attention]:
    """Attention weights [R, H, T, T] after dropout, and the Attention they come from. Softmax in float32.

    A finite mask value: a row of padding only gets uniform weights, never NaN.
    """
    scores = jnp.matmul(query, key.swapaxes(-1, -2), preferred_element_type=jnp.float32) / query.shape[-1] ** 0.5
    scores = jnp.where(mask[:, None, None, :], scores, -1e9)
    largest = jax.lax.stop_gradient(scores.max(-1, keepdims=True))
    exponentials = jnp.exp(scores - largest)
    total = exponentials.sum(-1, keepdims=True)
    probabilities = exponentials / total
    weights, kept = probabilities, None
    if seeds is not None and rate > 0.0:
        strides = (MAX_POSITIONS**2, MAX_POSITIONS, 1)
        kept = keep_mask(rate, seeds, stream, scores.shape[1:], strides)
        weights = jnp.where(kept, probabilities / (1.0 - rate), 0.0)
    return weights, Attention(scores, largest + jnp.log(total), probabilities, kept)
