"""A method around another method, for terms and forms of the loss that every method can have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
from jaxtyping import Float, Key

from jax_sentemb.methods.base import Carry, Encoded, InitialState, Method, Objective, Seeds
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.types import Array, Batch, Params, Rows, TrainState


@dataclass
class Wrapped(Method):
    """A method around `inner`, to which it passes the members that training uses, unless a subclass overrides them.

    A run asks the inner method itself for everything else, such as its examples and its export.
    """

    inner: Method

    @property
    def pooling(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the pooling of the inner method."""
        return self.inner.pooling

    @property
    def anchor(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the weight of the anchor of the inner method."""
        return self.inner.anchor

    @property
    def encoder_parts(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the encoders among the parameters of the inner method."""
        return self.inner.encoder_parts

    @property
    def dense(self) -> tuple[str, ...] | None:
        """Return the trained activations of the inner method."""
        return self.inner.dense

    @property
    def step_shares(self) -> Mapping[str, Fraction]:
        """Return the `step_shares` of the inner method."""
        return self.inner.step_shares

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Check the settings of the inner method."""
        self.inner.check(encoder, batch_size)

    def with_embeddings(self, encoded: Encoded, change: Callable[[Array], Array]) -> Encoded:
        """Return what the inner method encoded, with `change` applied to its fields `embeddings`."""

        def changed(path: tuple[Any, ...], leaf: Array) -> Array:
            return change(leaf) if getattr(path[-1], "name", None) in self.inner.embeddings else leaf

        return jax.tree_util.tree_map_with_path(changed, encoded)

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the first state of the inner method."""
        return self.inner.init(encoder, loaded, key)

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> Encoded:
        """Encode a batch with the inner method."""
        return self.inner.encode(encoder, params, state, batch, seeds)

    def objective(self, params: Params, state: TrainState, encoded: Encoded) -> Objective:
        """Return the loss of the inner method."""
        return self.inner.objective(params, state, encoded)

    def post_update(self, state: TrainState, carry: Carry) -> TrainState:
        """Return the state after the update of the inner method."""
        return self.inner.post_update(state, carry)

    def prefix_params(self, params: Params, width: int) -> Params:
        """Return the parameters of the inner method for a loss on a prefix."""
        return self.inner.prefix_params(params, width)

    def encoders(self, params: Params) -> dict[str, Params]:
        """Return the encoders of the inner method that may be exported."""
        return self.inner.encoders(params)

    def embed(self, encoder: TokenEncoder, params: Params, rows: Rows) -> Float[Array, "rows embedding"]:
        """Return the embeddings of the inner method."""
        return self.inner.embed(encoder, params, rows)
