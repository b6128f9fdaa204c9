"""Losses on consecutive sentences, and the constraints of the multi-view methods."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int

from jax_sentemb.losses.arrays import Embeddings, Scalar, l2_normalize, map_in_chunks
from jax_sentemb.types import Array


def context_loss(anchors: Embeddings, others: Embeddings, context: int, itself: bool) -> tuple[Scalar, Scalar]:
    """Return the loss of telling neighbouring sentences from others, and the accuracy.

    The loss is the mean of -log softmax_j(anchor_i . other_j) over all i, j with `|i - j|` <= `context`. Use it
    for consecutive sentences in two views that should agree.

    Args:
        anchors: One view of consecutive sentences.
        others: The other view of the same sentences.
        context: The largest distance of neighbours.
        itself: Whether a sentence is its own neighbour, and in the denominator.

    Returns:
        The loss, and the share of rows whose positive ranks first. Both are float32 scalars.

    Example:
        >>> loss, accuracy = context_loss(jnp.zeros((4, 2)), jnp.zeros((4, 2)), context=1, itself=True)
        >>> round(float(loss), 4)  # log 4: all sentences are equally likely
        1.3863

    References:
        Tang and de Sa 2019, Eq. 3 and 4, which are sums in place of means.
    """
    total, count, right = _neighbours(anchors, others, context, None if itself else -jnp.inf, itself)
    return total.sum() / count.sum(), right.mean()


def neighbour_loss(anchors: Embeddings, others: Embeddings, context: int, itself: str) -> tuple[Scalar, Scalar]:
    """Return the cross entropy with targets spread evenly over neighbours, and the accuracy.

    The loss is the mean over i of the cross entropy of softmax_j(anchor_i . other_j) with equal targets for 0 <
    `|i - j|` <= `context`. Use it for consecutive sentences without a second view.

    Args:
        anchors: Consecutive sentences by the first encoder.
        others: The same sentences by the second encoder.
        context: The largest distance of neighbours.
        itself: "zero": the score of a sentence with itself is 0 and stays in the denominator, where it can rank
            first (QuickThoughts' code). "excluded": it is left out.

    Returns:
        The loss, and the share of rows whose positive ranks first. Both are float32 scalars.

    Example:
        >>> loss, accuracy = neighbour_loss(jnp.zeros((4, 2)), jnp.zeros((4, 2)), context=1, itself="excluded")
        >>> round(float(loss), 4)  # log 3
        1.0986

    References:
        QuickThoughts (Logeswaran and Lee 2018).
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
        chunk, index = rows
        distance = jnp.abs(index[:, None] - jnp.arange(len(others)))
        scores = jnp.matmul(chunk, others.T, precision=lax.Precision.HIGHEST)
        if own_score is not None:
            scores = jnp.where(distance == 0, own_score, scores)
        neighbour = (distance <= context) & (itself | (distance > 0))
        log_probability = scores - jax.nn.logsumexp(scores, axis=1, keepdims=True)
        right = jnp.where(neighbour, scores, -jnp.inf).max(axis=1) >= scores.max(axis=1)
        return -jnp.where(neighbour, log_probability, 0.0).sum(axis=1), neighbour.sum(axis=1), right

    return map_in_chunks(rank, (anchors, jnp.arange(len(anchors))), len(others))


def remove_top_direction(vectors: Embeddings, iterations: int) -> Embeddings:
    """Return the vectors without their top right-singular direction.

    Power iteration finds the direction, and no gradient goes through it. The vectors are not centred.

    Args:
        vectors: Embeddings of a batch.
        iterations: Products with the matrix of dot products of the batch.

    Returns:
        Embeddings of the same shape.

    Example:
        >>> abs(remove_top_direction(jnp.array([[3.0, 0.0], [0.0, 1.0]]), iterations=10)).round(3).tolist()
        [[0.0, 0.0], [0.0, 1.0]]

    References:
        Tang and de Sa 2019, section 3.3.
    """
    fixed = lax.stop_gradient(vectors)

    def multiply(_: Array, weights: Array) -> Array:
        weights = jnp.matmul(fixed, jnp.matmul(fixed.T, weights, precision="highest"), precision="highest")
        return l2_normalize(weights)

    weights = lax.fori_loop(0, iterations, multiply, jnp.full(len(vectors), len(vectors) ** -0.5))
    direction = l2_normalize(jnp.matmul(fixed.T, weights, precision="highest"))
    return vectors - jnp.matmul(vectors, direction, precision="highest")[:, None] * direction


def towards_orthonormal_rows(matrix: Float[Array, "rows columns"], beta: float) -> Float[Array, "rows columns"]:
    """Return (1 + beta) U - beta (U U^T) U: one step that brings the rows of a matrix U closer to orthonormal.

    Args:
        matrix: U, with at most as many rows as columns.
        beta: The size of the step.

    Example:
        >>> towards_orthonormal_rows(jnp.eye(2), beta=0.01).tolist()
        [[1.0, 0.0], [0.0, 1.0]]

    References:
        Tang and de Sa 2019, section 3.1.
    """
    product = jnp.matmul(jnp.matmul(matrix, matrix.T, precision="highest"), matrix, precision="highest")
    return (1.0 + beta) * matrix - beta * product


def rows_from_orthonormal(matrix: Float[Array, "rows columns"]) -> Scalar:
    """Return the Frobenius norm of U U^T - I; 0 for orthonormal rows.

    Example:
        >>> float(rows_from_orthonormal(jnp.eye(2)))
        0.0

    References:
        Tang and de Sa 2019, section 3.1.
    """
    return jnp.linalg.norm(jnp.matmul(matrix, matrix.T, precision="highest") - jnp.eye(len(matrix)))
