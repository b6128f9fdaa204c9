"""Batches of a run. The sentences of batch number `step` are a pure function of (examples, seed, step, batch size)."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.cache import check_mapped
from jax_sentemb.data.examples import Examples, RoundRobin
from jax_sentemb.data.shuffle import permuted
from jax_sentemb.data.tokens import pad
from jax_sentemb.errors import DataError
from jax_sentemb.types import ROW_NUMBERS, Batch

BUCKETS = (16, 24, 32, 48, 64, 96, 128, 256, 512)  # widths in tokens for which the step is compiled
GROUP = 32  # default number of batches whose sentences are sorted by length together
# Up to this number of examples (of ordered examples: of batches), the order of an epoch is drawn as a whole, with 8 bytes for each.
# Above, it is computed group by group, which gives another order. The limit must not change: results published for small corpora
# depend on it.
WHOLE = 1 << 22


class Batches:
    """Batches of distinct sentences, in another order each epoch, with few different widths.

    The random order of an epoch is cut into groups of `grouping` batches. Inside a group, sentences are sorted by length, cut into
    batches, and the batches are shuffled. With a grouping of 1, the random order is cut into batches without sorting. A batch is as
    wide as the smallest bucket that holds its longest sentence. The last incomplete batch of an epoch is left out.
    """

    def __init__(
        self, tokens: Examples, batch_size: int, seed: int, grouping: int = GROUP, buckets: Sequence[int] | None = None
    ) -> None:
        if len(tokens) < batch_size:
            counts = ", ".join(
                f"{tokens.report[name]} {name}" for name in ("lines", "blank", "duplicates") if name in tokens.report
            )
            raise DataError(
                f"the corpus has {len(tokens)} usable examples{f' ({counts})' if counts else ''}, fewer than "
                f"data.batch_size={batch_size}: lower it, or add text"
            )
        self.tokens, self.batch_size, self.seed, self._grouping = tokens, batch_size, seed, grouping
        self.buckets = (
            *(width for width in sorted(BUCKETS if buckets is None else buckets) if width < tokens.max_seq_length),
            tokens.max_seq_length,
        )
        self.steps_per_epoch = len(tokens) // batch_size
        self._ordered = getattr(tokens, "ordered", False)  # a batch is consecutive sentences: only whole batches are permuted
        self._places = self.steps_per_epoch if self._ordered else len(tokens)  # number of items that are permuted
        self._group = lru_cache(maxsize=2)(self._group_order)
        self._order = lru_cache(maxsize=1)(self._epoch_order)

    def rows(self, step: int) -> Int[np.ndarray, " batch"]:
        """Row numbers of the global batch, int64; DataError if a file of the cache has shrunk."""
        check_mapped()
        epoch, place = divmod(step, self.steps_per_epoch)
        group, place = divmod(place, self._grouping)
        return self._group(epoch, group)[place * self.batch_size : (place + 1) * self.batch_size]

    def lines(self, step: int) -> Int[np.ndarray, " batch"]:
        """Corpus line numbers of the global batch, int64, for error reports."""
        return self.tokens.line[self.rows(step)]

    def at(self, step: int, process_index: int = 0, process_count: int = 1) -> Batch:
        """The part of one process of batch `step`, as wide as the global batch; NumPy arrays.

        It is a pure function of (examples, seed, step, batch_size).
        """
        rows = self.rows(step)
        share = slice(*(self.batch_size * index // process_count for index in (process_index, process_index + 1)))
        return self._padded(step, rows[share], self._width(rows))

    def parts(self, step: int, process_index: int = 0, process_count: int = 1, unit: int = 1) -> tuple[Batch, ...]:
        """The same sentences with less padding: the whole batch or, in random order, its shorter and its longer sentences.

        Each part is as wide as its own longest sentence needs. `place` has the positions of its sentences in the batch, so a loss
        sees the same sentences in the same order. The batch is split at the quarter that leaves the least padding, so that few
        shapes are compiled. The sizes of the parts are multiples of `unit`.
        """
        rows = self.rows(step)
        places = np.argsort(self.tokens.lengths[rows], kind="stable")
        width, size = self._width(rows), self.batch_size
        cuts = {quarter * size // 4 // unit * unit for quarter in (1, 2, 3)} - {0}
        room = {cut: cut * self._width(rows[places[:cut]]) + (size - cut) * width for cut in sorted(cuts)}
        if self._ordered or self._grouping > 1 or min(room.values(), default=size * width) == size * width:
            return (self.at(step, process_index, process_count),)
        cut = min(room, key=lambda cut: room[cut])

        def part(some: np.ndarray) -> Batch:
            share = slice(*(len(some) * index // process_count for index in (process_index, process_index + 1)))
            return self._padded(step, rows[some[share]], self._width(rows[some]))._replace(place=some[share].astype(np.int32))

        return part(places[:cut]), part(places[cut:])

    def _width(self, rows: np.ndarray) -> int:
        return bucket(int(self.tokens.lengths[rows].max()), self.buckets)

    def _padded(self, step: int, rows: np.ndarray, width: int) -> Batch:
        epoch = step // self.steps_per_epoch
        texts = self.tokens.texts(rows, epoch)
        padded = [pad(ids, width, self.tokens.pad_id) for ids in texts]
        tokens, mask = (np.stack(side, axis=1) if len(texts) > 1 else side[0] for side in zip(*padded, strict=True))
        return Batch(tokens, mask, self.tokens.labels(rows, epoch), (rows % ROW_NUMBERS).astype(np.int32))

    def _group_order(self, epoch: int, group: int) -> np.ndarray:
        """Row numbers of a group of batches, fewer at the end of the epoch."""
        batches = np.arange(group * self._grouping, min((group + 1) * self._grouping, self.steps_per_epoch))
        places = self._rows_of(batches)
        if self._places <= WHOLE:
            return self._order(epoch)[places]
        if self._ordered:
            return self._rows_of(permuted(batches, self._places, (self.seed, epoch)))
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch], counter=[0, 0, 0, group + 1]))
        return self._by_length(permuted(places, self._places, (self.seed, epoch)), random)

    def _epoch_order(self, epoch: int) -> np.ndarray:
        # Philox is counter-based: (seed, epoch) is its key, and it gives the same numbers on every platform.
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        order = random.permutation(self._places)
        if self._ordered:
            return self._rows_of(order)
        order = order[: self.steps_per_epoch * self.batch_size]
        group = self._grouping * self.batch_size
        for start in range(0, len(order), group):
            order[start : start + group] = self._by_length(order[start : start + group], random)
        return order

    def _rows_of(self, batches: np.ndarray) -> np.ndarray:
        return (batches[:, None] * self.batch_size + np.arange(self.batch_size)).reshape(-1)

    def _by_length(self, rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The rows of a group, sorted by length and cut into batches, which are shuffled; unchanged for a grouping of 1."""
        if self._grouping == 1:
            return rows
        batches = rows[np.argsort(self.tokens.lengths[rows], kind="stable")].reshape(-1, self.batch_size)
        return batches[random.permutation(len(batches))].reshape(-1)


class RoundRobinBatches:
    """Batches of several kinds of examples, one of each kind in turn. An epoch has as many of each as the smallest kind has."""

    def __init__(self, parts: Sequence[Batches]) -> None:
        self._parts = parts
        self.steps_per_epoch = len(parts) * min(part.steps_per_epoch for part in parts)

    def at(self, step: int, process_index: int = 0, process_count: int = 1) -> Batch:
        """Same as `Batches.at`."""
        number, part = divmod(step, len(self._parts))
        return self._parts[part].at(number, process_index, process_count)

    def parts(self, step: int, process_index: int = 0, process_count: int = 1, unit: int = 1) -> tuple[Batch, ...]:
        """Same as `Batches.parts`."""
        number, part = divmod(step, len(self._parts))
        return self._parts[part].parts(number, process_index, process_count, unit)

    def lines(self, step: int) -> Int[np.ndarray, " batch"]:
        """Same as `Batches.lines`."""
        number, part = divmod(step, len(self._parts))
        return self._parts[part].lines(number)


def make_batches(examples: Examples, batch_size: int, seed: int, grouping: int = GROUP) -> Batches | RoundRobinBatches:
    """The batches of a run. With several kinds of examples in turn, each kind has its own order."""
    if isinstance(examples, RoundRobin):
        return RoundRobinBatches([Batches(part, batch_size, seed + number, grouping) for number, part in enumerate(examples.parts)])
    return Batches(examples, batch_size, seed, grouping)


def after_skips(step: int, skipped: Sequence[int]) -> int:
    """The number of the batch of a step if the batches `skipped` (in rising order) are left out."""
    for batch in skipped:
        step += batch <= step
    return step


def bucket(length: int, buckets: Sequence[int]) -> int:
    """The smallest of the widths that holds `length`."""
    return min(width for width in buckets if width >= length)
