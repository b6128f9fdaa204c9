"""Cross entropy of classes and of words."""

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Shaped

from jax_sentemb.losses.arrays import Embeddings, Scalar
from jax_sentemb.types import Array


def softmax_cross_entropy(logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]) -> tuple[Scalar, Scalar]:
    """Mean cross entropy of logits [B, C] for class numbers [B], and the fraction of right answers."""
    taken = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=-1) - taken).mean(), (logits.argmax(-1) == labels).mean()


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
