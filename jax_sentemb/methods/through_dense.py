"""Train an encoder whose start has dense layers after its pooling, as LaBSE has: the loss sees what is exported."""

from dataclasses import dataclass
from typing import Any

import jax

from jax_sentemb.methods.base import Encoded, Method, Seeds
from jax_sentemb.methods.wrapped import Wrapped
from jax_sentemb.models.dense import DENSE, apply_dense
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.types import Array, Batch, Params, TrainState


@dataclass
class ThroughDense(Wrapped):
    """A method whose loss compares embeddings after the dense layers of the start. These layers are exported, but not trained."""

    activations: tuple[str, ...]

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> Encoded:
        """Encode a batch with the inner method and apply the layers to the embeddings."""

        def applied(path: tuple[Any, ...], leaf: Array) -> Array:
            is_embedding = getattr(path[-1], "name", None) in self.inner.embeddings
            return apply_dense(params[DENSE], self.activations, leaf) if is_embedding else leaf

        return jax.tree_util.tree_map_with_path(applied, self.inner.encode(encoder, params, state, batch, seeds))


def reads_dense(method: Method) -> bool:
    """Return whether the loss of a method can be that of the vectors after dense layers.

    A method with a head or a queue has parameters or vectors of the pooled width.
    """
    return method.dense is None and bool(method.embeddings) and not method.queues_embeddings


def through_dense(method: Method, activations: tuple[str, ...]) -> Method:
    """Return the method with the dense layers of its start in its loss; the method itself if there are none or it cannot."""
    return ThroughDense(method, activations) if activations and reads_dense(method) else method
