"""Attention similarity of two sentences, or of two dropout views of one (miCSE, appendices B and D).

Slices are those of training (`AttentionMI`): each pools two attention maps. Unlike in training, all entries between positions that
both rows have are used, including those that attention dropout removes, but for places that a compared layer with local attention
does not attend to.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, UInt

from jax_sentemb.data.batches import bucket
from jax_sentemb.data.tokens import pad
from jax_sentemb.errors import NumericsError
from jax_sentemb.inference.embedder import BUCKETS
from jax_sentemb.losses import correlation, gaussian_mutual_information, l2_normalize
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.attention import NEVER, Attention, Capture
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.pooling import pool
from jax_sentemb.types import Array, Params, Rows


class PairAttention(NamedTuple):
    """Similarities of P pairs of rows, float32, in the caller's order."""

    semantic: Float[np.ndarray, " pairs"]  # cosine of the embeddings
    correlation: Float[np.ndarray, "pairs slices"]  # Pearson correlation of log attention in every slice
    attention: Float[np.ndarray, " pairs"]  # mean over slices of mutual information -1/2 log(1 - correlation^2), nats, at most 6.9


class Comparison(NamedTuple):
    """An encoder's architecture, which of its attention is compared, and its dropout; compiled functions depend on these."""

    config: BertConfig
    layers: tuple[int, ...]
    pairing: str
    pooling: str
    dropout: float


def comparison(config: BertConfig, slices: AttentionMI | None = None, pooling: str = "mean", dropout: float = 0.1) -> Comparison:
    """The comparison by the `layers` and `pairing` of `slices`. ConfigError if they do not fit the encoder."""
    slices = slices or AttentionMI()
    slices.check(config.num_hidden_layers, config.num_attention_heads)
    layers = slices.chosen_layers(config.num_hidden_layers)
    return Comparison(config, tuple(sorted(layers)), slices.pairing, pooling, dropout)


def compare_attention(
    static: Comparison,
    params: Params,
    first: Sequence[Int[np.ndarray, " _"]],
    second: Sequence[Int[np.ndarray, " _"]],
    seeds: UInt[np.ndarray, "pairs 2"] | None = None,
    batch_size: int = 16,
) -> PairAttention:
    """Semantic and attention similarity of each pair of token rows (int32 ids with [CLS] and [SEP]).

    Rows of different length are compared in the positions that both have: attention [:c, :c] with c the shorter length.
    `seeds` uint32 [P, 2] switch dropout on, one seed for each row; None compares without dropout. NumericsError for embeddings that
    are not finite.
    """
    config, count = static.config, len(first)
    semantic, rho = np.zeros(count, np.float32), np.zeros((count, len(slice_names(static))), np.float32)
    params = jax.device_put(params)
    order = np.argsort([-max(len(one), len(other)) for one, other in zip(first, second, strict=True)], kind="stable")
    for start in range(0, count, batch_size):
        chosen = order[start : start + batch_size]
        filled = np.append(chosen, np.repeat(chosen[:1], batch_size - len(chosen)))  # one shape for all batches
        rows = _rows(config, *([side[pair] for pair in filled.tolist()] for side in (first, second)))
        batch_seeds = None if seeds is None else np.concatenate([seeds[filled, 0], seeds[filled, 1]]).astype(np.uint32)
        found = jax.device_get(_compare(static, params, rows, batch_seeds))
        semantic[chosen], rho[chosen] = (values[: len(chosen)] for values in found)
    if bad := int((~np.isfinite(semantic)).sum()):
        raise NumericsError(f"{bad} of {count} pairs have embeddings that are not finite (NaN or Inf)")
    return PairAttention(semantic, rho, np.asarray(gaussian_mutual_information(rho).mean(-1)))


def attention_values(
    static: Comparison,
    params: Params,
    first: Int[np.ndarray, " first"],
    second: Int[np.ndarray, " second"],
    seeds: UInt[np.ndarray, " 2"] | None = None,
) -> tuple[Float[np.ndarray, "slices entries"], Float[np.ndarray, "slices entries"]]:
    """Log attention (natural logarithm) of two token rows, float32; 2 * c * c entries, c the shorter length.

    Entry k of a slice belongs to the same map, query and key in both. `seeds`: uint32 [2], otherwise as `compare_attention`.
    """
    seeds = None if seeds is None else np.asarray(seeds, np.uint32)
    logs, valid, _ = jax.device_get(_slices(static, params, _rows(static.config, [first], [second]), seeds))
    one, other = logs[..., valid[0]]
    return one, other


def slice_names(static: Comparison) -> list[str]:
    """Names of the S slices by what they pool, counted from 1: "layers 1 + 3, head 2" or "layer 4, heads 1 + 2"."""
    heads, layers = range(1, static.config.num_attention_heads + 1), static.layers
    if static.pairing == "heads":
        return [f"layer {layer}, heads {head} + {head + 1}" for layer in layers for head in heads[::2]]
    half = len(layers) // 2
    return [f"layers {layers[n]} + {layers[n + half]}, head {head}" for n in range(half) for head in heads]


def view_seeds(count: int, seed: int = 0) -> UInt[np.ndarray, "{count} 2"]:
    """Dropout seeds of the two rows of `count` pairs, uint32, all different."""
    return np.random.default_rng(seed).permutation(2 * count).astype(np.uint32).reshape(count, 2)


def _rows(config: BertConfig, first: list[np.ndarray], second: list[np.ndarray]) -> Rows:
    """All first rows, then all second rows, in one of a few widths."""
    positions = config.max_position_embeddings - config.position_offset
    widths = (*(width for width in BUCKETS if width < positions), positions)
    both = first + second
    return pad(both, bucket(max(map(len, both)), widths), config.pad_token_id)


@functools.partial(jax.jit, static_argnums=0)
def _slices(static: Comparison, params: Params, rows: Rows, seeds: Array | None) -> tuple[Array, Array, Array]:
    """Log attention [2B, S, 2 * T * T], a mask of the entries that both rows have [B, 2 * T * T], embeddings [2B, D]."""

    local = jnp.ones((rows.tokens.shape[1],) * 2, bool)  # of layers with local attention

    def logs(layer: int, attention: Attention) -> tuple[Array, Array]:
        assert attention.scores is not None  # whole maps, not blocks
        near = local if attention.bias is None else jnp.all(attention.bias > NEVER / 2, axis=0)
        return attention.scores - attention.log_normalizer, near

    encoder = make_encoder(static.config, dropout=static.dropout)
    output: Any = encoder.apply({"params": params}, rows, seeds, capture=Capture(static.layers, logs))
    maps = jnp.stack([output.observed[layer][0] for layer in static.layers])  # [n, 2B, H, T, T]
    near = jnp.stack([output.observed[layer][1] for layer in static.layers]).all(axis=0)
    count, both, heads = maps.shape[:3]
    if static.pairing == "layers":
        pooled = maps.reshape(2, count // 2, both, heads, -1).transpose(2, 1, 3, 0, 4)
    else:
        pooled = maps.reshape(count, both, heads // 2, 2, -1).transpose(1, 0, 2, 3, 4)
    mask = jnp.asarray(rows.mask)
    shared = mask[: both // 2] & mask[both // 2 :]  # right-padded: as many positions as the shorter row has
    valid = (shared[:, :, None] & shared[:, None, :] & near).reshape(both // 2, -1)
    return pooled.reshape(both, count * heads // 2, -1), jnp.tile(valid, 2), pool(output.hidden, mask, static.pooling)


@functools.partial(jax.jit, static_argnums=0)
def _compare(static: Comparison, params: Params, rows: Rows, seeds: Array | None) -> tuple[Array, Array]:
    """Cosine [B] and correlation [B, S] of the first half of the rows with the second half."""
    logs, valid, embeddings = _slices(static, params, rows, seeds)
    pairs = len(valid)
    vectors = l2_normalize(embeddings)
    return (vectors[:pairs] * vectors[pairs:]).sum(-1), correlation(logs[:pairs], logs[pairs:], valid[:, None])
