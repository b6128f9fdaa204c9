"""Divide a corpus among the processes of a run: each has one part on its own disk, and knows the lengths of all parts."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jax_sentemb.data.examples import Examples
from jax_sentemb.data.tokens import length_report
from jax_sentemb.errors import ConfigError, Setting

Gather = Callable[[np.ndarray], np.ndarray]  # equally shaped arrays of all processes -> [processes, ...]

CHUNK = 1 << 20  # lengths that each process sends at once
NOT_SUMS = ("mean_tokens", "median_tokens", "p95_tokens", "max_seq_length")  # entries of a report that are not sums over rows


class Part:
    """The rows of this process as examples, and the lengths of the rows of all processes, in one or two bytes each.

    `report` and `fingerprint` describe all parts together.
    """

    def __init__(self, examples: Examples, number: int, gather: Gather) -> None:
        """Exchange the lengths with the other processes. Every process of the run must call this.

        Args:
            examples: The rows of this process.
            number: The number of this process among those whose arrays `gather` returns.
            gather: Returns the arrays of all processes.

        Raises:
            ConfigError: Batches of these rows are consecutive sentences.
        """
        if getattr(examples, "ordered", False):
            raise ConfigError(
                Setting("data.files"),
                " has {process}, but its batches are consecutive sentences with this method: give each process all text",
            )
        self._examples, self.number = examples, number
        self.line, self.lengths, self.pad_id = examples.line, examples.lengths, examples.pad_id
        self.max_seq_length = examples.max_seq_length
        self.all_lengths = _gather_lengths(examples, gather)
        self.total = sum(map(len, self.all_lengths))  # rows of all processes
        digests = gather(np.frombuffer(hashlib.sha256(examples.fingerprint.encode()).digest(), np.uint8))
        self.fingerprint = hashlib.sha256(np.asarray(digests, np.uint8).tobytes()).hexdigest()
        self.report = self._report(gather)

    def __len__(self) -> int:
        return len(self._examples)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """Return the texts of rows of this process."""
        return self._examples.texts(rows, epoch)

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Float[np.ndarray, "rows ..."] | None:
        """Return the labels of rows of this process."""
        return self._examples.labels(rows, epoch)

    def _report(self, gather: Gather) -> dict[str, Any]:
        report = self._examples.report
        counts = [name for name, value in report.items() if isinstance(value, int) and name not in NOT_SUMS]
        sums = gather(np.array([report[name] for name in counts], np.int32)).astype(np.int64).sum(axis=0)
        histogram = sum(np.bincount(lengths, minlength=self.max_seq_length + 1) for lengths in self.all_lengths)
        return {**report, **dict(zip(counts, sums.tolist(), strict=True)), **length_report(np.asarray(histogram))}


def _gather_lengths(examples: Examples, gather: Gather) -> list[np.ndarray]:
    """Return the lengths of the rows of each process."""
    dtype, count = np.min_scalar_type(examples.max_seq_length), len(examples)
    sizes = gather(np.array([count], np.int32))[:, 0].tolist()
    all_lengths = [np.empty(size, dtype) for size in sizes]
    for start in range(0, max(sizes), CHUNK):
        sent = np.zeros(min(CHUNK, max(sizes) - start), dtype)
        local = np.asarray(examples.lengths[np.arange(start, min(start + CHUNK, count))]) if start < count else sent[:0]
        sent[: len(local)] = local
        for lengths, received in zip(all_lengths, gather(sent), strict=True):
            chunk = lengths[start : start + CHUNK]
            chunk[:] = received[: len(chunk)]
    return all_lengths
