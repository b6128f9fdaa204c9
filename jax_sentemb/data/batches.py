"""Make the batches of a run. The sentences of batch number `step` are a pure function of (examples, seed, step, batch size)."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.cache import check_maps
from jax_sentemb.data.divided import Part
from jax_sentemb.data.epoch_order import EpochOrder
from jax_sentemb.data.examples import Examples, RoundRobin, counts_of_text
from jax_sentemb.data.tokens import pad
from jax_sentemb.errors import DataError, Setting
from jax_sentemb.types import ROW_NUMBERS, Batch

BUCKETS = (16, 24, 32, 48, 64, 96, 128, 256, 512)  # widths in tokens for which the step is compiled
FIRST = 32  # steps in which rare widths are not used, so that a short run compiles few programs
COMPILATION = 1 << 13  # tokens of sentences that a step computes in the time of its compilation: 6,000 (MiniLM) to 14,000 on a CPU
GROUP = 32  # default number of batches whose sentences are sorted by length together


class _Widths:
    """Choose the widths of whole batches. The FIRST batches of uniform ones have only widths that are worth a program."""

    def __init__(self, longest: Callable[[int], int], batch_size: int, buckets: Sequence[int], is_uniform: bool) -> None:
        """`longest` returns the number of tokens of the longest sentence of a batch."""
        self._longest, self._batch_size, self._buckets, self._is_uniform = longest, batch_size, buckets, is_uniform

    def of(self, step: int, longest: int) -> int:
        """Return the width of batch `step`, whose longest sentence has `longest` tokens."""
        return bucket(longest, self._first if step < FIRST and self._is_uniform else self._buckets)

    @functools.cached_property
    def _first(self) -> tuple[int, ...]:
        return first_widths(list(map(self._longest, range(FIRST))), self._batch_size, self._buckets)


class Batches:
    """Batches of distinct sentences in the order of `EpochOrder`, with few different widths.

    A batch is as wide as the smallest bucket that holds its longest sentence. The FIRST batches use only some of the buckets.
    """

    def __init__(
        self, tokens: Examples, batch_size: int, seed: int, grouping: int = GROUP, buckets: Sequence[int] | None = None
    ) -> None:
        if len(tokens) < batch_size:
            report = {name: tokens.report[name] for name in ("lines", "blank", "duplicates") if name in tokens.report}
            counts, plural = ", ".join(counts_of_text(report)), "s" if len(tokens) != 1 else ""
            raise DataError(
                f"the corpus has {len(tokens)} usable example{plural}{(f' ({counts})' if counts else '')}, fewer than ",
                Setting("data.batch_size", batch_size),
                ": lower it, or add text",
            )
        self.tokens, self.batch_size, self.buckets = tokens, batch_size, buckets_of(tokens, buckets)
        self._order = EpochOrder(tokens.lengths, batch_size, seed, grouping, getattr(tokens, "ordered", False))
        self.steps_per_epoch = self._order.steps_per_epoch
        self._widths = _Widths(self._longest, batch_size, self.buckets, self._order.is_uniform)

    def rows(self, step: int) -> Int[np.ndarray, " batch"]:
        """Return the row numbers of the global batch, int64; raise DataError if a file of the cache has shrunk."""
        check_maps()
        return self._order.rows(step)

    def lines(self, step: int) -> Int[np.ndarray, " batch"]:
        """Return the corpus line numbers of the global batch, int64, for error reports."""
        return self.tokens.line[self.rows(step)]

    def at(self, step: int, process_index: int = 0, process_count: int = 1) -> Batch:
        """Return the part of one process of batch `step`, as wide as the global batch, as NumPy arrays."""
        rows = self.rows(step)
        process_rows = slice(*(self.batch_size * index // process_count for index in (process_index, process_index + 1)))
        return self._padded(step, rows[process_rows], self._widths.of(step, int(self.tokens.lengths[rows].max())))

    def parts(self, step: int, process_index: int = 0, process_count: int = 1, unit: int = 1) -> tuple[Batch, ...]:
        """Return the same sentences with less padding.

        A batch in random order is divided into its shorter and its longer sentences if that saves padding. Others are one part.
        Each part is only as wide as its longest sentence needs. `position` has the positions of its sentences in the batch, so a
        loss sees the same sentences in the same order. The sizes of the parts are multiples of `unit`.
        """
        if self._order.is_uniform:
            return (self.at(step, process_index, process_count),)
        rows = self.rows(step)
        lengths = self.tokens.lengths[rows]
        positions = np.argsort(lengths, kind="stable")
        cut = cheapest_cut(lengths[positions], unit, self.buckets)
        if not cut:
            return (self.at(step, process_index, process_count),)

        def part(selected: np.ndarray) -> Batch:
            share = slice(*(len(selected) * index // process_count for index in (process_index, process_index + 1)))
            width = bucket(int(lengths[selected[-1]]), self.buckets)
            return self._padded(step, rows[selected[share]], width)._replace(position=selected[share].astype(np.int32))

        return part(positions[:cut]), part(positions[cut:])

    def _longest(self, step: int) -> int:
        return int(self.tokens.lengths[self.rows(step)].max())

    def _padded(self, step: int, rows: np.ndarray, width: int) -> Batch:
        return padded(self.tokens, rows, step // self.steps_per_epoch, width)._replace(row=(rows % ROW_NUMBERS).astype(np.int32))


class DividedBatches:
    """Batches of a corpus that is divided among the processes. Each part gives an equal share of each batch.

    All processes know the lengths of all rows, so they pad a batch to the same width. An epoch ends with the rows of the smallest
    part. In each epoch, other rows of the larger parts are left out.
    """

    def __init__(self, part: Part, batch_size: int, seed: int, grouping: int = GROUP) -> None:
        self._part, self._count = part, len(part.all_lengths)
        if batch_size % self._count:
            raise DataError(Setting("data.batch_size", batch_size), f" is not a multiple of the {self._count} parts of the corpus")
        self._share, self._buckets = batch_size // self._count, buckets_of(part)
        smallest = min(map(len, part.all_lengths))
        if smallest < self._share:
            numbers = ", ".join(str(len(lengths)) for lengths in part.all_lengths)
            raise DataError(
                f"the parts of the corpus have {numbers} usable examples, and each process gives {self._share} to a batch: lower ",
                Setting("data.batch_size"),
                ", or divide the text evenly",
            )
        # With one seed, the sorted batches of all parts are shuffled equally, so that those of a step are about equally long.
        self._orders = [EpochOrder(lengths, self._share, seed, grouping, whole=0) for lengths in part.all_lengths]
        self.steps_per_epoch = smallest // self._share
        for order in self._orders:
            order.steps_per_epoch = self.steps_per_epoch
        self._widths = _Widths(self._longest, batch_size, self._buckets, self._orders[0].is_uniform)

    def lines(self, step: int) -> Int[np.ndarray, " share"]:
        """Return the line numbers of this process's share in its part, int64, for error reports."""
        return self._part.line[self._own_rows(step)]

    def at(self, step: int, process_index: int = 0, process_count: int = 1) -> Batch:
        """Return the share of this process of batch `step`, as wide as the global batch. Arguments after `step` are ignored."""
        return self._padded(step, self._own_rows(step), self._widths.of(step, self._longest(step)))

    def parts(self, step: int, process_index: int = 0, process_count: int = 1, unit: int = 1) -> tuple[Batch, ...]:
        """Return parts as `Batches.parts` does. This process has share number `process_index` of the global batch."""
        if self._orders[0].is_uniform:
            return (self.at(step),)
        lengths = np.sort(self._lengths(step), axis=1).max(axis=0)  # the largest k-th shortest length of all shares
        cut = cheapest_cut(lengths, unit // self._count, self._buckets)
        if not cut:
            return (self.at(step),)
        rows = self._own_rows(step)
        order = np.argsort(self._part.lengths[rows], kind="stable")

        def part(selected: np.ndarray, longest: int) -> Batch:
            position = process_index * self._share + selected
            return self._padded(step, rows[selected], bucket(longest, self._buckets))._replace(position=position.astype(np.int32))

        return part(order[:cut], int(lengths[cut - 1])), part(order[cut:], int(lengths[-1]))

    def _longest(self, step: int) -> int:
        return int(self._lengths(step).max())

    def _own_rows(self, step: int) -> np.ndarray:
        check_maps()
        return self._orders[self._part.number].rows(step)

    def _lengths(self, step: int) -> np.ndarray:
        """Return the lengths of a batch [parts, share]."""
        return np.stack([order.lengths[order.rows(step)] for order in self._orders]).astype(np.int32)

    def _padded(self, step: int, rows: np.ndarray, width: int) -> Batch:
        numbers = rows * self._count + self._part.number  # differ from those of the other parts
        batch = padded(self._part, rows, step // self.steps_per_epoch, width)
        return batch._replace(row=(numbers % ROW_NUMBERS).astype(np.int32))


class RoundRobinBatches:
    """Batches of several types of examples, one of each type in turn. An epoch has as many of each as the smallest type has."""

    def __init__(self, parts: Sequence[Batches]) -> None:
        self._parts = parts
        self.steps_per_epoch = len(parts) * min(part.steps_per_epoch for part in parts)

    def at(self, step: int, process_index: int = 0, process_count: int = 1) -> Batch:
        """Return a batch as `Batches.at` does."""
        number, part = divmod(step, len(self._parts))
        return self._parts[part].at(number, process_index, process_count)

    def parts(self, step: int, process_index: int = 0, process_count: int = 1, unit: int = 1) -> tuple[Batch, ...]:
        """Return parts as `Batches.parts` does."""
        number, part = divmod(step, len(self._parts))
        return self._parts[part].parts(number, process_index, process_count, unit)

    def lines(self, step: int) -> Int[np.ndarray, " batch"]:
        """Return line numbers as `Batches.lines` does."""
        number, part = divmod(step, len(self._parts))
        return self._parts[part].lines(number)


AnyBatches = Batches | DividedBatches | RoundRobinBatches


def make_batches(examples: Examples, batch_size: int, seed: int, grouping: int = GROUP) -> AnyBatches:
    """Return the batches of a run. If several types of examples take turns, each type has its own order."""
    if isinstance(examples, RoundRobin):
        return RoundRobinBatches([Batches(part, batch_size, seed + number, grouping) for number, part in enumerate(examples.parts)])
    if isinstance(examples, Part):
        return DividedBatches(examples, batch_size, seed, grouping)
    return Batches(examples, batch_size, seed, grouping)


def after_skips(step: int, skipped: Sequence[int]) -> int:
    """Return the number of the batch of a step if the batches `skipped` (in ascending order) are left out."""
    for batch in skipped:
        step += batch <= step
    return step


def bucket(length: int, buckets: Sequence[int]) -> int:
    """Return the smallest of the widths that holds `length`."""
    return min(width for width in buckets if width >= length)


def buckets_of(examples: Examples, buckets: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the widths of batches: those of `buckets` (default: BUCKETS) below the maximum length, and the maximum length."""
    shorter = (width for width in sorted(BUCKETS if buckets is None else buckets) if width < examples.max_seq_length)
    return (*shorter, examples.max_seq_length)


def common_widths(rows: Mapping[int, int], cost: int) -> tuple[int, ...]:
    """Return the widths that are worth a program, in ascending order; the largest is always one of them.

    Args:
        rows: The number of rows of each width.
        cost: The number of tokens that are computed in the time of a compilation. If padding the rows of a width to the next one
            computes no more tokens than this, the width is left out.
    """
    common, padded_rows = [], 0
    for width, wider in pairwise(sorted(rows)):
        padded_rows += rows[width]
        if padded_rows * (wider - width) > cost:
            common.append(width)
            padded_rows = 0
    return (*common, max(rows))


def first_widths(longest: Sequence[int], batch_size: int, buckets: Sequence[int]) -> tuple[int, ...]:
    """Return the widths for batches whose longest sentences have these lengths, without those that are not worth a program."""
    batches = Counter(bucket(length, buckets) for length in longest)
    return common_widths({width: count * batch_size for width, count in batches.items()}, COMPILATION)


def cheapest_cut(lengths: Int[np.ndarray, " batch"], unit: int, buckets: Sequence[int]) -> int:
    """Return how many of the shortest sentences to pad separately, a multiple of `unit`; 0 if that saves nothing.

    `lengths` are ascending. Only quarters of the batch are considered, so that few shapes are compiled.
    """
    size, widest = len(lengths), bucket(int(lengths[-1]), buckets)
    cuts = {quarter * size // 4 // unit * unit for quarter in (1, 2, 3)} - {0}
    tokens = {cut: cut * bucket(int(lengths[cut - 1]), buckets) + (size - cut) * widest for cut in sorted(cuts)}
    best = min(tokens, key=lambda cut: tokens[cut], default=0)
    return best if best and tokens[best] < size * widest else 0


def padded(examples: Examples, rows: Int[np.ndarray, " rows"], epoch: int, width: int) -> Batch:
    """Return the texts and labels of rows, padded to `width`, as NumPy arrays."""
    texts = examples.texts(rows, epoch)
    views = [pad(ids, width, examples.pad_id) for ids in texts]
    tokens, mask = (np.stack(side, axis=1) if len(texts) > 1 else side[0] for side in zip(*views, strict=True))
    return Batch(tokens, mask, examples.labels(rows, epoch))
