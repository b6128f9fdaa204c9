"""Matryoshka embeddings: the first numbers of an embedding are an embedding too (Kusupati et al., NeurIPS 2022)."""

import functools
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Float

from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import Scalar
from jax_sentemb.methods.base import Encoded, Method, Objective
from jax_sentemb.methods.wrapped import Wrapped
from jax_sentemb.types import Array, Params, TrainState


@dataclass
class Matryoshka(Wrapped):
    """A method whose loss is the mean of its losses on prefixes of the embedding; the whole embedding is one of them.

    The numbers after a prefix are set to 0. The losses compare embeddings by their cosine, so a prefix counts as scaled to length
    1. Heads and predictors read the prefix as they read the whole embedding. Predictions of an embedding are cut as embeddings are.
    Metrics, and what enters a queue, are those of the whole embedding.
    """

    widths: tuple[int, ...]  # rising, each below the width of the embedding

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> Objective:
        """Return the mean loss; the metric `loss_K` is the loss on the first K numbers."""
        total, (metrics, carry) = self.inner.objective(params, state, encoded)
        losses: dict[str, Scalar] = {}
        for width in self.widths:
            queue = state.queue
            if queue is not None and self.inner.queues_embeddings:
                queue = prefix(queue, width)
            cut = self.with_embeddings(encoded, functools.partial(prefix, width=width))
            cut_params = self.inner.prefix_params(params, width)
            losses[f"loss_{width}"] = self.inner.objective(cut_params, state._replace(queue=queue), cut)[0]
        total = jnp.stack([total, *losses.values()]).mean()
        return total, ({**metrics, **losses}, carry)


def prefix(vectors: Float[Array, "*rows embedding"], width: int) -> Float[Array, "*rows embedding"]:
    """Return the vectors with zeros after their first `width` numbers."""
    return jnp.where(jnp.arange(vectors.shape[-1]) < width, vectors, 0.0)


def in_prefixes(method: Method, widths: tuple[int, ...], embedding_width: int) -> Method:
    """Return the method with its loss on prefixes of these widths; the method itself without widths.

    Raises:
        ConfigError: The method does not compare embeddings by their cosine, or the widths do not fit the embedding.
    """
    if not widths:
        return method
    given = Setting("train.matryoshka", ",".join(map(str, widths)))
    if list(widths) != sorted(set(widths)) or widths[-1] > embedding_width:
        raise ConfigError(given, f": give rising widths, the last one at most {embedding_width}, the width of an embedding")
    if not method.embeddings:
        problem = f": {type(method).__name__} with these settings does not compare embeddings by their cosine; remove it"
        raise ConfigError(given, problem, *((", or set ", Setting("method.head", False)) if getattr(method, "head", False) else ()))
    if method.dense:
        raise ConfigError(
            given, " cuts the embedding of the encoder, which is not exported: set ", Setting("method.output", "student")
        )
    return Matryoshka(method, tuple(width for width in widths if width < embedding_width))
