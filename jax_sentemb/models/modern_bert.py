"""ModernBERT (Warner et al. 2024) in Flax, equal to the model of Hugging Face.

It differs from BERT in its rotary positions, a gated feed-forward block, norms before the blocks, and the lack of biases. Two of
three layers attend to near tokens only.
"""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name as keep
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int, UInt

from jax_sentemb.models.attention import NEVER, Attention, queried
from jax_sentemb.models.bert import ACTIVATIONS, STREAMS, Bert
from jax_sentemb.models.families.modern_bert import ModernBertConfig
from jax_sentemb.models.layers import LayerNorm, dropout, matmul
from jax_sentemb.models.self_attention import AttentionMemory, layer_attention
from jax_sentemb.types import Array

Angles = tuple[Array, Array]  # cosines and sines, float32 [..., indices, size / 2]


class ModernBert(Bert):
    """Compute the token states of every layer. `token_types` must be None."""

    config: ModernBertConfig  # pyright: ignore[reportIncompatibleVariableOverride]

    def embed(
        self,
        tokens: Int[Array, "rows tokens"],
        token_types: Int[Array, "rows tokens"] | None,
        seeds: UInt[Array, " rows"] | None,
        rate: float,
    ) -> Float[Array, "rows tokens width"]:
        """Return the states before the first layer."""
        if tokens.shape[1] > self.config.max_position_embeddings:
            raise ValueError(f"{tokens.shape[1]} tokens do not fit max_position_embeddings={self.config.max_position_embeddings}")
        return ModernEmbeddings(self.config, self.activations, name="embeddings")(tokens, seeds, rate)

    def layer_type(self) -> type[nn.Module]:
        """Return the class of the layers."""
        return ModernLayer

    def attention_bias(self, width: int) -> Float[Array, "1 tokens tokens"]:
        """Return the bias of local layers, which hides tokens that are too far away."""
        return window_bias(width, self.config.local_attention // 2)

    def layer_bias(self, number: int, bias: Float[Array, "_ tokens tokens"] | None) -> Float[Array, "_ tokens tokens"] | None:
        """Return the bias of a local layer, None for one that attends to all tokens."""
        return None if self.config.is_global(number) else bias

    def finish(self, states: Float[Array, "rows _ width"]) -> Float[Array, "rows _ width"]:
        """Return the normalised states of the last layer."""
        return LayerNorm(self.config.layer_norm_eps, use_bias=False, name="final_norm")(states)


class ModernEmbeddings(nn.Module):
    """Word embeddings with layer norm and dropout."""

    config: ModernBertConfig
    activations: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self, tokens: Int[Array, "rows tokens"], seeds: UInt[Array, " rows"] | None, rate: float
    ) -> Float[Array, "rows tokens width"]:
        """Return the states before the first layer."""
        config = self.config
        word = self.param("word", nn.initializers.normal(config.initializer_range), (config.vocab_size, config.hidden_size))
        states = LayerNorm(config.layer_norm_eps, use_bias=False, name="norm")(word[tokens].astype(self.activations))
        return dropout(states, rate, seeds, 0)


class ModernLayer(nn.Module):
    """Self-attention with rotary positions, then a gated feed-forward block, each after a norm (the first attention has none)."""

    config: ModernBertConfig
    dtype: DTypeLike
    number: int
    rate: float  # of dropout
    memory: AttentionMemory = AttentionMemory()
    activations: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self,
        states: Float[Array, "rows tokens width"],
        mask: Bool[Array, "rows tokens"],
        seeds: UInt[Array, " rows"] | None,
        first_only: bool,
        captured: bool,
        indices: Int[Array, "rows indices"] | None,
        bias: Float[Array, "1 tokens tokens"] | None,
    ) -> tuple[Float[Array, "rows _ width"], Attention]:
        """Return the layer's states and its attention, as `bert.Layer` does; `bias` is that of a local layer."""
        config, rate, stream, width = self.config, self.rate, STREAMS * self.number, states.shape[-1]
        theta = config.global_rope_theta if config.is_global(self.number) else config.local_rope_theta
        angles = rotary_angles(states.shape[1], width // config.num_attention_heads, theta)
        normal = states if self.number == 1 else LayerNorm(config.layer_norm_eps, use_bias=False, name="attention_norm")(states)
        queried_states = normal if captured and indices is None else queried(normal, first_only, indices)
        kernel = self._kernel("query_key_value", width, 3 * width)
        query_angles = angles
        if queried_states is not normal:
            query_angles = rotary_at(angles, indices)
            query, (key, value) = self._split(queried_states, kernel[:, :width])[0], self._split(normal, kernel[:, width:])
        else:
            query, key, value = self._split(normal, kernel)
        heads = rotate(query, query_angles).astype(self.dtype), rotate(key, angles).astype(self.dtype), value
        drop = self.memory.dropout(seeds, rate, stream, config.counted_positions)
        context, attention = layer_attention(heads, mask, drop, self.memory, bias, first_only, indices)
        states = queried(states, first_only, indices)
        states = states + dropout(self._dense(context, "attention_output", width), rate, seeds, stream + 1)
        normal = LayerNorm(config.layer_norm_eps, use_bias=False, name="output_norm")(states)
        both = keep(self._dense(normal, "intermediate", 2 * config.intermediate_size), "inner").astype(jnp.float32)
        inner, gate = jnp.split(both, 2, axis=-1)
        inner = dropout((ACTIVATIONS[config.hidden_act](inner) * gate).astype(self.activations), rate, seeds, stream + 2)
        return keep(states + self._dense(inner, "output", width), "sum"), attention

    def _split(self, states: Float[Array, "rows _ width"], kernel: Array) -> list[Float[Array, "rows heads _ size"]]:
        """Return query, key and value of each head, or those of them that `kernel` has columns for."""
        flat = keep(matmul(states, kernel, self.dtype).astype(self.dtype), "projection")
        parts = jnp.split(flat, kernel.shape[1] // states.shape[-1], axis=-1)  # its gradient joins them in one pass
        return [part.reshape(*part.shape[:2], self.config.num_attention_heads, -1).swapaxes(1, 2) for part in parts]

    def _dense(self, inputs: Float[Array, "rows _ inputs"], name: str, features: int) -> Float[Array, "rows _ features"]:
        kernel = self._kernel(name, inputs.shape[-1], features)
        return matmul(inputs, kernel, self.dtype, self.activations).astype(self.activations)

    def _kernel(self, name: str, inputs: int, features: int) -> Float[Array, "inputs features"]:
        return self.param(name, nn.initializers.normal(self.config.initializer_range), (inputs, features))


def rotary_angles(width: int, size: int, theta: float) -> Angles:
    """Return cosines and sines, float32 [T, size / 2], of position / theta^(2 i / size) (Su et al. 2021)."""
    frequencies = 1.0 / np.float32(theta) ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size))
    angles = np.arange(width, dtype=np.float32)[:, None] * frequencies.astype(np.float32)
    return jnp.cos(jnp.asarray(angles)), jnp.sin(jnp.asarray(angles))


def rotary_at(angles: Angles, indices: Int[Array, "rows indices"] | None) -> Angles:
    """Return the angles of `indices`, [R, 1, M, size / 2], or of the first position."""
    cosine, sine = (part[:1] if indices is None else part[indices][:, None] for part in angles)
    return cosine, sine


def rotate(heads: Float[Array, "rows heads indices size"], angles: Angles) -> Float[Array, "rows heads indices size"]:
    """Rotate each pair (i, i + size / 2) of numbers by the angle of its position, in float32."""
    first, second = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
    cosine, sine = angles
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def window_bias(width: int, reach: int) -> Float[Array, "1 tokens tokens"]:
    """Return 0 where query and key are at most `reach` tokens apart, NEVER elsewhere."""
    index = jnp.arange(width)
    return jnp.where(jnp.abs(index - index[:, None]) <= reach, 0.0, NEVER)[None]
