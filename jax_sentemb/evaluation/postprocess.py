"""Postprocess a set of embeddings: remove the first component, or whiten."""

import numpy as np
import scipy
from jaxtyping import Float, Real

from jax_sentemb.cosines import unit_length
from jax_sentemb.inference.postprocess import VARIES, check_embeddings, principal_axes


def first_component(vectors: Real[np.ndarray, "n width"]) -> Float[np.ndarray, " width"]:
    """Return the first right singular vector of embeddings that are not centred; float64."""
    vectors = check_embeddings(vectors)
    wide = vectors.shape[0] < vectors.shape[1]  # use the smaller of the two products: both have the same singular values
    product = vectors @ vectors.T if wide else vectors.T @ vectors
    top = scipy.linalg.eigh(product, subset_by_index=[len(product) - 1] * 2)[1][:, 0]
    return unit_length((top @ vectors)[None])[0] if wide else top


def remove_first_component(vectors: Real[np.ndarray, "n width"]) -> Float[np.ndarray, "n width"]:
    """Return embeddings without their first component (Arora, Liang and Ma 2017; Tang and de Sa 2019); float64."""
    vectors = check_embeddings(vectors)
    component = first_component(vectors)
    return vectors - np.outer(vectors @ component, component)


def whiten(vectors: Real[np.ndarray, "n width"]) -> Float[np.ndarray, "n width"]:
    """Return embeddings with mean 0 and covariance 1 (BERT-whitening, Su et al. 2021); float64.

    Directions in which the embeddings do not vary become 0. N sentences vary in at most N - 1 directions.
    """
    mean, variances, axes = principal_axes(vectors)
    varies = variances > VARIES * variances[0]
    return (vectors - mean) @ axes * np.where(varies, 1 / np.sqrt(np.where(varies, variances, 1.0)), 0.0)
