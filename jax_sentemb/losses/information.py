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
    """Return the Pearson correlation over the last axis, where `valid`; 0 if either side is constant.

    Constant or empty inputs give zero gradient, not NaN.

    Args:
        first: Samples of one variable.
        second: Samples of the other variable.
        valid: Which samples count.

    Example:
        >>> values = jnp.array([1.0, 2.0, 3.0, 99.0])
        >>> float(correlation(values, -values, jnp.array([True, True, True, False])))
        -1.0
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
    """Return the mutual information in nats of two jointly normal variables with correlation rho.

    It is -1/2 log(1 - rho^2). Use it to make two views of a sentence attend to the same tokens.

    Args:
        rho: Correlations from -1 to 1.
        largest: The largest rho^2. Above it the result is constant and has no gradient, so identical views stay
            finite (at most 6.9).

    Example:
        >>> float(gaussian_mutual_information(jnp.array(0.0)))
        0.0
        >>> round(float(gaussian_mutual_information(jnp.array(1.0))), 1)
        6.9

    References:
        miCSE, Eq. 4. Its Eq. 9, Eq. 11 and Alg. 1 print it without the logarithm; its code has the logarithm.
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
    """Return the negated Jensen-Shannon estimate of mutual information, and its two expectations.

    The score of a token and a sentence is their dot product. A token is a positive example of its own sentence
    and a negative example of every other sentence of the batch. Use it when a sentence has no second view.

    Args:
        local: Embeddings of the tokens, after the convolutions.
        mask: 1 for tokens, 0 for padding.
        sentence: Embeddings of the sentences.
        over: "pairs" (the code): means over pairs of log 2 - sp(-score) and of sp(score) - log 2, with sp(x) =
            log(1 + exp(x)); 0 if all scores are 0; long sentences weigh more. "sentences" (the paper): sums
            over the tokens of a sentence, then means over sentences, without log 2.

    Returns:
        The loss E_neg - E_pos, E_pos and E_neg, all float32 scalars.

    Example:
        >>> loss, positive, negative = token_sentence_jsd(jnp.zeros((2, 3, 4)), jnp.ones((2, 3)), jnp.zeros((2, 4)))
        >>> float(loss)
        0.0

    References:
        IS-BERT (Zhang et al. 2020), Eq. 2 and 3.
    """
    batch, weight = len(sentence), mask.astype(jnp.float32)
    offset = jnp.log(2.0) if over == "pairs" else 0.0

    def estimate(rows: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        tokens, real, index = rows
        scores = jnp.einsum("bte,se->bts", tokens, sentence, precision=lax.Precision.HIGHEST)
        is_same_sentence = index[:, None, None] == jnp.arange(batch)
        positive = jnp.where(is_same_sentence, offset - jax.nn.softplus(-scores), 0.0) * real[..., None]
        negative = jnp.where(is_same_sentence, 0.0, jax.nn.softplus(scores) - offset) * real[..., None]
        return positive.sum((1, 2)), negative.sum((1, 2))

    positive, negative = map_in_chunks(estimate, (local, weight, jnp.arange(batch)), local.shape[1] * batch)
    count = jnp.maximum(weight.sum(), 1.0) if over == "pairs" else batch
    positive, negative = positive.sum() / count, negative.sum() / (count * max(batch - 1, 1))
    return negative - positive, positive, negative
