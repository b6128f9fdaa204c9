"""The order of the rows in an epoch, from their lengths: a pure function of (lengths, seed, batch size) and the step."""

from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.shuffle import permuted

# Up to this number of examples (of ordered examples: of batches), the order of an epoch is drawn as a whole, with 8 bytes for each.
# Above, it is computed group by group, which gives another order. The limit must not change: results published for small corpora
# depend on it.
WHOLE = 1 << 22


class EpochOrder:
    """Which rows are in which batch, in another order each epoch.

    The random order of an epoch is cut into groups of `grouping` batches. Inside a group, rows are sorted by length, cut into
    batches, and the batches are shuffled. With a grouping of 1, the random order is cut into batches without sorting. Of `ordered`
    rows a batch is consecutive ones, and only whole batches are permuted. The last incomplete batch of an epoch is left out.
    """

    def __init__(
        self, lengths: Any, batch_size: int, seed: int, grouping: int, ordered: bool = False, whole: int | None = None
    ) -> None:
        """`lengths` of the rows: an array, or one that is computed on access. `whole`: a limit in the place of WHOLE."""
        self.lengths, self.batch_size, self.seed, self.grouping, self.ordered = lengths, batch_size, seed, grouping, ordered
        self.steps_per_epoch = len(lengths) // batch_size
        self.alike = ordered or grouping > 1  # whether the rows of a batch are consecutive, or about equally long
        self._whole = WHOLE if whole is None else whole
        self._places = self.steps_per_epoch if ordered else len(lengths)  # number of items that are permuted
        self._group = lru_cache(maxsize=2)(self._group_order)
        self._order = lru_cache(maxsize=1)(self._epoch_order)

    def rows(self, step: int) -> Int[np.ndarray, " batch"]:
        """Row numbers of a batch, int64."""
        epoch, place = divmod(step, self.steps_per_epoch)
        group, place = divmod(place, self.grouping)
        return self._group(epoch, group)[place * self.batch_size : (place + 1) * self.batch_size]

    def _group_order(self, epoch: int, group: int) -> np.ndarray:
        """Row numbers of a group of batches, fewer at the end of the epoch."""
        batches = np.arange(group * self.grouping, min((group + 1) * self.grouping, self.steps_per_epoch))
        places = self._rows_of(batches)
        if self._places <= self._whole:
            return self._order(epoch)[places]
        if self.ordered:
            return self._rows_of(permuted(batches, self._places, (self.seed, epoch)))
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch], counter=[0, 0, 0, group + 1]))
        return self._by_length(permuted(places, self._places, (self.seed, epoch)), random)

    def _epoch_order(self, epoch: int) -> np.ndarray:
        # Philox is counter-based: (seed, epoch) is its key, and it gives the same numbers on every platform.
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        order = random.permutation(self._places)
        if self.ordered:
            return self._rows_of(order)
        order = order[: self.steps_per_epoch * self.batch_size]
        group = self.grouping * self.batch_size
        for start in range(0, len(order), group):
            order[start : start + group] = self._by_length(order[start : start + group], random)
        return order

    def _rows_of(self, batches: np.ndarray) -> np.ndarray:
        return (batches[:, None] * self.batch_size + np.arange(self.batch_size)).reshape(-1)

    def _by_length(self, rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The rows of a group, sorted by length and cut into batches, which are shuffled; unchanged for a grouping of 1."""
        if self.grouping == 1:
            return rows
        batches = rows[np.argsort(self.lengths[rows], kind="stable")].reshape(-1, self.batch_size)
        return batches[random.permutation(len(batches))].reshape(-1)
