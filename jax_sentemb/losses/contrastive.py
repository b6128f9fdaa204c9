"""Contrastive losses: a positive pair against other pairs."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Shaped

from jax_sentemb.losses.arrays import EPSILON, Embeddings, Scalar, cosine, l2_normalize, map_in_chunks, paired_cosine
from jax_sentemb.types import Array


def info_nce(
    anchors: Embeddings,
    positives: Embeddings,
    temperature: float,
    queue: Float[Array, "queue embedding"] | None = None,
    queue_valid: Bool[Array, " queue"] | None = None,
    negatives: bool = True,
    sentences: tuple[Shaped[Array, " batch"], Shaped[Array, " queue"]] | None = None,
) -> tuple[Scalar, Scalar]:
    """InfoNCE: mean over i of -log softmax_i([cos(anchor_i, positive_j) / t for all j, cos(anchor_i, queue_k) / t for valid k]).

    The queue has negatives without gradient. sentences: numbers of the sentences of the batch and of the queue; an anchor's own
    sentence in the queue is not used as a negative.
    Returns the loss and the fraction of rows whose positive has the highest similarity.
    Source: miCSE Eq. 2 in the form of the published code of SimCSE and ESimCSE: the positive is in the denominator, the in-batch
    term compares the two views, the queue adds negatives only (methods differ from the printed equation, which is unbounded).
    negatives=False is miCSE's Table 4 as its code does it: all logits but the positive's are 0, log(1 + (B - 1) exp(-cos_ii / t)).
    """
    if not negatives:
        positive = jnp.diagonal(cosine(anchors, positives)) / temperature
        rest = jnp.log(jnp.maximum(len(anchors) - 1, EPSILON))
        return jax.nn.softplus(rest - positive).mean(), (positive > 0).mean()
    against = l2_normalize(positives)
    queued = None if queue is None else l2_normalize(lax.stop_gradient(queue))
    own, in_queue = sentences or (jnp.arange(len(anchors)), None)

    def rank(rows: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        anchors, place, sentence = rows
        logits = jnp.matmul(anchors, against.T, precision=lax.Precision.HIGHEST) / temperature
        positive = jnp.take_along_axis(logits, place[:, None], axis=1)
        if queued is not None:
            to_queue = jnp.matmul(anchors, queued.T, precision=lax.Precision.HIGHEST) / temperature
            if queue_valid is not None:
                to_queue = jnp.where(queue_valid, to_queue, -jnp.inf)
            if in_queue is not None:
                to_queue = jnp.where(sentence[:, None] == in_queue, -jnp.inf, to_queue)
            logits = jnp.concatenate([logits, to_queue], axis=1)
        loss = jax.nn.logsumexp(logits - positive, axis=1)  # small losses stay exact
        return loss, positive[:, 0] >= logits.max(axis=1)

    rows = l2_normalize(anchors), jnp.arange(len(anchors)), own
    loss, right = map_in_chunks(rank, rows, len(positives) + (0 if queue is None else len(queue)))
    return loss.mean(), right.mean()


def nt_xent(first: Embeddings, second: Embeddings, temperature: float) -> tuple[Scalar, Scalar]:
    """NT-Xent over both views [B, E]: each of the 2B embeddings has its other view as positive, 2B - 2 others as negatives.

    Returns the mean of -log softmax of the cosines / temperature and the fraction of anchors whose positive ranks first.
    Source: Mirror-BERT (Liu et al. 2021), Eq. 1.
    """
    both = l2_normalize(jnp.concatenate([first, second]))
    positive = jnp.tile(paired_cosine(first, second) / temperature, 2)

    def rank(rows: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        anchors, own, place = rows
        logits = jnp.matmul(anchors, both.T, precision=lax.Precision.HIGHEST) / temperature
        logits = jnp.where(place[:, None] == jnp.arange(len(both)), -jnp.inf, logits)
        # The positive is computed twice, and the two results can differ by rounding.
        return jax.nn.logsumexp(logits - own[:, None], axis=1), own + 1e-4 >= logits.max(axis=1)

    loss, right = map_in_chunks(rank, (both, positive, jnp.arange(len(both))), len(both))
    return loss.mean(), right.mean()


def symmetric_info_nce(first: Embeddings, second: Embeddings, scale: Scalar | float) -> tuple[Scalar, Scalar]:
    """Cross entropy of scale * cosines with the own pair as target, mean of both directions; and the accuracy of the first.

    Source: the in-batch form of Contrastive Tension in sentence-transformers.
    """
    first, second = l2_normalize(first), l2_normalize(second)

    def rank(rows: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        anchors, others, place = rows  # rows of the matrix of cosines and, for the other direction, columns
        to_second, to_first = (
            jnp.matmul(one, other.T, precision=lax.Precision.HIGHEST) * scale for one, other in ((anchors, second), (others, first))
        )
        positive = jnp.take_along_axis(to_second, place[:, None], axis=1)[:, 0]
        loss = (jax.nn.logsumexp(to_second, axis=1) + jax.nn.logsumexp(to_first, axis=1)) / 2 - positive
        return loss, positive >= to_second.max(axis=1)

    loss, right = map_in_chunks(rank, (first, second, jnp.arange(len(first))), 2 * len(first))
    return loss.mean(), right.mean()


def contrastive_tension(first: Embeddings, second: Embeddings, group: int) -> tuple[Scalar, Scalar]:
    """Mean binary cross entropy of the dot products of pairs: the same sentence through both encoders, or two different ones.

    first, second: the sentences [B, E] by each of the encoders. The first row of each `group` is a positive pair with itself; the
    other rows are paired with the next such row of the batch. That is B pairs, one positive for group - 1 negatives. Also returns
    the fraction of pairs whose dot product has the right sign.
    Source: Carlsson et al. 2021. Its code draws two new sentences for a negative pair; here they are two of the batch, so each
    encoder encodes each sentence once, and pairs have the same distribution.
    """
    place = jnp.arange(len(first))
    same = place % group == 0
    others = jnp.nonzero(~same, size=len(first) - len(first) // group)[0]
    partner = place.at[others].set(jnp.roll(others, 1))
    logits = (first * second[partner]).sum(-1)
    loss = jax.nn.softplus(jnp.where(same, -logits, logits))
    return loss.mean(), ((logits > 0) == same).mean()


def ranking_loss(anchors: Embeddings, parts: Embeddings, candidates: int) -> tuple[Scalar, Scalar]:
    """Mean of -log softmax of the dot product of an anchor with its own part, against the parts of the next sentences of the batch.

    anchors, parts: [B, E]; candidates: k, the own one included. Also the fraction of anchors whose own part ranks first.
    Source: ConsSent (Brahma 2018), section 3: it ranks among k of a minibatch; the softmax is QuickThoughts'.
    """
    place = (jnp.arange(len(anchors))[:, None] + jnp.arange(candidates)) % len(anchors)
    scores = jnp.einsum("be,bke->bk", anchors, parts[place], precision="highest")
    loss = (jax.nn.logsumexp(scores, axis=1) - scores[:, 0]).mean()
    return loss, (scores[:, 0] >= scores.max(axis=1)).mean()


def alignment(first: Embeddings, second: Embeddings) -> Scalar:
    """Mean squared distance of the unit-length views [B, E] of the same sentence (Wang and Isola 2020, alpha = 2); 0 is best."""
    return jnp.square(l2_normalize(first) - l2_normalize(second)).sum(-1).mean()
