"""Layout of the embeddings of a multi-view model."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Views(NamedTuple):
    """Layout of embeddings made of views: a change of a set of embeddings applies to each view, then the views are joined.

    Without widths an embedding is a single view, which `joined` does not change.
    """

    widths: tuple[int, ...] = ()
    average: bool = False  # else side by side

    def each(
        self, change: Callable[[np.ndarray], np.ndarray], vectors: Float[np.ndarray, "n width"]
    ) -> Float[np.ndarray, "n changed"]:
        """Embeddings [N, E] with each view changed as a set."""
        return np.concatenate([change(part) for part in self._parts(vectors)], axis=1)

    def joined(self, vectors: Float[np.ndarray, "n width"]) -> Float[np.ndarray, "n joined"]:
        """Embeddings from views [N, sum of widths]: at unit length, averaged or side by side."""
        if not self.widths:
            return vectors
        parts = [unit_length(part) for part in self._parts(vectors)]
        return sum(parts[1:], parts[0]) / len(parts) if self.average else np.concatenate(parts, axis=1)

    def _parts(self, vectors: np.ndarray) -> list[np.ndarray]:
        return np.split(vectors, np.cumsum(self.widths)[:-1], axis=1) if self.widths else [vectors]


NO_VIEWS = Views()


def unit_length(vectors: Float[np.ndarray, "n width"]) -> Float[np.ndarray, "n width"]:
    """Embeddings [N, E] at length 1; a zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
