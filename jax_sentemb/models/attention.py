"""Compute attention by whole maps, blocks of queries or a fused kernel, and read entries of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Shaped, UInt

from jax_sentemb.models.bert_config import MAX_POSITIONS
from jax_sentemb.models.layers import keep_mask, kept_at
from jax_sentemb.types import Array

NORMALIZER_BLOCK = 128  # queries whose log-sum-exp is computed at once in addition to a fused kernel
NEVER = -1e9  # the score of a key that gets no attention; finite, so that a row of padding has uniform weights and not NaN


def counter_strides(positions: int) -> tuple[int, int, int]:
    """Return the strides of the counter of attention dropout: head, query, key."""
    return positions**2, positions, 1


class Attention(NamedTuple):
    """The attention of one layer, as a `Capture` reads it; the compiler removes what is not read."""

    query: Float[Array, "rows heads queries size"]
    key: Float[Array, "rows heads tokens size"]
    mask: Bool[Array, "rows tokens"]
    log_normalizer: Float[Array, "rows heads queries 1"]  # float32
    # The next three are None if the layer attends in blocks. Log probability is scores - log_normalizer; `probabilities` are those
    # before dropout.
    scores: Float[Array, "rows heads queries tokens"] | None  # float32, scaled and masked
    probabilities: Float[Array, "rows heads queries tokens"] | None  # float32
    kept: Bool[Array, "rows heads queries tokens"] | None  # False where dropout removed an entry; else None: use `kept_at`
    seeds: UInt[Array, " rows"] | None = None  # seeds, rate and stream of the dropout
    rate: float = 0.0
    stream: int | Int[Array, ""] = 0
    positions: int = MAX_POSITIONS
    bias: Float[Array, "_ tokens tokens"] | None = None  # added to the scores

    def log_probability_at(
        self, query: Int[Array, "rows heads samples"], key: Int[Array, "rows heads samples"]
    ) -> Float[Array, "rows heads samples"]:
        """Return the log attention, float32 [R, H, M], at positions int [R, H, M] of queries and keys that are real tokens."""
        normalizer = jnp.take_along_axis(self.log_normalizer[..., 0], query, axis=-1)
        if self.scores is not None:
            return _entries(self.scores, query, key) - normalizer
        rows = [
            jnp.take_along_axis(values, index[..., None], axis=2).astype(jnp.float32)
            for values, index in ((self.query, query), (self.key, key))
        ]
        scores = (rows[0] * rows[1]).sum(-1) / self.query.shape[-1] ** 0.5
        return scores - normalizer if self.bias is None else scores + self._bias_at(query, key) - normalizer

    def attended_at(
        self, query: Int[Array, "rows heads samples"], key: Int[Array, "rows heads samples"]
    ) -> Bool[Array, "rows heads samples"]:
        """Return whether a layer with local attention attends at these positions, bool [R, H, M]; True in other layers."""
        return jnp.ones(query.shape, bool) if self.bias is None else self._bias_at(query, key) > NEVER / 2

    def kept_at(
        self, query: Int[Array, "rows heads samples"], key: Int[Array, "rows heads samples"]
    ) -> Bool[Array, "rows heads samples"]:
        """Return which of the entries at these positions are attended to and kept by dropout, bool [R, H, M]."""
        attended = self.attended_at(query, key)
        if self.kept is not None:
            return _entries(self.kept, query, key) & attended
        if self.seeds is None or self.rate == 0.0:
            return attended
        head, strides = jnp.arange(query.shape[1])[:, None], counter_strides(self.positions)
        numbers = head * strides[0] + query * strides[1] + key * strides[2]
        return kept_at(self.rate, self.seeds, self.stream, numbers) & attended

    def _bias_at(
        self, query: Int[Array, "rows heads samples"], key: Int[Array, "rows heads samples"]
    ) -> Float[Array, "rows heads samples"]:
        assert self.bias is not None
        head = jnp.arange(query.shape[1])[:, None] % len(self.bias)
        return self.bias[head, query, key]


def _entries(
    maps: Shaped[Array, "rows heads queries tokens"],
    query: Int[Array, "rows heads samples"],
    key: Int[Array, "rows heads samples"],
) -> Shaped[Array, "rows heads samples"]:
    rows, heads, _, width = maps.shape
    return jnp.take_along_axis(maps.reshape(rows, heads, width * width), query * width + key, axis=-1)


class Capture(NamedTuple):
    """The layers whose attention is read, and the function that reads it: the results are `BertOutput.observed`."""

    layers: tuple[int, ...]  # 1-based
    read: Callable[[int, Attention], Any]  # (layer, attention) -> arrays


class AttentionDropout(NamedTuple):
    """Dropout of the attention weights of one layer; off without seeds or at rate 0."""

    seeds: UInt[Array, " rows"] | None = None
    rate: float = 0.0
    stream: int | Int[Array, ""] = 0
    positions: int = MAX_POSITIONS


def queried(
    states: Float[Array, "rows tokens width"], first_only: bool, indices: Int[Array, "rows indices"] | None
) -> Float[Array, "rows _ width"]:
    """Return the states that a layer computes: those of the first token, of `indices`, or all."""
    if indices is not None:
        return jnp.take_along_axis(states, indices[..., None], axis=1)
    return states[:, :1] if first_only else states


def queried_bias(
    bias: Float[Array, "_ tokens tokens"] | None, first_only: bool, indices: Int[Array, "rows indices"] | None
) -> Float[Array, "_ _ _ tokens"] | None:
    """Return the bias of these queries, [R or 1, H or 1, Q, T]."""
    if bias is None:
        return None
    if indices is not None:
        return jnp.moveaxis(bias[:, indices], 1, 0)
    return bias[None, :, :1] if first_only else bias[None]


def attend(
    query: Float[Array, "rows heads queries size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    dropout: AttentionDropout,
    start: Int[Array, ""] | int = 0,
    bias: Float[Array, "_ _ queries tokens"] | None = None,
) -> tuple[Float[Array, "rows heads queries size"], Attention]:
    """Return the context in float32, with dropout on the weights, and the Attention that it comes from.

    Softmax is computed in float32.

    Args:
        query: The queries of each head.
        key: The keys of each head.
        value: The values of each head.
        mask: Which keys are real tokens.
        dropout: The dropout of the attention weights.
        start: The position of the first query.
        bias: Numbers [R or 1, H or 1, Q, T] that are added to the scores.
    """
    scores = jnp.matmul(query, key.swapaxes(-1, -2), preferred_element_type=jnp.float32) / query.shape[-1] ** 0.5
    scores = scores if bias is None else scores + bias
    scores = jnp.where(mask[:, None, None, :], scores, NEVER)
    largest = jax.lax.stop_gradient(scores.max(-1, keepdims=True))
    exponentials = jnp.exp(scores - largest)
    total = exponentials.sum(-1, keepdims=True)
    probabilities = exponentials / total
    weights, is_kept = probabilities, None
    if dropout.seeds is not None and dropout.rate > 0.0:
        strides = counter_strides(dropout.positions)
        is_kept = keep_mask(dropout.rate, dropout.seeds, dropout.stream, scores.shape[1:], strides, start * strides[1])
        weights = jnp.where(is_kept, probabilities / (1.0 - dropout.rate), 0.0)
    context = jnp.matmul(weights.astype(value.dtype), value, preferred_element_type=jnp.float32)
    return context, Attention(query, key, mask, largest + jnp.log(total), scores, probabilities, is_kept)


def attend_in_blocks(
    query: Float[Array, "rows heads tokens size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    dropout: AttentionDropout,
    block: int,
    bias: Float[Array, "1 _ tokens tokens"] | None = None,
) -> tuple[Float[Array, "rows heads tokens size"], Attention]:
    """Compute `attend` for `block` queries at a time; the backward pass computes each block again, so memory is linear in T."""
    rows, heads, width, inner = query.shape
    padding = -width % block
    blocks = jnp.pad(query, ((0, 0), (0, 0), (0, padding), (0, 0))).reshape(rows, heads, -1, block, inner).transpose(2, 0, 1, 3, 4)
    bias = None if bias is None else jnp.pad(bias, ((0, 0), (0, 0), (0, padding), (0, 0)))

    @jax.checkpoint
    def attend_block(part: tuple[Array, Array]) -> tuple[Array, Array]:
        block_bias = None if bias is None else jax.lax.dynamic_slice_in_dim(bias, part[1], block, 2)
        context, attention = attend(part[0], key, value, mask, dropout, part[1], block_bias)
        return context, attention.log_normalizer

    results = jax.lax.map(attend_block, (blocks, jnp.arange(len(blocks)) * block))
    context, normalizer = (
        part.transpose(1, 2, 0, 3, 4).reshape(rows, heads, width + padding, -1)[:, :, :width] for part in results
    )
    return context, Attention(query, key, mask, normalizer, None, None, None)


def attend_fused(
    query: Float[Array, "rows heads tokens size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    kernel: str,
    bias: Float[Array, "1 _ tokens tokens"] | None = None,
) -> tuple[Float[Array, "rows heads tokens size"], Attention]:
    """Compute `attend` without dropout by a kernel of `jax.nn.dot_product_attention`. Rows are padded on the right.

    The kernels do not return the log-sum-exp of a query, or return it without gradient, so it is computed separately, in blocks.
    The compiler removes that computation if the attention is not read.
    """
    # cuDNN has no gradient for an odd number of queries or keys.
    padding = query.shape[2] % 2
    padded = (jnp.pad(values, ((0, 0), (0, 0), (0, padding), (0, 0))) for values in (query, key, value))
    by_token = (values.swapaxes(1, 2) for values in padded)
    options: dict[str, Any] = {"key_value_seq_lengths": mask.sum(-1, dtype=jnp.int32), "implementation": kernel}
    if bias is not None:
        wide = jnp.pad(bias, ((0, 0), (0, 0), (0, padding), (0, padding))).astype(query.dtype)
        options["bias"] = jnp.broadcast_to(wide, (1, query.shape[1], *wide.shape[2:]))
    context = jax.nn.dot_product_attention(*by_token, **options)
    _, attention = attend_in_blocks(query, key, value, mask, AttentionDropout(), NORMALIZER_BLOCK, bias)
    return context[:, : query.shape[2]].swapaxes(1, 2).astype(jnp.float32), attention
