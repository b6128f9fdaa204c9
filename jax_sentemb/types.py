"""The arrays that travel between the parts, and the one legend for their axes.

B sentences · V views of a sentence · R = B * V rows (sentence-major) · T tokens · D model width · H heads · L layers ·
E embedding width · K queue rows · M sampled attention positions.
"""

from typing import Any, NamedTuple

Array = Any  # jax.Array on the device, np.ndarray on the host: every function takes both
Params = Any  # a nested dict of arrays


# Row numbers are kept modulo this: such numbers are exact in float32 (what a method encodes is differentiated, so it is float), and
# a corpus may have more than 2^31 rows. Of a larger corpus two rows that are a multiple apart count as one sentence, so a sentence
# loses one negative in 16.7 million; the same sentence is never taken for two.
ROW_NUMBERS = 1 << 24


class Rows(NamedTuple):
    """Token rows as an encoder takes them: right-padded, `mask` is True on real tokens (specials included)."""

    tokens: Any  # int32 [R, T], NumPy on the host, jax.Array on the device
    mask: Any  # bool [R, T]


class Batch(NamedTuple):
    """What a step reads: one text a sentence or, where a method asks for them, V."""

    tokens: Any  # int32 [B, T] or [B, V, T]
    mask: Any  # bool, the same shape
    label: Any = None  # float32 [B]: a class number or a gold score; None without labels
    row: Any = None  # int32 [B]: which sentence of the corpus this is, modulo ROW_NUMBERS; None where it is not known
    place: Any = None  # int32 [B]: of a part of a batch, the places of its sentences in the batch; None for a whole batch

    @property
    def rows(self) -> Rows:
        """All texts, sentence-major: [R, T]."""
        return Rows(*(values.reshape(-1, values.shape[-1]) for values in (self.tokens, self.mask)))


class TrainState(NamedTuple):
    """Everything a run needs to continue, and nothing else. A field that a method does not use is None."""

    params: Params  # written by the optimiser only
    ema_params: Params  # written by method.post_update only; may be a sub-tree of params
    queue: Array | None  # float32 [K, E], newest row first; written by method.post_update only
    opt_state: Any
    rng: Array  # the key of the whole run, never advanced: a step folds its number in
    step: Array  # int32 [], the only clock
    queue_rows: Array | None = None  # int32 [K]: Batch.row of the sentences in the queue; written by method.post_update only
