"""Attention of a layer: whole maps, blocks of queries, or a fused kernel; and what of it can be read."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Shaped, UInt

from jax_sentemb.models.layers import keep_mask, kept_at
from jax_sentemb.types import Array

NORMALIZER_BLOCK = 128  # queries whose log-sum-exp is computed at once beside a fused kernel
MAX_POSITIONS = 2**11  # larger than any sequence
STRIDES = (MAX_POSITIONS**2, MAX_POSITIONS, 1)  # of the attention's dropout counter: head, query, key


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
    kept: Bool[Array, "rows heads queries tokens"] | None  # False where dropout removed an entry; also None without dropout
    seeds: UInt[Array, " rows"] | None = None  # seeds, rate and stream of the dropout
    rate: float = 0.0
    stream: int | Int[Array, ""] = 0

    def log_probability_at(
        self, query: Int[Array, "rows heads samples"], key: Int[Array, "rows heads samples"]
    ) -> Float[Array, "rows heads samples"]:
        """Log attention, float32 [R, H, M], at places int [R, H, M] of queries and keys, both real tokens."""
        normalizer = jnp.take_along_axis(self.log_normalizer[..., 0], query, axis=-1)
        if self.scores is not None:
            return _entries(self.scores, query, key) - normalizer
        rows = [
            jnp.take_along_axis(values, place[..., None], axis=2).astype(jnp.float32)
            for values, place in ((self.query, query), (self.key, key))
        ]
        return (rows[0] * rows[1]).sum(-1) / self.query.shape[-1] ** 0.5 - normalizer

    def kept_at(
        self, query: Int[Array, "rows heads samples"], key: Int[Array, "rows heads samples"]
    ) -> Bool[Array, "rows heads samples"]:
        """Which of the entries at these places dropout kept, bool [R, H, M]."""
        if self.kept is not None:
            return _entries(self.kept, query, key)
        if self.seeds is None or self.rate == 0.0:
            return jnp.ones(query.shape, bool)
        head = jnp.arange(query.shape[1])[:, None]
        return kept_at(self.rate, self.seeds, self.stream, head * STRIDES[0] + query * STRIDES[1] + key * STRIDES[2])


def _entries(
    maps: Shaped[Array, "rows heads queries tokens"],
    query: Int[Array, "rows heads samples"],
    key: Int[Array, "rows heads samples"],
) -> Shaped[Array, "rows heads samples"]:
    rows, heads, _, width = maps.shape
    return jnp.take_along_axis(maps.reshape(rows, heads, width * width), query * width + key, axis=-1)


class Capture(NamedTuple):
    """Which layers' attention is read, and by what function: the results are `BertOutput.observed`."""

    layers: tuple[int, ...]  # 1-based
    read: Callable[[int, Attention], Any]  # (layer, attention) -> arrays


class AttentionDropout(NamedTuple):
    """Dropout of the attention weights of one layer; off without seeds or at rate 0."""

    seeds: UInt[Array, " rows"] | None = None
    rate: float = 0.0
    stream: int | Int[Array, ""] = 0


def attend(
    query: Float[Array, "rows heads queries size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    dropout: AttentionDropout,
    start: Int[Array, ""] | int = 0,
) -> tuple[Float[Array, "rows heads queries size"], Attention]:
    """Context in float32 with dropout on the weights, and the Attention that it comes from. Softmax is computed in float32.

    The mask value is finite, so that a row of padding has uniform weights and not NaN. `start` is the place of the first query.
    """
    scores = jnp.matmul(query, key.swapaxes(-1, -2), preferred_element_type=jnp.float32) / query.shape[-1] ** 0.5
    scores = jnp.where(mask[:, None, None, :], scores, -1e9)
    largest = jax.lax.stop_gradient(scores.max(-1, keepdims=True))
    exponentials = jnp.exp(scores - largest)
    total = exponentials.sum(-1, keepdims=True)
    probabilities = exponentials / total
    weights, kept = probabilities, None
    if dropout.seeds is not None and dropout.rate > 0.0:
        kept = keep_mask(dropout.rate, dropout.seeds, dropout.stream, scores.shape[1:], STRIDES, start * STRIDES[1])
        weights = jnp.where(kept, probabilities / (1.0 - dropout.rate), 0.0)
    context = jnp.matmul(weights.astype(value.dtype), value, preferred_element_type=jnp.float32)
    return context, Attention(query, key, mask, largest + jnp.log(total), scores, probabilities, kept)


def attend_in_blocks(
    query: Float[Array, "rows heads tokens size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    dropout: AttentionDropout,
    block: int,
) -> tuple[Float[Array, "rows heads tokens size"], Attention]:
    """Computes `attend` for `block` queries at a time; the backward pass computes each block again, so memory is linear in T."""
    rows, heads, width, inner = query.shape
    padding = -width % block
    blocks = jnp.pad(query, ((0, 0), (0, 0), (0, padding), (0, 0))).reshape(rows, heads, -1, block, inner).transpose(2, 0, 1, 3, 4)

    @jax.checkpoint
    def one(part: tuple[Array, Array]) -> tuple[Array, Array]:
        context, attention = attend(part[0], key, value, mask, dropout, part[1])
        return context, attention.log_normalizer

    found = jax.lax.map(one, (blocks, jnp.arange(len(blocks)) * block))
    context, normalizer = (part.transpose(1, 2, 0, 3, 4).reshape(rows, heads, width + padding, -1)[:, :, :width] for part in found)
    return context, Attention(query, key, mask, normalizer, None, None, None)


def attend_fused(
    query: Float[Array, "rows heads tokens size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    kernel: str,
) -> tuple[Float[Array, "rows heads tokens size"], Attention]:
    """Computes `attend` without dropout by a kernel of `jax.nn.dot_product_attention`. Rows are padded on the right.

    The kernels do not return the log-sum-exp of a query, or return it without gradient, so it is computed separately, in blocks.
    The compiler removes that computation if the attention is not read.
    """
    # cuDNN has no gradient for an odd number of queries or keys.
    even = (jnp.pad(values, ((0, 0), (0, 0), (0, values.shape[2] % 2), (0, 0))) for values in (query, key, value))
    by_token = (values.swapaxes(1, 2) for values in even)
    lengths = mask.sum(-1, dtype=jnp.int32)
    context = jax.nn.dot_product_attention(*by_token, key_value_seq_lengths=lengths, implementation=kernel)  # type: ignore[arg-type]
    _, attention = attend_in_blocks(query, key, value, mask, AttentionDropout(), NORMALIZER_BLOCK)
    return context[:, : query.shape[2]].swapaxes(1, 2).astype(jnp.float32), attention
