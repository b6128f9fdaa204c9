"""Losses on consecutive sentences, and the constraints of the multi-view methods."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from jax_sentemb.losses.arrays import Embeddings, Scalar, l2_normalize, map_in_chunks
from jax_sentemb.types import Array


def context_loss(anchors: Embeddings, others: Embeddings, context: int, itself: bool) -> tuple[Scalar, Scalar]:
    """Mean of -log softmax_j(anchor_i . other_j) over i, j with |i - j| <= context; and the share of rows that rank such a j first.

    anchors, others: [N, E] of consecutive sentences. `itself`: j = i is a neighbour and is in the denominator.
    Source: Tang and de Sa 2019, Eq. 3 and 4, which are sums instead of means.
    """
    total, count, right = _neighbours(anchors, others, context, None if itself else -jnp.inf, itself)
    return total.sum() / count.sum(), right.mean()


def neighbour_loss(anchors: Embeddings, others: Embeddings, context: int, itself: str) -> tuple[Scalar, Scalar]:
    """Mean over i of the cross entropy of softmax_j(anchor_i . other_j) with targets spread evenly over 0 < |i - j| <= context.

    anchors, others: [N, E] of consecutive sentences. itself="zero": a sentence's score with itself is 0 and stays in the
    denominator, as in QuickThoughts' code (Logeswaran and Lee 2018), where it can rank first; "excluded": it is left out. Also
    returns the share of rows that rank a neighbour first.
    """
    total, count, right = _neighbours(anchors, others, context, 0.0 if itself == "zero" else -jnp.inf, False)
    return (total / count).mean(), right.mean()


def _neighbours(
    anchors: Embeddings,
    others: Embeddings,
    context: int,
    own_score: float | None,
    itself: bool,
) -> tuple[Float[Array, " batch"], Int[Array, " batch"], Bool[Array, " batch"]]:
    """For each row: the summed -log softmax of its neighbours, their number, and whether one of them ranks first.

    `own_score` replaces a sentence's score with itself (None: no replacement); `itself`: a sentence is its own neighbour.
    """

    def rank(rows: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        some, place = rows
        distance = jnp.abs(place[:, None] - jnp.arange(len(others)))
        scores = jnp.matmul(some, others.T, precision=lax.Precision.HIGHEST)
        if own_score is not None:
            scores = jnp.where(distance == 0, own_score, scores)
        neighbour = (distance <= context) & (itself | (distance > 0))
        log_probability = scores - jax.nn.logsumexp(scores, axis=1, keepdims=True)
        right = jnp.where(neighbour, scores, -jnp.inf).max(axis=1) >= scores.max(axis=1)
        return -jnp.where(neighbour, log_probability, 0.0).sum(axis=1), neighbour.sum(axis=1), right

    return map_in_chunks(rank, (anchors, jnp.arange(len(anchors))), len(others))


def remove_top_direction(vectors: Embeddings, iterations: int) -> Embeddings:
    """`vectors` [N, E] without their top right-singular direction, found by power iteration; no gradient goes through it.

    Source: Tang and de Sa 2019, section 3.3: not centred, `iterations` products with the N x N matrix of dot products.
    """
    fixed = lax.stop_gradient(vectors)

    def multiply(_: Array, weights: Array) -> Array:
        weights = jnp.matmul(fixed, jnp.matmul(fixed.T, weights, precision="highest"), precision="highest")
        return l2_normalize(weights)

    weights = lax.fori_loop(0, iterations, multiply, jnp.full(len(vectors), len(vectors) ** -0.5))
    direction = l2_normalize(jnp.matmul(fixed.T, weights, precision="highest"))
    return vectors - jnp.matmul(vectors, direction, precision="highest")[:, None] * direction


def towards_orthonormal_rows(matrix: Float[Array, "rows columns"], beta: float) -> Float[Array, "rows columns"]:
    """(1 + beta) U - beta (U U^T) U: one step that brings the rows of `matrix` U [E, D] closer to orthonormal (E <= D)."""
    product = jnp.matmul(jnp.matmul(matrix, matrix.T, precision="highest"), matrix, precision="highest")
    return (1.0 + beta) * matrix - beta * product


def rows_from_orthonormal(matrix: Float[Array, "rows columns"]) -> Scalar:
    """The Frobenius norm of U U^T - I for `matrix` U [E, D]; 0 for orthonormal rows (Tang and de Sa 2019, 3.1)."""
    return jnp.linalg.norm(jnp.matmul(matrix, matrix.T, precision="highest") - jnp.eye(len(matrix)))
