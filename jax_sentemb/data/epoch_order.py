"""Compute the order of the rows in an epoch: a pure function of their lengths, the seed, the batch size and the step."""

from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.shuffle import permuted

# Up to this number of examples (or of batches, if the examples are ordered), the order of an epoch is drawn as a whole, with 8
# bytes for each. For more, it is computed group by group, which gives another order. The limit must not change, because results
# published for small corpora depend on it.
WHOLE = 1 << 22


class EpochOrder:
    """The rows of each batch, in a different order in each epoch.

    The random order of an epoch is cut into groups of `grouping` batches. Inside a group, rows are sorted by length and cut into
    batches, which are shuffled. With a grouping of 1, the random order is cut into batches without sorting. A batch of `ordered`
    rows has consecutive rows, and only the order of the batches is random. The last incomplete batch of an epoch is left out.
    """

    def __init__(
        self, lengths: Any, batch_size: int, seed: int, grouping: int, ordered: bool = False, whole: int | None = None
    ) -> None:
        """Define the order.

        Args:
            lengths: The lengths of the rows: an array, or one that is computed on access.
            batch_size: The number of rows of a batch.
            seed: The seed of the order.
            grouping: The number of batches whose rows are sorted by length together.
            ordered: Whether a batch is consecutive rows.
            whole: A limit instead of WHOLE.
        """
        self.lengths, self.batch_size, self.seed, self.grouping, self.ordered = lengths, batch_size, seed, grouping, ordered
        self.steps_per_epoch = len(lengths) // batch_size
        self.is_uniform = ordered or grouping > 1  # whether the rows of a batch are consecutive, or about equally long
        self._whole = WHOLE if whole is None else whole
        self._count = self.steps_per_epoch if ordered else len(lengths)  # number of items that are permuted
        self._group = lru_cache(maxsize=2)(self._group_order)
        self._order = lru_cache(maxsize=1)(self._epoch_order)

    def rows(self, step: int) -> Int[np.ndarray, " batch"]:
        """Return the row numbers of a batch, int64."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        group, batch = divmod(batch, self.grouping)
        return self._group(epoch, group)[batch * self.batch_size : (batch + 1) * self.batch_size]

    def _group_order(self, epoch: int, group: int) -> np.ndarray:
        """Return the row numbers of a group of batches. The last group of an epoch may be smaller."""
        batches = np.arange(group * self.grouping, min((group + 1) * self.grouping, self.steps_per_epoch))
        positions = self._rows_of(batches)
        if self._count <= self._whole:
            return self._order(epoch)[positions]
        if self.ordered:
            return self._rows_of(permuted(batches, self._count, (self.seed, epoch)))
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch], counter=[0, 0, 0, group + 1]))
        return self._by_length(permuted(positions, self._count, (self.seed, epoch)), random)

    def _epoch_order(self, epoch: int) -> np.ndarray:
        # Philox is counter-based: (seed, epoch) is its key, and it gives the same numbers on every platform.
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        order = random.permutation(self._count)
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
        """Sort the rows of a group by length and shuffle its batches. A grouping of 1 changes nothing."""
        if self.grouping == 1:
            return rows
        batches = rows[np.argsort(self.lengths[rows], kind="stable")].reshape(-1, self.batch_size)
        return batches[random.permutation(len(batches))].reshape(-1)
