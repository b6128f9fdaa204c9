"""A decoder made of the layers of a BERT, which sees one vector of each sentence by cross-attention."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key, UInt

from jax_sentemb.models.attention import NEVER
from jax_sentemb.models.bert import Bert, Embeddings, Layer
from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.layers import dropout, keep_mask, layer_norm, matmul
from jax_sentemb.types import Array, Params, Rows

CROSS_STREAM = 1 << 23  # dropout after the cross-attention of each layer


def init_cross_attention(key: Key[Array, ""], config: BertConfig) -> Params:
    """Return new weights of the cross-attention of each layer: "value", "output" and "norm".

    There is one vector to attend to, so its weight is 1 whatever the query and the key are. They are left out.
    """
    width, layers = config.hidden_size, {}
    for number, layer_key in enumerate(jax.random.split(key, config.num_hidden_layers)):
        kernels = config.initializer_range * jax.random.normal(layer_key, (2, width, width))
        dense = {
            name: {"kernel": kernel, "bias": jnp.zeros(width)} for name, kernel in zip(("value", "output"), kernels, strict=True)
        }
        layers[f"layer_{number}"] = {**dense, "norm": {"scale": jnp.ones(width), "bias": jnp.zeros(width)}}
    return layers


def decode(
    encoder: Bert,
    params: tuple[Params, Params],
    rows: Rows,
    vectors: Float[Array, "rows width"],
    seeds: UInt[Array, " rows"] | None,
) -> Float[Array, "rows tokens width"]:
    """Return the states of a decoder; each depends on the tokens up to its position and on the vector of its sentence.

    Args:
        encoder: The architecture, its precision and its dropout.
        params: The weights of the encoder, which are those of the decoder too, and of the cross-attention.
        rows: The tokens that the decoder reads.
        vectors: A vector of each sentence.
        seeds: The seeds of the dropout; None switches it off.
    """
    config, (weights, cross), width = encoder.config, params, rows.tokens.shape[1]
    rate, memory, activations = encoder.dropout, encoder.attention_memory()._replace(fused=""), encoder.activations
    states: Any = Embeddings(config, activations, parent=None).apply(
        {"params": weights["embeddings"]}, rows.tokens, None, seeds, rate
    )
    if "projection" in weights:
        states = matmul(states, weights["projection"]["kernel"], encoder.dtype, activations) + weights["projection"]["bias"]
        states = states.astype(activations)
    index = jnp.arange(width)
    bias = jnp.where(index <= index[:, None], 0.0, NEVER)[None]
    for number in range(1, config.num_hidden_layers + 1):
        name = f"layer_{number - 1}"
        attend = _cross_attention(encoder, cross[name], vectors, seeds, CROSS_STREAM + 2 * number)
        layer = Layer(config, encoder.dtype, number, rate, memory, activations, attend, parent=None)

        def run(states: Array, layer: Layer = layer, name: str = name) -> Array:
            return layer.apply({"params": weights[name]}, states, rows.mask, seeds, False, False, None, bias)[0]

        states = jax.checkpoint(run)(states) if encoder.remat else run(states)
    return states.astype(jnp.float32)


def _cross_attention(
    encoder: Bert, params: Params, vectors: Float[Array, "rows width"], seeds: UInt[Array, " rows"] | None, stream: int
) -> Callable[[Array], Array]:
    """Return the function that adds the output of the cross-attention of a layer to the states of the layer."""
    config, rate = encoder.config, encoder.dropout
    value = matmul(vectors, params["value"]["kernel"], encoder.dtype) + params["value"]["bias"]
    heads = value.reshape(len(vectors), 1, config.num_attention_heads, -1)

    def add(states: Float[Array, "rows tokens width"]) -> Float[Array, "rows tokens width"]:
        context = heads
        if seeds is not None and rate:  # of the attention weight, which is 1, for each query and head
            is_kept = keep_mask(rate, seeds, stream, (states.shape[1], config.num_attention_heads, 1))
            context = jnp.where(is_kept, heads / (1.0 - rate), 0.0)
        flat = context.reshape(*context.shape[:2], -1)
        outer = matmul(flat, params["output"]["kernel"], encoder.dtype) + params["output"]["bias"]
        outer = dropout(jnp.broadcast_to(outer, states.shape), rate, seeds, stream + 1)
        norm = params["norm"]
        return layer_norm(states + outer, norm["scale"], norm["bias"], config.layer_norm_eps).astype(states.dtype)

    return add
