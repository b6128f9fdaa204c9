"""The arrays that the parts of the package exchange, and one legend for the names of their axes.

batch: sentences · views: texts of a sentence · rows: batch * views texts, sentence-major · tokens · width: of the model · heads ·
layers · embedding: width of an embedding · queue: rows of the queue · samples: sampled entries of an attention map · slices: pooled
pairs of attention maps. `Float[Array, "batch width"]` is a float array with these axes; the tests check dtypes and shapes at run
time (tests/conftest.py).
"""

from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int, UInt

Array = Any  # jax.Array on the device, np.ndarray on the host: jaxtyping checks dtype and shape of both
Params = Any  # arrays in nested dictionaries


# Row numbers are kept modulo this: such numbers are exact in float32 (what a method encodes is differentiated, so it is float), and
# a corpus may have more than 2^31 rows. Of a larger corpus two rows that are a multiple apart count as one sentence, so a sentence
# loses one negative in 16.7 million; the same sentence is never taken for two.
ROW_NUMBERS = 1 << 24


class Rows(NamedTuple):
    """Token rows as an encoder takes them: right-padded, `mask` is True on real tokens (special tokens included)."""

    tokens: Int[Array, "rows tokens"]  # int32; NumPy on the host, jax.Array on the device
    mask: Bool[Array, "rows tokens"]


class Batch(NamedTuple):
    """The input of a train step: one text a sentence or, where a method asks for them, several views."""

    tokens: Int[Array, "batch *views tokens"]  # int32
    mask: Bool[Array, "batch *views tokens"]
    label: Float[Array, " batch"] | None = None  # float32: a class number or a gold score; None without labels
    row: Int[Array, " batch"] | None = None  # int32: the row of the sentence in the corpus, modulo ROW_NUMBERS; None if unknown
    place: Any = None  # int32 [batch]: places of the sentences in the whole batch; None for a whole batch

    @property
    def rows(self) -> Rows:
        """All texts, sentence-major: [rows, tokens]."""
        return Rows(self.tokens.reshape(-1, self.tokens.shape[-1]), self.mask.reshape(-1, self.mask.shape[-1]))


class TrainState(NamedTuple):
    """Everything a run needs to continue, and nothing else. A field that a method does not use is None."""

    params: Params  # written by the optimiser only
    ema_params: Params  # written by method.post_update only; may be a sub-tree of params
    queue: Float[Array, "queue embedding"] | None  # float32, newest row first; written by method.post_update only
    opt_state: Any  # a pytree of optax
    rng: UInt[Array, " key"]  # uint32 data of the key of the whole run, never advanced: a step folds its number in
    step: Int[Array, ""]  # int32, the only clock
    queue_rows: Int[Array, " queue"] | None = None  # int32: Batch.row of the sentences in the queue; written by post_update only
