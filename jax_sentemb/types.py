"""Define the arrays that the parts of the package exchange, and one legend for the names of their axes.

batch: sentences · views: texts of a sentence · rows: batch * views texts, sentence-major · tokens · width: of the model · heads ·
layers · embedding: width of an embedding · queue: rows of the queue · samples: sampled entries of an attention map · slices: pooled
pairs of attention maps. `Float[Array, "batch width"]` is a float array with these axes; the tests check dtypes and shapes at run
time (tests/environment.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jaxtyping import Bool, Float, Int, UInt

if TYPE_CHECKING:
    import jax
    import numpy as np
    from jaxtyping import PyTree

    Array: TypeAlias = jax.Array | np.ndarray
    Params: TypeAlias = dict[str, PyTree[Array]]

OnCount = Callable[[int], object]  # called with the number of items that were finished since the last call
OnProgress = Callable[[int, int], object]  # called with the numbers of finished and of all items


def no_progress(*counts: int) -> None:
    """Ignore how much of a task is finished."""


def __getattr__(name: str) -> Any:
    """Define `Array`, on a device or on the host, and `Params`, arrays in nested dictionaries by the name of their part.

    They are defined at their first use, so that modules that only read text do not import JAX.
    """
    if name not in ("Array", "Params"):
        raise AttributeError(f"module {__name__} has no attribute {name}")
    import jax
    import numpy as np
    from jaxtyping import PyTree  # importing it imports JAX

    globals()["PyTree"] = PyTree
    globals()["Array"] = jax.Array | np.ndarray
    globals()["Params"] = dict[str, PyTree[jax.Array | np.ndarray]]
    return globals()[name]


# Row numbers are stored modulo this number. The input of a method is differentiated, so it is float32, which represents only
# integers up to 2^24 exactly. Two rows of a larger corpus whose numbers differ by a multiple of it count as one sentence: a
# sentence loses one negative in 16.7 million, and is never its own negative.
ROW_NUMBERS = 1 << 24


class Rows(NamedTuple):
    """Token rows as an encoder takes them: right-padded, `mask` is True on real tokens (special tokens included)."""

    tokens: Int[Array, "rows tokens"]  # int32; NumPy on the host, jax.Array on the device
    mask: Bool[Array, "rows tokens"]


class Batch(NamedTuple):
    """The input of a train step: one text for each sentence or, if a method needs them, several views."""

    tokens: Int[Array, "batch *views tokens"]  # int32
    mask: Bool[Array, "batch *views tokens"]
    label: Float[Array, "batch ..."] | None = (
        None  # float32: a class number, a gold score or a teacher's vector; None if there are no labels
    )
    row: Int[Array, " batch"] | None = None  # int32: the row of the sentence in the corpus, modulo ROW_NUMBERS; None if unknown
    position: Int[Array, " batch"] | None = None  # int32: positions of the sentences in the whole batch; None for a whole batch

    @property
    def rows(self) -> Rows:
        """Return all texts, sentence-major, [rows, tokens]."""
        return Rows(self.tokens.reshape(-1, self.tokens.shape[-1]), self.mask.reshape(-1, self.mask.shape[-1]))


class TrainState(NamedTuple):
    """Everything that a run needs to continue. A field that a method does not use is None."""

    params: Params  # written only by the optimiser
    ema_params: Params | None  # written by method.post_update only; may be a sub-tree of params
    queue: Float[Array, "queue embedding"] | None  # float32, newest row first; written by method.post_update only
    opt_state: PyTree[Array]  # of optax
    rng: UInt[jax.Array, " key"]  # uint32 data of the run's key, which never changes: a step folds its number in
    step: Int[Array, ""]  # int32, the number of updates done
    queue_rows: Int[Array, " queue"] | None = None  # int32: Batch.row of the sentences in the queue; written by post_update only


class EncodedSentences(NamedTuple):
    """The result of one call that embeds sentences."""

    vectors: Float[np.ndarray, "sentences embedding"]  # float32
    truncated: int  # number of distinct sentences that were cut
