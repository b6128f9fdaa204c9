"""Changes of a set of embeddings: removal of the first component, whitening."""

import numpy as np
from scipy.linalg import eigh

from jax_sentemb.errors import NumericsError
from jax_sentemb.inference.views import unit_length


def first_component(vectors: np.ndarray) -> np.ndarray:
    """First right singular vector of embeddings [N, E] that are not centred: float64 [E]."""
    vectors = check_embeddings(vectors)
    wide = vectors.shape[0] < vectors.shape[1]  # the smaller of the two products has the same singular values
    product = vectors @ vectors.T if wide else vectors.T @ vectors
    top = eigh(product, subset_by_index=[len(product) - 1] * 2)[1][:, 0]
    return unit_length((top @ vectors)[None])[0] if wide else top


def remove_first_component(vectors: np.ndarray) -> np.ndarray:
    """Embeddings [N, E] without their first component (Arora, Liang and Ma 2017; Tang and de Sa 2019): float64."""
    vectors = check_embeddings(vectors)
    component = first_component(vectors)
    return vectors - np.outer(vectors @ component, component)


def whiten(vectors: np.ndarray) -> np.ndarray:
    """Embeddings [N, E] with mean 0 and covariance 1 (BERT-whitening, Su et al. 2021): float64.

    Directions in which the embeddings do not vary, such as those beyond the N - 1 that N sentences span, become 0.
    """
    vectors = check_embeddings(vectors)
    centred = vectors - vectors.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred / max(1, len(vectors)))
    varies = values > 1e-10 * max(values[-1], 0.0)
    return (centred @ axes * np.where(varies, 1 / np.sqrt(np.where(varies, values, 1.0)), 0.0)) if varies.any() else centred


def check_embeddings(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, np.float64)
    if not np.isfinite(vectors).all():
        raise NumericsError("the embeddings are not finite (NaN or Inf)")
    return vectors
