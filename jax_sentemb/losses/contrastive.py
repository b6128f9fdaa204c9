"""Contrastive losses: a positive pair against other pairs."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Shaped

from jax_sentemb.losses.arrays import EPSILON, Embeddings, Scalar, l2_normalize, map_in_chunks, paired_cosine
from jax_sentemb.types import Array


def info_nce(
    anchors: Embeddings,
    positives: Embeddings,
    temperature: float,
    queue: Float[Array, "queue embedding"] | None = None,
    queue_valid: Bool[Array, " queue"] | None = None,
    sentences: tuple[Shaped[Array, " batch"], Shaped[Array, " queue"]] | None = None,
    pair_numbers: Shaped[Array, " batch"] | None = None,
) -> tuple[Scalar, Scalar]:
    """Return the InfoNCE loss of pairs of embeddings, and the accuracy of the anchors.

    The loss is the mean over i of -log softmax of cos(anchor_i, positive_j) / temperature at j = i. Use it when
    each sentence has a positive (another view, a neighbour, a paraphrase) and the other sentences of the batch
    can serve as negatives.

    Args:
        anchors: The embeddings for which the positives are ranked.
        positives: Row i belongs to anchor i; the other rows are its negatives.
        temperature: Divides the cosines.
        queue: More negatives, without gradient.
        queue_valid: Which rows of the queue are filled; all if None.
        sentences: Numbers of the sentences of the batch and of the queue. An anchor's own sentence in the queue
            is not a negative.
        pair_numbers: The numbers of the pairs in the corpus. The pair before an anchor's and the one after it are not negatives.

    Returns:
        The loss, and the share of rows whose positive ranks first. Both are float32 scalars.

    Example:
        >>> anchors = jnp.eye(3)
        >>> loss, accuracy = info_nce(anchors, anchors, temperature=0.05)
        >>> round(float(loss), 6), float(accuracy)
        (0.0, 1.0)

    References:
        miCSE (Klein and Nabi 2023), Eq. 2, in the form of the code of SimCSE and ESimCSE: the positive is in
        the denominator and the queue has negatives only. The printed equation lacks the positive, so it has no
        lower bound.
    """
    against = l2_normalize(positives)
    queued = None if queue is None else l2_normalize(lax.stop_gradient(queue))
    in_batch, in_queue = sentences or (jnp.arange(len(anchors)), None)

    def rank(rows: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        anchors, index, sentence, pair_number = rows
        logits = jnp.matmul(anchors, against.T, precision=lax.Precision.HIGHEST) / temperature
        if pair_numbers is not None:
            logits = jnp.where(jnp.abs(pair_number[:, None] - pair_numbers) == 1, -jnp.inf, logits)
        positive = jnp.take_along_axis(logits, index[:, None], axis=1)
        if queued is not None:
            to_queue = jnp.matmul(anchors, queued.T, precision=lax.Precision.HIGHEST) / temperature
            if queue_valid is not None:
                to_queue = jnp.where(queue_valid, to_queue, -jnp.inf)
            if in_queue is not None:
                to_queue = jnp.where(sentence[:, None] == in_queue, -jnp.inf, to_queue)
            logits = jnp.concatenate([logits, to_queue], axis=1)
        loss = jax.nn.logsumexp(logits - positive, axis=1)  # small losses stay exact
        return loss, positive[:, 0] >= logits.max(axis=1)

    rows = l2_normalize(anchors), jnp.arange(len(anchors)), in_batch, in_batch if pair_numbers is None else pair_numbers
    loss, right = map_in_chunks(rank, rows, len(positives) + (0 if queue is None else len(queue)))
    return loss.mean(), right.mean()


def info_nce_without_negatives(anchors: Embeddings, positives: Embeddings, temperature: float) -> tuple[Scalar, Scalar]:
    """Return the InfoNCE loss of pairs with a logit of 0 in place of each negative, and the accuracy of the anchors.

    The loss of an anchor is log(1 + (B - 1) exp(-cos(anchor_i, positive_i) / temperature)). It is an ablation of
    `info_nce`: it shows what the negatives of the batch contribute.

    Args:
        anchors: One view of each sentence.
        positives: Row i belongs to anchor i.
        temperature: Divides the cosines.

    Returns:
        The loss, and the share of rows whose cosine is positive. Both are float32 scalars.

    Example:
        >>> loss, accuracy = info_nce_without_negatives(jnp.eye(3), jnp.eye(3), temperature=0.05)
        >>> round(float(loss), 6), float(accuracy)
        (0.0, 1.0)

    References:
        miCSE (Klein and Nabi 2023), Table 4, as in its code.
    """
    positive = paired_cosine(anchors, positives) / temperature
    rest = jnp.log(jnp.maximum(len(anchors) - 1, EPSILON))
    return jax.nn.softplus(rest - positive).mean(), (positive > 0).mean()


def nt_xent(first: Embeddings, second: Embeddings, temperature: float) -> tuple[Scalar, Scalar]:
    """Return NT-Xent of two views, and the accuracy of the embeddings.

    Each of the 2B embeddings has its other view as positive and the 2B - 2 other embeddings as negatives. Use
    it in place of `info_nce` when both views should be ranked against both views.

    Args:
        first: The first view of each sentence.
        second: The second view of the same sentences.
        temperature: Divides the cosines.

    Returns:
        The loss, and the share of rows whose positive ranks first. Both are float32 scalars.

    Example:
        >>> loss, accuracy = nt_xent(jnp.eye(3), jnp.eye(3), temperature=0.05)
        >>> round(float(loss), 6), float(accuracy)
        (0.0, 1.0)

    References:
        Mirror-BERT (Liu et al. 2021), Eq. 1.
    """
    both = l2_normalize(jnp.concatenate([first, second]))
    positive = jnp.tile(paired_cosine(first, second) / temperature, 2)

    def rank(rows: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        anchors, own, index = rows
        logits = jnp.matmul(anchors, both.T, precision=lax.Precision.HIGHEST) / temperature
        logits = jnp.where(index[:, None] == jnp.arange(len(both)), -jnp.inf, logits)
        # The positive is computed twice, and the two results can differ by rounding.
        return jax.nn.logsumexp(logits - own[:, None], axis=1), own + 1e-4 >= logits.max(axis=1)

    loss, right = map_in_chunks(rank, (both, positive, jnp.arange(len(both))), len(both))
    return loss.mean(), right.mean()


def symmetric_info_nce(first: Embeddings, second: Embeddings, scale: Scalar | float) -> tuple[Scalar, Scalar]:
    """Return the mean InfoNCE loss of both directions, and the accuracy of the first direction.

    Use it when two different encoders embed the same sentences and neither is the reference.

    Args:
        first: The sentences by the first encoder.
        second: The same sentences by the second encoder.
        scale: Multiplies the cosines; the inverse of a temperature.

    Returns:
        The loss, and the share of rows whose positive ranks first. Both are float32 scalars.

    Example:
        >>> loss, accuracy = symmetric_info_nce(jnp.eye(3), jnp.eye(3), scale=20.0)
        >>> round(float(loss), 6), float(accuracy)
        (0.0, 1.0)

    References:
        Contrastive Tension (Carlsson et al. 2021), the in-batch form of sentence-transformers.
    """
    first, second = l2_normalize(first), l2_normalize(second)

    def rank(rows: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        anchors, others, index = rows  # rows of the matrix of cosines and, for the other direction, columns
        to_second, to_first = (
            jnp.matmul(one, other.T, precision=lax.Precision.HIGHEST) * scale for one, other in ((anchors, second), (others, first))
        )
        positive = jnp.take_along_axis(to_second, index[:, None], axis=1)[:, 0]
        loss = (jax.nn.logsumexp(to_second, axis=1) + jax.nn.logsumexp(to_first, axis=1)) / 2 - positive
        return loss, positive >= to_second.max(axis=1)

    loss, right = map_in_chunks(rank, (first, second, jnp.arange(len(first))), 2 * len(first))
    return loss.mean(), right.mean()


def contrastive_tension(first: Embeddings, second: Embeddings, group: int) -> tuple[Scalar, Scalar]:
    """Return the binary cross entropy of the dot products of pairs, and their accuracy.

    A positive pair is one sentence by both encoders, a negative pair is two sentences. The first row of each
    group is a positive pair with itself; each other row is paired with the previous such row of the batch, the
    first with the last. Use it to retrain two copies of an encoder without views.

    Args:
        first: The sentences by the first encoder.
        second: The same sentences by the second encoder.
        group: Rows of a group: one positive pair for `group` - 1 negative pairs. It divides the batch.

    Returns:
        The loss, and the share of pairs whose dot product has the right sign. Both are float32 scalars.

    Example:
        >>> vectors = jnp.array([[5.0, 0.0], [-5.0, 0.0], [0.0, 5.0]])
        >>> loss, accuracy = contrastive_tension(vectors, vectors, group=3)
        >>> round(float(loss), 3)
        0.462

    References:
        Carlsson et al. 2021. Its code draws two new sentences for a negative pair. Here they are two sentences
        of the batch, so each encoder encodes a sentence once, and pairs have the same distribution.
    """
    index = jnp.arange(len(first))
    same = index % group == 0
    others = jnp.nonzero(~same, size=len(first) - len(first) // group)[0]
    partner = index.at[others].set(jnp.roll(others, 1))
    logits = (first * second[partner]).sum(-1)
    loss = jax.nn.softplus(jnp.where(same, -logits, logits))
    return loss.mean(), ((logits > 0) == same).mean()


def ranking_loss(anchors: Embeddings, parts: Embeddings, candidates: int) -> tuple[Scalar, Scalar]:
    """Return the loss of ranking a sentence's own part first among k parts, and the accuracy.

    The loss is the mean of -log softmax of dot products. The other k - 1 parts belong to the next sentences of
    the batch. Use it for two halves of a sentence.

    Args:
        anchors: One part of each sentence.
        parts: The other part of the same sentences.
        candidates: k, including the sentence's own part.

    Returns:
        The loss, and the share of rows whose positive ranks first. Both are float32 scalars.

    Example:
        >>> loss, accuracy = ranking_loss(10 * jnp.eye(3), 10 * jnp.eye(3), candidates=2)
        >>> round(float(loss), 6), float(accuracy)
        (0.0, 1.0)

    References:
        ConsSent (Brahma 2018), section 3: ranking among k sentences of a minibatch. The softmax is that of
        QuickThoughts.
    """
    index = (jnp.arange(len(anchors))[:, None] + jnp.arange(candidates)) % len(anchors)
    scores = jnp.einsum("be,bke->bk", anchors, parts[index], precision="highest")
    loss = (jax.nn.logsumexp(scores, axis=1) - scores[:, 0]).mean()
    return loss, (scores[:, 0] >= scores.max(axis=1)).mean()


def alignment(first: Embeddings, second: Embeddings) -> Scalar:
    """Return the mean squared distance of two views of unit length; 0 is best, 4 is worst.

    A diagnostic of contrastive training; no method minimises it alone.

    Example:
        >>> float(alignment(jnp.eye(2), -jnp.eye(2)))
        4.0

    References:
        Wang and Isola 2020, with alpha = 2.
    """
    return jnp.square(l2_normalize(first) - l2_normalize(second)).sum(-1).mean()
