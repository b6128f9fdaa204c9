"""Fit a linear map after the pooling on text: remove the strongest components, or whiten. It is exported as a dense layer."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Real

from jax_sentemb.errors import RETRAIN, ConfigError, DataError, NumericsError
from jax_sentemb.formats.run_dir import convolution_of, is_words
from jax_sentemb.formats.sentence_transformers import check_exportable
from jax_sentemb.inference.build import build_embedder
from jax_sentemb.inference.load import LoadedModel
from jax_sentemb.inference.static import StaticEmbedder
from jax_sentemb.models.dense import DENSE
from jax_sentemb.types import OnCount, Params, no_progress

SAMPLE = 50_000  # sentences of a corpus that are encoded, evenly spaced
EQUAL = 1e-12  # of the squared length of the mean: less variance is rounding
VARIES = 1e-10  # of the largest variance: directions with less have none


def principal_axes(
    vectors: Real[np.ndarray, "n width"],
) -> tuple[Float[np.ndarray, " width"], Float[np.ndarray, " width"], Float[np.ndarray, "width width"]]:
    """Return mean, variances and axes of embeddings in float64, the largest variance first.

    Raises:
        NumericsError: An embedding is not finite.
    """
    vectors = check_embeddings(vectors)
    mean = vectors.mean(axis=0)
    centred = vectors - mean
    variances, axes = np.linalg.eigh(centred.T @ centred / max(1, len(vectors)))
    return mean, np.maximum(variances[::-1], 0.0), axes[:, ::-1]


def check_embeddings(vectors: Real[np.ndarray, "n width"]) -> Float[np.ndarray, "n width"]:
    """Return the embeddings as float64; raise NumericsError if one of them is not finite."""
    vectors = np.asarray(vectors, np.float64)
    if not np.isfinite(vectors).all():
        raise NumericsError(f"the embeddings are not finite (NaN or Inf); {RETRAIN}")
    return vectors


def without_components(vectors: Float[np.ndarray, "n width"], count: int) -> Params:
    """Return the layer that subtracts the mean of the vectors and their `count` strongest components (Mu and Viswanath 2018)."""
    mean, variances, axes = _sample_axes(vectors)
    most = min(len(mean) - 1, _varying(variances))
    if not 1 <= count <= most:
        raise ConfigError(f"{count} components cannot be removed: {len(vectors):,} embeddings allow a number from 1 to {most}")
    kernel = np.eye(len(mean)) - axes[:, :count] @ axes[:, :count].T
    return _layer(kernel, mean)


def whitening(vectors: Float[np.ndarray, "n width"], width: int = 0) -> Params:
    """Return the layer that gives the vectors mean 0 and covariance 1 in their `width` strongest components (Su et al. 2021).

    width=0 keeps all.

    Raises:
        ConfigError: The vectors vary in fewer dimensions.
    """
    mean, variances, axes = _sample_axes(vectors)
    varies = _varying(variances)
    width = width or varies
    if width > varies:
        raise ConfigError(
            f"width={width}: {len(vectors):,} embeddings of {len(mean)} dimensions vary in {varies} of them only; "
            "give a smaller width or more sentences"
        )
    return _layer(axes[:, :width] / np.sqrt(variances[:width]), mean)


def with_layer(model: LoadedModel, layer: Params) -> LoadedModel:
    """Return the model with one more dense layer, without an activation, after its pooling and its other layers."""
    metadata: dict[str, Any] = model.metadata
    layers = {**model.params.get(DENSE, {}), f"layer_{len(metadata.get('dense', ()))}": layer}
    metadata = {**metadata, "dense": [*metadata.get("dense", ()), "identity"]}
    return model._replace(embedder=_embedder(model, metadata), params={**model.params, DENSE: layers}, metadata=metadata)


def before_length(model: LoadedModel, sentences: Sequence[str], progress: OnCount = no_progress) -> Float[np.ndarray, "n width"]:
    """Return embeddings float32 [N, E], with the model's prompt for documents, before they are scaled to unit length.

    `progress` is called with the number of distinct sentences that were just encoded.

    Raises:
        ConfigError: The model is on word vectors or a static table, which have no layers after the pooling, or its pooling cannot
            be exported.
    """
    if is_words(model.metadata) or isinstance(model.embedder, StaticEmbedder):
        raise ConfigError("a model on word vectors or a static table has no dense layers: give a BERT or a sentence encoder")
    check_exportable(model.metadata["pooling"], convolution_of(model.metadata))
    embedder = _embedder(model, {**model.metadata, "normalize": False})
    return embedder(model.params, model.settings.add_prompt(sentences, "document"), progress=progress)


def _embedder(model: LoadedModel, metadata: dict[str, Any]) -> Any:
    tokenizer: Any = model.embedder.tokenizer
    metadata = {**metadata, "max_seq_length": model.embedder.max_seq_length}
    return build_embedder(metadata, tokenizer, model.embedder.batch_size, model.dtype)


def _sample_axes(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if len(vectors) < 2:
        raise DataError("a linear map is fitted on two sentences or more; give more text")
    mean, variances, axes = principal_axes(vectors)
    if variances[0] <= EQUAL * np.square(mean).sum():
        raise DataError(
            f"the embeddings of all {len(vectors):,} sentences are equal: a linear map cannot be fitted on them; give other text"
        )
    return mean, variances, axes


def _varying(variances: np.ndarray) -> int:
    """Return the number of directions in which the embeddings vary."""
    return int((variances > VARIES * variances[0]).sum())


def _layer(kernel: np.ndarray, mean: np.ndarray) -> Params:
    return jax.tree.map(lambda leaf: leaf.astype(np.float32), {"kernel": kernel, "bias": -mean @ kernel})
