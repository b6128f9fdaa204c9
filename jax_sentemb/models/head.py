"""Heads on top of an encoder, used in training only: SimCSE's MLP and BERT's masked-language-model head."""

from typing import Any

import jax
import jax.numpy as jnp

from jax_sentemb.models.bert import ACTIVATIONS
from jax_sentemb.models.layers import layer_norm, matmul
from jax_sentemb.types import Array, Params


def init_head(key: Array, width: int) -> Params:
    """Kernel [D, D] from N(0, 0.02) and zero bias, as BERT's own pooler starts."""
    return {"kernel": 0.02 * jax.random.normal(key, (width, width)), "bias": jnp.zeros(width)}


def apply_head(params: Params, embeddings: Array) -> Array:
    """tanh(embeddings kernel + bias), [R, D] (SimCSE's MLP)."""
    return jnp.tanh(jnp.matmul(embeddings, params["kernel"], precision="highest") + params["bias"])


def init_token_head(key: Array, width: int, vocab_size: int) -> Params:
    """BERT's masked-language-model head: dense, norm, and a bias for each token; its output kernel is the word embedding."""
    return {
        "transform": init_head(key, width),
        "norm": {"scale": jnp.ones(width), "bias": jnp.zeros(width)},
        "bias": jnp.zeros(vocab_size),
    }


def token_logits(params: Params, word_embedding: Array, states: Array, encoder: Any) -> Array:
    """Float32 logits [R, T, V] for token states [R, T, D]."""
    inner = matmul(states, params["transform"]["kernel"], encoder.dtype) + params["transform"]["bias"]
    inner = ACTIVATIONS[encoder.config.hidden_act](inner)
    inner = layer_norm(inner, params["norm"]["scale"], params["norm"]["bias"], encoder.config.layer_norm_eps)
    return matmul(inner, word_embedding.T, encoder.dtype) + params["bias"]
