"""Losses as pure functions of arrays, computed in float32. They are written for one device; XLA partitions them."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Int, Shaped

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
    """`vectors` [..., E] scaled to length 1; a zero vector stays zero, with zero gradient."""
    squared = jnp.square(vectors).sum(-1, keepdims=True)
    return vectors * lax.rsqrt(jnp.maximum(squared, EPSILON))


def cosine(first: Float[Array, "first embedding"], second: Float[Array, "second embedding"]) -> Float[Array, "first second"]:
    """Cosines [N, M] of all pairs of rows of `first` [N, E] and `second` [M, E]."""
    return jnp.matmul(l2_normalize(first), l2_normalize(second).T, precision=lax.Precision.HIGHEST)


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


def correlation(
    first: Float[Array, "*slices samples"], second: Float[Array, "*slices samples"], valid: Bool[Array, "*#slices samples"]
) -> Float[Array, "*slices"]:
    """Pearson correlation over the last axis of `first` and `second`, where `valid`; 0 where either is constant.

    Safe for gradients: constant or empty inputs give zero gradient, not NaN.
    """
    count = jnp.maximum(valid.sum(-1, keepdims=True), 1)

    def centred(values: Array) -> Array:
        values = jnp.where(valid, values, 0.0)
        return jnp.where(valid, values - values.sum(-1, keepdims=True) / count, 0.0)

    x, y = centred(first), centred(second)
    product = jnp.square(x).sum(-1) * jnp.square(y).sum(-1)
    varies = product > EPSILON
    return jnp.where(varies, (x * y).sum(-1) * lax.rsqrt(jnp.where(varies, product, 1.0)), 0.0)


def gaussian_mutual_information(rho: Float[Array, "*slices"], largest: float = 1.0 - 1e-6) -> Float[Array, "*slices"]:
    """-1/2 log(1 - rho^2) in nats: the mutual information of two jointly normal variables with correlation rho.

    rho^2 is limited to `largest`, with zero gradient beyond it, so identical views stay finite (MI <= 6.9).
    Source: miCSE Eq. 4. Its Eq. 9, Eq. 11 and Alg. 1 print it without the logarithm, a misprint (the code has it).
    """
    squared = jnp.square(rho)
    inside = squared < largest
    return -0.5 * jnp.log1p(-jnp.where(inside, squared, largest))


def alignment(first: Embeddings, second: Embeddings) -> Scalar:
    """Mean squared distance of the unit-length views [B, E] of the same sentence (Wang and Isola 2020, alpha = 2); 0 is best."""
    return jnp.square(l2_normalize(first) - l2_normalize(second)).sum(-1).mean()


def paired_cosine(first: Embeddings, second: Embeddings) -> Float[Array, " batch"]:
    """Cosine [N] of row i of `first` with row i of `second`, both [N, E]."""
    return (l2_normalize(first) * l2_normalize(second)).sum(-1)


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


def token_sentence_jsd(
    local: Float[Array, "batch tokens embedding"],
    mask: Shaped[Array, "batch tokens"],
    sentence: Embeddings,
    over: str = "pairs",
) -> tuple[Scalar, Scalar, Scalar]:
    """Negated Jensen-Shannon estimate of the mutual information of sentences and their tokens, and its two expectations.

    local: [B, T, E], `mask` [B, T] 1 on real tokens; sentence: [B, E]; the score of a token and a sentence is their dot product. A
    token is a positive example of its own sentence and a negative one of every other sentence of the batch.
    over="pairs" (code): E_pos = mean over positive pairs of log 2 - sp(-score), E_neg = mean over negative pairs of
    sp(score) - log 2, loss = E_neg - E_pos; 0 where all scores are 0; long sentences weigh more.
    over="sentences" (paper): sums over the tokens of a sentence, then means over sentences, without log 2.
    Source: IS-BERT (Zhang et al. 2020), Eq. 2 and 3; sp(x) = log(1 + exp(x)).
    """
    batch, weight = len(sentence), mask.astype(jnp.float32)
    offset = jnp.log(2.0) if over == "pairs" else 0.0

    def estimate(rows: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        tokens, real, place = rows
        scores = jnp.einsum("bte,se->bts", tokens, sentence, precision=lax.Precision.HIGHEST)
        own = place[:, None, None] == jnp.arange(batch)
        positive = jnp.where(own, offset - jax.nn.softplus(-scores), 0.0) * real[..., None]
        negative = jnp.where(own, 0.0, jax.nn.softplus(scores) - offset) * real[..., None]
        return positive.sum((1, 2)), negative.sum((1, 2))

    positive, negative = map_in_chunks(estimate, (local, weight, jnp.arange(batch)), local.shape[1] * batch)
    count = jnp.maximum(weight.sum(), 1.0) if over == "pairs" else batch
    positive, negative = positive.sum() / count, negative.sum() / (count * max(batch - 1, 1))
    return negative - positive, positive, negative


def ranking_loss(anchors: Embeddings, parts: Embeddings, candidates: int) -> tuple[Scalar, Scalar]:
    """Mean of -log softmax of the dot product of an anchor with its own part, against the parts of the next sentences of the batch.

    anchors, parts: [B, E]; candidates: k, the own one included. Also the fraction of anchors whose own part ranks first.
    Source: ConsSent (Brahma 2018), section 3: it ranks among k of a minibatch; the softmax is QuickThoughts'.
    """
    place = (jnp.arange(len(anchors))[:, None] + jnp.arange(candidates)) % len(anchors)
    scores = jnp.einsum("be,bke->bk", anchors, parts[place], precision="highest")
    loss = (jax.nn.logsumexp(scores, axis=1) - scores[:, 0]).mean()
    return loss, (scores[:, 0] >= scores.max(axis=1)).mean()


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


def sampled_softmax_loss(
    right: Float[Array, "batch tokens"], others: Float[Array, "batch tokens candidates"], mask: Shaped[Array, "batch tokens"]
) -> Scalar:
    """Mean over places of -log softmax of the score of the right word against those of other words.

    right: [B, T]; others: [B, T, K], -inf where the other word is the right one, each minus the logarithm of its expected count
    among the K; mask: [B, T]. Source: Jean et al. 2015.
    """
    loss = jnp.logaddexp(right, jax.nn.logsumexp(others, axis=-1)) - right
    return (loss * mask).sum() / jnp.maximum(mask.sum(), 1.0)


def negative_sampling(
    predicted: Embeddings,
    words: Float[Array, "batch tokens embedding"],
    negatives: Float[Array, "batch tokens negatives embedding"],
    mask: Shaped[Array, "batch tokens"],
) -> Scalar:
    """Mean over words of -log sigmoid(x . w) - sum over k of log sigmoid(-x . n_k).

    predicted: x [N, E]; words: [N, T, E] with `mask` [N, T]; negatives: [N, T, K, E]. Source: Tang and de Sa 2019, Eq. 1.
    """
    right = jax.nn.softplus(-jnp.einsum("ne,nte->nt", predicted, words, precision="highest"))
    wrong = jax.nn.softplus(jnp.einsum("ne,ntke->ntk", predicted, negatives, precision="highest")).sum(-1)
    return ((right + wrong) * mask).sum() / jnp.maximum(mask.sum(), 1.0)


def towards_orthonormal_rows(matrix: Float[Array, "rows columns"], beta: float) -> Float[Array, "rows columns"]:
    """(1 + beta) U - beta (U U^T) U: one step that brings the rows of `matrix` U [E, D] closer to orthonormal (E <= D)."""
    product = jnp.matmul(jnp.matmul(matrix, matrix.T, precision="highest"), matrix, precision="highest")
    return (1.0 + beta) * matrix - beta * product


def rows_from_orthonormal(matrix: Float[Array, "rows columns"]) -> Scalar:
    """The Frobenius norm of U U^T - I for `matrix` U [E, D]; 0 for orthonormal rows (Tang and de Sa 2019, 3.1)."""
    return jnp.linalg.norm(jnp.matmul(matrix, matrix.T, precision="highest") - jnp.eye(len(matrix)))


def softmax_cross_entropy(logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]) -> tuple[Scalar, Scalar]:
    """Mean cross entropy of logits [B, C] for class numbers [B], and the fraction of right answers."""
    taken = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=-1) - taken).mean(), (logits.argmax(-1) == labels).mean()
