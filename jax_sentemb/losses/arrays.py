"""Compute the building blocks of the losses: unit vectors, cosines, and functions of rows in chunks."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from jax_sentemb.types import Array

Scalar = Float[Array, ""]
Embeddings = Float[Array, "batch embedding"]
Tree = TypeVar("Tree")
Result = TypeVar("Result")

EPSILON = 1e-12
PAIRS = 2**22  # similarities of a batch that are computed at once


def map_in_chunks(function: Callable[[Tree], Result], rows: Tree, comparisons: int) -> Result:
    """Apply a row-wise `function` to arrays [N, ...], in rematerialised chunks if the rows need more than PAIRS comparisons.

    `comparisons` is the number for one row. Chunks are computed again in the backward pass, so the matrix of all pairs of a large
    batch is never in memory.
    """
    count = len(jax.tree.leaves(rows)[0])
    at_once = count
    while at_once * comparisons > PAIRS and at_once % 2 == 0:
        at_once //= 2
    if at_once == count:
        return function(rows)
    return merge_microbatches(lax.map(jax.checkpoint(function), split_microbatches(rows, at_once)))


def split_microbatches(rows: Tree, at_once: int) -> Tree:
    """Reshape arrays [N, ...] to [n, at_once, ...]; part c has rows c, c + n, c + 2n..., so that every device keeps its rows."""
    return jax.tree.map(lambda values: values.reshape(at_once, -1, *values.shape[1:]).swapaxes(0, 1), rows)


def merge_microbatches(parts: Tree) -> Tree:
    """Invert `split_microbatches`."""
    return jax.tree.map(lambda values: values.swapaxes(0, 1).reshape(-1, *values.shape[2:]), parts)


def l2_normalize(vectors: Float[Array, "*rows embedding"]) -> Float[Array, "*rows embedding"]:
    """Return vectors scaled to length 1; a zero vector stays zero, with zero gradient."""
    squared = jnp.square(vectors).sum(-1, keepdims=True)
    scale = lax.rsqrt(jnp.maximum(squared, EPSILON))  # at most 1e6
    return vectors * jnp.where(squared > 0, scale, 0.0)  # the gradient at 0 would be that scale


def paired_cosine(first: Embeddings, second: Embeddings) -> Float[Array, " batch"]:
    """Return the cosine of row i of `first` with row i of `second`."""
    return (l2_normalize(first) * l2_normalize(second)).sum(-1)
