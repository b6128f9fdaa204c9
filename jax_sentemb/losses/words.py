"""Cross entropy of classes and of words."""

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Shaped

from jax_sentemb.losses.arrays import Embeddings, Scalar
from jax_sentemb.types import Array


def softmax_cross_entropy(logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]) -> tuple[Scalar, Scalar]:
    """Return the mean cross entropy of class numbers, and the share of right answers.

    Use it for labelled pairs and for the consistent-or-not tasks.

    Args:
        logits: A score for each class.
        labels: The right classes.

    Example:
        >>> loss, accuracy = softmax_cross_entropy(jnp.array([[0.0, 0.0], [9.0, 0.0]]), jnp.array([1, 0]))
        >>> round(float(loss), 3), float(accuracy)
        (0.347, 0.5)
    """
    taken = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=-1) - taken).mean(), (logits.argmax(-1) == labels).mean()


def sampled_softmax_loss(
    right: Float[Array, "batch tokens"], others: Float[Array, "batch tokens candidates"], mask: Shaped[Array, "batch tokens"]
) -> Scalar:
    """Return the mean over tokens of -log softmax of the score of the right word against those of sampled words.

    Use it when the vocabulary is too large for a softmax over all words.

    Args:
        right: The score of the right word.
        others: Scores of sampled words, each minus the logarithm of its expected count in the sample; -inf for
            the right word.
        mask: 1 for tokens that count.

    Example:
        >>> float(sampled_softmax_loss(jnp.zeros((1, 1)), jnp.full((1, 1, 1), -jnp.inf), jnp.ones((1, 1))))
        0.0

    References:
        Jean et al. 2015.
    """
    loss = jnp.logaddexp(right, jax.nn.logsumexp(others, axis=-1)) - right
    return (loss * mask).sum() / jnp.maximum(mask.sum(), 1.0)


def negative_sampling(
    predicted: Embeddings,
    words: Float[Array, "batch tokens embedding"],
    negatives: Float[Array, "batch tokens negatives embedding"],
    mask: Shaped[Array, "batch tokens"],
) -> Scalar:
    """Return the mean over words of -log sigmoid(x . w) minus the sum over k of log sigmoid(-x . n_k).

    Use it to predict the words of a sentence from a vector.

    Args:
        predicted: x, a vector for each sentence.
        words: w, the vectors of the words to predict.
        negatives: n_k, the vectors of other words.
        mask: 1 for words that count.

    Example:
        >>> loss = negative_sampling(jnp.zeros((1, 2)), jnp.ones((1, 3, 2)), jnp.ones((1, 3, 1, 2)), jnp.ones((1, 3)))
        >>> round(float(loss), 4)  # 2 log 2
        1.3863

    References:
        Tang and de Sa 2019, Eq. 1.
    """
    right = jax.nn.softplus(-jnp.einsum("ne,nte->nt", predicted, words, precision="highest"))
    wrong = jax.nn.softplus(jnp.einsum("ne,ntke->ntk", predicted, negatives, precision="highest")).sum(-1)
    return ((right + wrong) * mask).sum() / jnp.maximum(mask.sum(), 1.0)
