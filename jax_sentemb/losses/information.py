"""Mutual information: of attention maps, and of a sentence and its tokens."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float, Shaped

from jax_sentemb.losses.arrays import EPSILON, Embeddings, Scalar, map_in_chunks
from jax_sentemb.types import Array


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
