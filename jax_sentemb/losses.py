"""Losses as pure functions of arrays. Everything is computed in float32 and written as if on one device."""

import jax
import jax.numpy as jnp
from jax import lax

from jax_sentemb.types import Array

EPSILON = 1e-12


def unit(vectors: Array) -> Array:
    """`vectors` [..., E] scaled to length 1; a zero vector stays zero, with zero gradient."""
    squared = jnp.square(vectors).sum(-1, keepdims=True)
    return vectors * lax.rsqrt(jnp.maximum(squared, EPSILON))


def cosine(first: Array, second: Array) -> Array:
    """Cosines [N, M] of all pairs of rows of `first` [N, E] and `second` [M, E]."""
    return jnp.matmul(unit(first), unit(second).T, precision=lax.Precision.HIGHEST)


def info_nce(
    first: Array,
    second: Array,
    temperature: float,
    queue: Array | None = None,
    queue_valid: Array | None = None,
    negatives: bool = True,
) -> tuple[Array, Array]:
    """InfoNCE: mean over i of -log softmax_i([cos(first_i, second_j) / t for all j, cos(first_i, queue_k) / t for valid k]).

    first, second: the two views [B, E]. queue: negatives [K, E] that receive no gradient, queue_valid: bool [K].
    Returns the loss and the fraction of rows whose positive has the highest similarity.
    Source: miCSE Eq. 2 in the form of the published code of SimCSE and ESimCSE: the positive is in the denominator, the in-batch
    term compares the two views, the queue adds negatives only (methods differ from the printed equation, which is unbounded).
    negatives=False is miCSE's Table 4 as its code does it: all logits but the positive's are 0, log(1 + (B - 1) exp(-cos_ii / t)).
    """
    logits = cosine(first, second) / temperature
    positive = jnp.diagonal(logits)
    if not negatives:
        rest = jnp.log(jnp.maximum(len(first) - 1, EPSILON))
        return jax.nn.softplus(rest - positive).mean(), (positive > 0).mean()
    if queue is not None:
        to_queue = cosine(first, lax.stop_gradient(queue)) / temperature
        if queue_valid is not None:
            to_queue = jnp.where(queue_valid, to_queue, -jnp.inf)
        logits = jnp.concatenate([logits, to_queue], axis=1)
    loss = jax.nn.logsumexp(logits - positive[:, None], axis=1)  # small losses stay exact
    return loss.mean(), (positive >= logits.max(axis=1)).mean()


def correlation(first: Array, second: Array, valid: Array) -> Array:
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


def gaussian_mutual_information(rho: Array, largest: float = 1.0 - 1e-6) -> Array:
    """-1/2 log(1 - rho^2) in nats: the mutual information of two jointly normal variables with correlation rho.

    rho^2 is limited to `largest`, with zero gradient beyond it, so identical views stay finite (MI <= 6.9).
    Source: miCSE Eq. 4. Its Eq. 9, Eq. 11 and Alg. 1 print it without the logarithm, a misprint (the code has it).
    """
    squared = jnp.square(rho)
    inside = squared < largest
    return -0.5 * jnp.log1p(-jnp.where(inside, squared, largest))


def alignment(first: Array, second: Array) -> Array:
    """Mean squared distance of the unit-length views [B, E] of the same sentence (Wang and Isola 2020, alpha = 2); 0 is best."""
    return jnp.square(unit(first) - unit(second)).sum(-1).mean()


def masked_token_loss(logits: Array, targets: Array, selected: Array) -> tuple[Array, Array]:
    """Per row: the summed cross entropy of logits [R, M, V] for targets [R, M] where `selected` [R, M], and their number."""
    log_probability = jax.nn.log_softmax(logits.astype(jnp.float32))
    taken = jnp.take_along_axis(log_probability, targets[..., None], axis=-1)[..., 0]
    return -(taken * selected).sum(-1), selected.sum(-1).astype(jnp.float32)
