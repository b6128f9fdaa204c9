"""A corpus of which each process of a run has a part on its own disk: what every process knows of all parts."""

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
OF_ROWS = ("mean_tokens", "median_tokens", "p95_tokens", "max_seq_length")  # entries of a report that are not sums over rows


class Part:
    """The rows of this process as examples, and the lengths of the rows of all processes, in a byte or two for each.

    `report` and `fingerprint` are those of all parts together. ConfigError for rows whose batches are consecutive sentences.
    """

    def __init__(self, own: Examples, number: int, gather: Gather) -> None:
        """`number` is this process's among those whose arrays `gather` returns; every process of the run calls this."""
        if getattr(own, "ordered", False):
            raise ConfigError(
                Setting("data.files"),
                " has {process}, but its batches are consecutive sentences with this method: give each process all text",
            )
        self._own, self.number = own, number
        self.line, self.lengths, self.pad_id, self.max_seq_length = own.line, own.lengths, own.pad_id, own.max_seq_length
        self.all_lengths = _gathered(own, gather)
        self.total = sum(map(len, self.all_lengths))  # rows of all processes
        digests = gather(np.frombuffer(hashlib.sha256(own.fingerprint.encode()).digest(), np.uint8))
        self.fingerprint = hashlib.sha256(np.asarray(digests, np.uint8).tobytes()).hexdigest()
        self.report = self._report(gather)

    def __len__(self) -> int:
        return len(self._own)

    def texts(self, rows: Int[np.ndarray, " rows"], epoch: int) -> list[list[Int[np.ndarray, " _"]]]:
        """The texts of rows of this process."""
        return self._own.texts(rows, epoch)

    def labels(self, rows: Int[np.ndarray, " rows"], epoch: int) -> Float[np.ndarray, "rows ..."] | None:
        """The labels of rows of this process."""
        return self._own.labels(rows, epoch)

    def _report(self, gather: Gather) -> dict[str, Any]:
        own = self._own.report
        counts = [name for name, value in own.items() if isinstance(value, int) and name not in OF_ROWS]
        sums = gather(np.array([own[name] for name in counts], np.int32)).astype(np.int64).sum(axis=0)
        histogram = sum(np.bincount(lengths, minlength=self.max_seq_length + 1) for lengths in self.all_lengths)
        return {**own, **dict(zip(counts, sums.tolist(), strict=True)), **length_report(np.asarray(histogram))}


def _gathered(own: Examples, gather: Gather) -> list[np.ndarray]:
    """The lengths of the rows of each process."""
    kind = np.min_scalar_type(own.max_seq_length)
    sizes = gather(np.array([len(own)], np.int32))[:, 0].tolist()
    found = [np.empty(size, kind) for size in sizes]
    for start in range(0, max(sizes), CHUNK):
        sent = np.zeros(min(CHUNK, max(sizes) - start), kind)
        mine = np.asarray(own.lengths[np.arange(start, min(start + CHUNK, len(own)))]) if start < len(own) else sent[:0]
        sent[: len(mine)] = mine
        for lengths, received in zip(found, gather(sent), strict=True):
            some = lengths[start : start + CHUNK]
            some[:] = received[: len(some)]
    return found
