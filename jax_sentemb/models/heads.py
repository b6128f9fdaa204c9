"""Heads on top of an encoder: SimCSE's MLP (in training only), BERT's masked-language-model head, a score for a pair."""

import jax
import jax.numpy as jnp
from flax.traverse_util import unflatten_dict
from jaxtyping import Float, Key, UInt

from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.models.architectures import bert_config
from jax_sentemb.models.bert import ACTIVATIONS
from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.families.table import FAMILIES
from jax_sentemb.models.families.weights import sizes_of
from jax_sentemb.models.layers import dropout, layer_norm, matmul
from jax_sentemb.types import Array, Params, Rows

PAIR_STREAM = 1 << 22  # dropout before the classifier


def init_head(key: Key[Array, ""], width: int) -> Params:
    """Return a kernel [D, D] from N(0, 0.02) and a zero bias, as BERT's pooler starts."""
    return {"kernel": 0.02 * jax.random.normal(key, (width, width)), "bias": jnp.zeros(width)}


def apply_head(params: Params, embeddings: Float[Array, "rows width"]) -> Float[Array, "rows width"]:
    """Return tanh(embeddings kernel + bias), [R, D] (SimCSE's MLP)."""
    return jnp.tanh(jnp.matmul(embeddings, params["kernel"], precision="highest") + params["bias"])


def init_linear(key: Key[Array, ""], inputs: int, outputs: int) -> Params:
    """Return a kernel and a bias from U(-b, b), b = 1 / sqrt(inputs), as torch's Linear starts."""
    kernel_key, bias_key = jax.random.split(key)
    bound = inputs**-0.5
    return {
        "kernel": jax.random.uniform(kernel_key, (inputs, outputs), jnp.float32, -bound, bound),
        "bias": jax.random.uniform(bias_key, (outputs,), jnp.float32, -bound, bound),
    }


def init_classifier(key: Key[Array, ""], inputs: int, width: int, classes: int) -> Params:
    """Return a new classifier of InferSent: linear layers "first", "second" and "output"."""
    widths = (inputs, width, width, classes)
    keys = zip(("first", "second", "output"), jax.random.split(key, 3), strict=True)
    return {name: init_linear(layer_key, *widths[index : index + 2]) for index, (name, layer_key) in enumerate(keys)}


def class_logits(params: Params, values: Float[Array, "batch inputs"]) -> Float[Array, "batch classes"]:
    """Return the logits [B, C] of InferSent's classifier for [B, I]; there is no activation between its linear layers."""
    for name in ("first", "second", "output"):
        values = jnp.matmul(values, params[name]["kernel"], precision="highest") + params[name]["bias"]
    return values


def init_token_head(key: Key[Array, ""], config: BertConfig) -> Params:
    """Return a new masked-language-model head: dense, norm, and a bias for each token, as far as the family has them.

    Its output kernel is the word embedding.
    """
    start = {
        "transform/kernel": lambda shape: 0.02 * jax.random.normal(key, shape[::-1]),  # `shape` is that in PyTorch
        "norm/scale": jnp.ones,
    }
    weights = FAMILIES[config.model_type].heads["token_head"]
    head = {weight.flax: start.get(weight.flax, jnp.zeros)(sizes_of(weight.shape, config)) for weight in weights}
    return unflatten_dict(head, sep="/")


def check_token_head(encoder: TokenEncoder) -> None:
    """Raise ConfigError for an encoder without a masked-language-model head."""
    config = bert_config(encoder)
    if "token_head" not in FAMILIES[config.model_type].heads:
        raise ConfigError(
            Setting("encoder.weights"), f": a {config.model_type} has no masked-language-model head; choose another encoder"
        )


def token_states(params: Params, states: Float[Array, "*rows width"], encoder: TokenEncoder) -> Float[Array, "*rows words"]:
    """Return float32 [..., E], the outputs of the head's dense layer and norm; E is the width of the word embeddings."""
    config = bert_config(encoder)
    inner = matmul(states, params["transform"]["kernel"], encoder.dtype) + params["transform"].get("bias", 0.0)
    inner = ACTIVATIONS[FAMILIES[config.model_type].head_activation or config.hidden_act](inner)
    norm = params["norm"]
    return layer_norm(inner, norm["scale"], norm.get("bias", jnp.zeros_like(norm["scale"])), config.layer_norm_eps)


def pair_score(
    encoder: TokenEncoder, params: Params, rows: Rows, seeds: UInt[Array, " rows"] | None = None
) -> Float[Array, "rows classes"]:
    """Return scores [R, 1] or logits of classes [R, C] of pairs: BERT's pooler, dropout, a linear map.

    Args:
        encoder: A BERT.
        params: The parts "encoder", "pooler" and "classifier" of transformers' BertForSequenceClassification.
        rows: Tokens [CLS] first [SEP] second [SEP].
        seeds: The seeds of the dropout, uint32 [R]; None switches it off.
    """
    ends = (rows.tokens == bert_config(encoder).sep_token_id).astype(jnp.int32)
    types = jnp.where(rows.mask, jnp.minimum(jnp.cumsum(ends, axis=-1) - ends, 1), 0)
    states = encoder.apply({"params": params["encoder"]}, rows, seeds, token_types=types, first_token_only=True).hidden[-1]
    pooled = dropout(apply_head(params["pooler"], states[:, 0]), encoder.dropout, seeds, PAIR_STREAM)
    return jnp.matmul(pooled, params["classifier"]["kernel"], precision="highest") + params["classifier"]["bias"]
