"""Describe the layout of the embeddings of a multi-view model."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jax_sentemb.cosines import unit_length


class Views(NamedTuple):
    """The widths of the views in an embedding, and how views are joined. Post-processing applies to each view separately.

    Without widths an embedding is a single view, which `joined` does not change.
    """

    widths: tuple[int, ...] = ()
    average: bool = False  # False: views are concatenated

    def each(
        self, change: Callable[[Float[np.ndarray, "n _"]], Float[np.ndarray, "n _"]], vectors: Float[np.ndarray, "n width"]
    ) -> Float[np.ndarray, "n changed"]:
        """Apply `change` to each view of embeddings [N, E]."""
        return np.concatenate([change(part) for part in self._parts(vectors)], axis=1)

    def joined(self, vectors: Float[np.ndarray, "n width"]) -> Float[np.ndarray, "n joined"]:
        """Scale the views [N, sum of widths] to unit length, and average or concatenate them."""
        if not self.widths:
            return vectors
        parts = [unit_length(part) for part in self._parts(vectors)]
        return sum(parts[1:], parts[0]) / len(parts) if self.average else np.concatenate(parts, axis=1)

    def _parts(self, vectors: np.ndarray) -> list[np.ndarray]:
        return np.split(vectors, np.cumsum(self.widths)[:-1], axis=1) if self.widths else [vectors]


NO_VIEWS = Views()
