"""Train an encoder whose start has dense layers after its pooling, as LaBSE has: the loss sees what is exported."""

import functools
from dataclasses import dataclass

from jax_sentemb.methods.base import Encoded, Method, Seeds
from jax_sentemb.methods.wrapped import Wrapped
from jax_sentemb.models.dense import DENSE, apply_dense
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.types import Batch, Params, TrainState


@dataclass
class ThroughDense(Wrapped):
    """Compare embeddings after the dense layers of the start in the loss. These layers are exported, but not trained."""

    activations: tuple[str, ...]

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> Encoded:
        """Encode a batch with the inner method and apply the layers to the embeddings."""
        encoded = self.inner.encode(encoder, params, state, batch, seeds)
        return self.with_embeddings(encoded, functools.partial(apply_dense, params[DENSE], self.activations))


def reads_dense(method: Method) -> bool:
    """Return whether the loss of a method can be that of the vectors after dense layers.

    Methods that may have a head or a queue are left out, since these have the pooled width, even if the settings use neither.
    """
    return method.dense is None and bool(method.embeddings) and not method.queues_embeddings


def through_dense(method: Method, activations: tuple[str, ...]) -> Method:
    """Return the method with the dense layers of its start in its loss; the method itself if there are none or it cannot."""
    return ThroughDense(method, activations) if activations and reads_dense(method) else method
