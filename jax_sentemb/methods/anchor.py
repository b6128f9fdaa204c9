"""Keep an encoder near its start: a loss term on the distance of an embedding to that of the encoder before training."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from jax_sentemb.losses import paired_cosine
from jax_sentemb.methods.base import Encoded, InitialState, Method, Objective, Seeds
from jax_sentemb.methods.wrapped import Wrapped
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.types import Array, Batch, Params, TrainState

ANCHOR = "anchor"  # the part of the parameters with the weights of the start, which are not trained
ANCHORED = ("encoder", "cnn")  # parts of the parameters that an embedding depends on


class AnchoredEncoding(NamedTuple):
    """The encoding of the inner method, and for each sentence the mean of 1 - cosine of its embeddings to those of the start."""

    inner: Encoded
    distance: Float[Array, " batch"]


@dataclass
class Anchored(Wrapped):
    """A method with its `anchor` times the mean of 1 - cosine(embedding, the start's embedding), without dropout, in the loss.

    It costs a forward pass of the start and a forward and backward pass of the encoder (ContrastiveTension: of both encoders).
    The start's weights are the part "anchor" of the parameters, which has no gradient.
    """

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the state of the inner method, with a copy of the first weights: a step donates its state, leaf by leaf."""
        learned = self.inner.init(encoder, loaded, key)
        start = {name: jax.tree.map(jnp.copy, learned.params[name]) for name in ANCHORED if name in learned.params}
        return learned._replace(params={**learned.params, ANCHOR: start})

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> AnchoredEncoding:
        """Encode with the inner method and compute the distance of every text to the start."""
        rows, embed = batch.rows, self.inner.embed
        start = jax.lax.stop_gradient(embed(encoder, params[ANCHOR], rows))
        trained = [embed(encoder, {**params, "encoder": params[part]}, rows) for part in self.inner.encoder_parts]
        distance = sum(1.0 - paired_cosine(vectors, start) for vectors in trained) / len(trained)
        return AnchoredEncoding(
            self.inner.encode(encoder, params, state, batch, seeds), jnp.reshape(distance, (len(seeds), -1)).mean(axis=1)
        )

    def objective(self, params: Params, state: TrainState, encoded: AnchoredEncoding) -> Objective:
        """Return the loss of the method plus the term, with the mean distance as a further metric."""
        loss, (metrics, carry) = self.inner.objective(params, state, encoded.inner)
        distance = encoded.distance.mean()
        return loss + self.inner.anchor * distance, ({**metrics, "anchor": distance}, carry)


def anchored(method: Method) -> Method:
    """Return the method with its term for the distance to the start; the method itself if `anchor` is 0."""
    return Anchored(method) if method.anchor else method
