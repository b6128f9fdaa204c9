"""Losses that compare two distributions of similarities."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int, Shaped

from jax_sentemb.losses.arrays import Embeddings, Scalar, l2_normalize, map_in_chunks
from jax_sentemb.types import Array

EXCLUDED = -1e9  # logit of a candidate that is left out: its probability is 0, without NaN in the gradient


def similarity_distillation(
    student: Float[Array, "batch target"],
    teacher: Float[Array, "batch target"],
    queue: Float[Array, "queue target"],
    sentences: tuple[Shaped[Array, " batch"], Int[Array, " queue"]],
    temperatures: tuple[float, float],
) -> Scalar:
    """Return the mean of KL(p || q), where p and q are softmaxes of cosines of teacher and student with candidates.

    Use it when a student should order many sentences as its teacher does.

    Args:
        student: The student's vectors in the space of the teacher.
        teacher: The teacher's vectors of the same sentences.
        queue: The teacher's vectors of other sentences; the candidates are the batch and the queue.
        sentences: Row numbers of the batch and of the queue; a sentence is not a candidate of itself.
        temperatures: The temperatures of the teacher and of the student.

    Example:
        >>> teacher, none = jnp.eye(2), jnp.zeros((0, 2))
        >>> rows = jnp.arange(2), jnp.zeros(0, jnp.int32)
        >>> float(similarity_distillation(teacher, teacher, none, rows, (0.05, 0.05)))
        0.0

    References:
        ConGen, Eq. 1 to 3. Its candidates are the queue alone, in which a sentence may meet itself.
    """
    candidates = lax.stop_gradient(l2_normalize(jnp.concatenate([teacher, queue])))
    in_batch, in_queue = sentences

    def divergence(rows: tuple[Array, Array, Array, Array]) -> Array:
        student, teacher, index, sentence = rows
        same_index = index[:, None] == jnp.arange(len(in_batch))
        same_row = (sentence[:, None] == in_queue) & (sentence[:, None] >= 0)
        excluded = jnp.concatenate([same_index, same_row], axis=1)
        log_p = _log_shares(teacher, candidates, excluded, temperatures[0])
        return _divergence(log_p, _log_shares(student, candidates, excluded, temperatures[1]))

    rows = l2_normalize(student), l2_normalize(lax.stop_gradient(teacher)), jnp.arange(len(in_batch)), in_batch
    return map_in_chunks(divergence, rows, 2 * len(candidates)).mean()


def cross_view(
    predicted: Embeddings,
    reference: Embeddings,
    queue: Float[Array, "queue embedding"],
    valid: Bool[Array, " queue"],
    temperatures: tuple[float, float],
) -> Scalar:
    """Return the mean of KL(p || q), where p and q are softmaxes of cosines of one view and the other with candidates.

    Use it when a batch is too small for good negatives: the queue has the candidates.

    Args:
        predicted: The prediction from one view of each sentence; it has the gradient.
        reference: The embedding of the other view of the same sentences.
        queue: Earlier references. The candidates are the references of the batch, including that of the sentence
            itself, and the queue.
        valid: Which entries of the queue are filled.
        temperatures: The temperatures of the reference and of the prediction.

    Example:
        >>> vectors, queue = jnp.eye(2), jnp.zeros((4, 2))
        >>> float(cross_view(vectors, vectors, queue, jnp.zeros(4, bool), (0.05, 0.05)))
        0.0

    References:
        SCT (Limkonchotiwat et al., TACL 2023), one of its two terms, with the candidates of its code.
    """
    candidates = lax.stop_gradient(l2_normalize(jnp.concatenate([reference, queue])))
    excluded = jnp.concatenate([jnp.zeros(len(reference), bool), ~valid])

    def divergence(rows: tuple[Array, Array]) -> Array:
        predicted, reference = rows
        log_p = _log_shares(reference, candidates, excluded, temperatures[0])
        return _divergence(log_p, _log_shares(predicted, candidates, excluded, temperatures[1]))

    rows = l2_normalize(predicted), lax.stop_gradient(l2_normalize(reference))
    return map_in_chunks(divergence, rows, 2 * len(candidates)).mean()


def rank_distillation(student: Float[Array, "batch width"], teacher: Float[Array, "batch target"], temperature: float) -> Scalar:
    """Return the mean of KL(p || q) over the sentences of the batch, ListNet's loss without the entropy of p.

    p and q are softmaxes of the cosines / temperature of a sentence with the other sentences, by the teacher
    and by the student.

    Use it when the order of similarities within a batch matters more than their values.

    Args:
        student: The student's embeddings.
        teacher: The teacher's vectors of the same sentences, without gradient.
        temperature: Divides the cosines of both.

    Example:
        >>> vectors = jnp.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> float(rank_distillation(vectors, vectors, temperature=0.05))
        0.0

    References:
        Cao et al. 2007 (ListNet).
    """
    return _over_lists(lax.stop_gradient(teacher), student, temperature, _divergence)


def rank_consistency(first: Embeddings, second: Embeddings, temperature: float) -> Scalar:
    """Return the mean Jensen-Shannon divergence of the similarity lists of each sentence in two views, in nats.

    A list is the softmax of the cosines / temperature of a sentence with the other sentences of the batch, in
    one view.

    Use it together with `info_nce`, so that two views order the other sentences in the same way.

    Args:
        first: The first view of each sentence.
        second: The second view of the same sentences.
        temperature: Divides the cosines.

    Example:
        >>> vectors = jnp.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> round(float(rank_consistency(vectors, vectors, temperature=0.05)), 6)
        0.0

    References:
        RankCSE (Liu et al., ACL 2023), the loss of ranking consistency.
    """

    def divergence(log_p: Array, log_q: Array) -> Array:
        log_mean = jnp.logaddexp(log_p, log_q) - jnp.log(2.0)
        return (_divergence(log_p, log_mean) + _divergence(log_q, log_mean)) / 2

    return _over_lists(first, second, temperature, divergence)


def _over_lists(
    first: Float[Array, "batch width"],
    second: Float[Array, "batch target"],
    temperature: float,
    compare: Callable[[Array, Array], Array],
) -> Scalar:
    """Return the mean of `compare` over the sentences of the batch, of the lists by `first` and by `second`."""
    first_unit, second_unit = l2_normalize(first), l2_normalize(second)

    def compare_rows(rows: tuple[Array, Array, Array]) -> Array:
        in_first, in_second, index = rows
        itself = index[:, None] == jnp.arange(len(first_unit))
        return compare(
            _log_shares(in_first, first_unit, itself, temperature), _log_shares(in_second, second_unit, itself, temperature)
        )

    return map_in_chunks(compare_rows, (first_unit, second_unit, jnp.arange(len(first_unit))), 2 * len(first_unit)).mean()


def _log_shares(
    vectors: Float[Array, "rows width"],
    candidates: Float[Array, "candidates width"],
    excluded: Bool[Array, "*rows candidates"],
    temperature: float,
) -> Float[Array, "rows candidates"]:
    """Return the log softmax of the dot products / temperature, without the excluded candidates."""
    products = jnp.matmul(vectors, candidates.T, precision=lax.Precision.HIGHEST)
    return jax.nn.log_softmax(jnp.where(excluded, EXCLUDED, products / temperature), axis=1)


def _divergence(log_p: Float[Array, "rows candidates"], log_q: Float[Array, "rows candidates"]) -> Float[Array, " rows"]:
    """Return KL(p || q) of each row."""
    return (jnp.exp(log_p) * (log_p - log_q)).sum(1)
