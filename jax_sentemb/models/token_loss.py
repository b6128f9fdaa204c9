"""Compute cross entropy over a whole vocabulary in blocks of words, since the logits are the largest array of a training step."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int

from jax_sentemb.models.layers import product, transposed_product
from jax_sentemb.types import Array

BLOCK = 2048  # words: the logits of a few hundred tokens for one block fit into a processor's cache


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def token_loss(
    states: Float[Array, "tokens width"],
    words: Float[Array, "vocabulary width"],
    bias: Float[Array, " vocabulary"],
    targets: Int[Array, " tokens"],
    dtype: DTypeLike,
) -> tuple[Float[Array, " tokens"], Bool[Array, " tokens"]]:
    """Return the cross entropy -log softmax(words state + bias) at the target of each state.

    Loss and gradient equal those of the plain form. Each block of the logits [V, N] is written once and read three times while it
    is in the cache. The rows of the logits are words: a CPU sums over rows faster than within them, and the gradient of `words` is
    a product without a transpose.

    Args:
        states: The states [N, D].
        words: Output kernel [V, D].
        bias: The bias of each word, [V].
        targets: The number of the right word of each state, int [N].
        dtype: The precision of the products, which are accumulated in float32.

    Returns:
        The cross entropy of each state, float32 [N], and whether no other word scores higher, bool [N].
    """
    return _forward(states, words, bias, targets, dtype)[0]


def _blocks(count: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]


def _forward(states: Array, words: Array, bias: Array, targets: Array, dtype: DTypeLike) -> tuple[tuple[Array, Array], tuple]:
    rows = states.astype(dtype)
    largest, total = jnp.full(len(states), -jnp.inf), jnp.zeros(len(states))
    at_target, blocks = jnp.zeros(len(states)), []
    for block in _blocks(len(words)):
        logits = product(words[block].astype(dtype), rows, ((1,), (1,))) + bias[block, None]
        before, largest = largest, jnp.maximum(largest, logits.max(0))
        total = total * jnp.exp(before - largest) + jnp.exp(logits - largest).sum(0)
        index = targets - block.start
        inside = (index >= 0) & (index < len(logits))
        target_logits = jnp.take_along_axis(logits, jnp.clip(index, 0, len(logits) - 1)[None], axis=0)[0]
        at_target = jnp.where(inside, target_logits, at_target)
        blocks.append(logits)
    normalizer = largest + jnp.log(total)
    # An empty array carries the states' precision to the backward pass.
    saved = rows, words, targets, blocks, normalizer, jnp.zeros((0,), states.dtype)
    return (normalizer - at_target, at_target >= largest), saved


def _backward(dtype: DTypeLike, saved: tuple, gradients: tuple[Array, Array]) -> tuple[Array, Array, Array, None]:
    rows, words, targets, blocks, normalizer, like = saved
    to_loss = gradients[0]
    to_states, to_words, to_bias = jnp.zeros(rows.shape, jnp.float32), [], []
    for block, logits in zip(_blocks(len(words)), blocks, strict=True):
        target = jnp.arange(block.start, block.stop)[:, None] == targets
        to_logits = to_loss * (jnp.exp(logits - normalizer) - target)
        to_bias.append(to_logits.sum(1))
        to_logits = to_logits.astype(dtype)
        to_words.append(product(to_logits, rows, ((1,), (0,))))
        to_states += transposed_product(to_logits, words[block].astype(dtype))
    return to_states.astype(like.dtype), jnp.concatenate(to_words).astype(words.dtype), jnp.concatenate(to_bias), None


token_loss.defvjp(_forward, _backward)
