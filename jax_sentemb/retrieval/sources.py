"""Read vectors block by block: arrays, lists and tensors in memory, and sources on disk."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Real, Shaped

from jax_sentemb.checks import array
from jax_sentemb.cosines import with_usual_lengths
from jax_sentemb.errors import ConfigError, NumericsError
from jax_sentemb.types import Array


@runtime_checkable
class VectorSource(Protocol):
    """Vectors [N, E] of any number type: an array, or `jax_sentemb.Vectors` on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape [N, E]."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Real[np.ndarray, "rows width"]: ...


@runtime_checkable
class HasEmptyRows(VectorSource, Protocol):
    """Vectors of which some rows stand for empty texts. Such rows are zero, and searches skip them."""

    @property
    def empty_rows(self) -> Int[np.ndarray, " n"]:
        """Return the numbers of the rows of empty texts, ascending."""
        ...


class WithEmptyRows:
    """Vectors with the numbers of the rows that stand for empty texts."""

    def __init__(self, vectors: VectorSource, empty_rows: Int[np.ndarray, " n"]) -> None:
        self._vectors, self.empty_rows, self.shape = vectors, empty_rows, vectors.shape

    def __len__(self) -> int:
        return len(self._vectors)

    def __getitem__(self, rows: slice) -> Real[np.ndarray, "n width"]:
        return self._vectors[rows]

    def take(self, rows: Int[np.ndarray, " n"]) -> Shaped[np.ndarray, "n width"]:
        """Return the rows of these numbers, in this order."""
        return rows_at(self._vectors, rows)


class ZeroedRows:
    """Vectors of which some rows are read as zero, so that the cosine of such a row with every row is 0."""

    def __init__(self, vectors: VectorSource, zeroed: Int[np.ndarray, " n"]) -> None:
        self._vectors, self.shape = vectors, vectors.shape
        self._is_kept = ~np.isin(np.arange(len(vectors)), zeroed)[:, None]

    def __len__(self) -> int:
        return len(self._vectors)

    def __getitem__(self, rows: slice) -> Real[np.ndarray, "n width"]:
        return self._vectors[rows] * self._is_kept[rows]

    def take(self, rows: Int[np.ndarray, " n"]) -> Real[np.ndarray, "n width"]:
        """Return the rows of these numbers, in this order."""
        return rows_at(self._vectors, rows) * self._is_kept[rows]


class RowSubset:
    """Some rows of a source, as a source. The source may be stored as int8."""

    def __init__(self, source: Any, rows: Int[np.ndarray, " n"]) -> None:
        """Select the rows with these numbers, which are ascending."""
        self._source, self.rows = source, rows
        self.shape = (len(rows), *source.shape[1:])
        self.is_int8, self.ranges = getattr(source, "is_int8", False), getattr(source, "ranges", None)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Real[np.ndarray, "n width"]:
        return self._selected(self._source.__getitem__, rows)

    def stored(self, rows: slice) -> Real[np.ndarray, "n columns"]:
        """Return the rows of a slice as the source stores them."""
        return self._selected(self._source.stored, rows)

    def take(self, rows: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n width"]:
        """Return the rows of these numbers, in this order."""
        return rows_at(self._source, self.rows[rows])

    @property
    def lengths(self) -> Float[np.ndarray, " rows"]:
        """Return the length of each row."""
        return self._source.lengths[self.rows]

    def _selected(self, read: Callable[[slice], np.ndarray], rows: slice) -> np.ndarray:
        """Read all rows from the first to the last of a slice, and return those that belong to it."""
        numbers = self.rows[rows]
        first, end = (int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else (0, 0)
        block = read(slice(first, end))
        return block if end - first == len(numbers) else block[numbers - first]


def rows_with_text(vectors: VectorSource) -> tuple[VectorSource, Int[np.ndarray, " n"] | None]:
    """Return the rows that do not stand for empty texts, and their numbers; None if these are all rows."""
    if not isinstance(vectors, HasEmptyRows) or not len(vectors.empty_rows):
        return vectors, None
    rows = np.delete(np.arange(len(vectors)), vectors.empty_rows)
    return RowSubset(vectors, rows), rows


def original_rows(subset_rows: Int[np.ndarray, "..."], rows: Int[np.ndarray, " n"] | None) -> Int[np.ndarray, "..."]:
    """Return the numbers that rows of the subset from `rows_with_text` have among all rows.

    Args:
        subset_rows: Row numbers in the subset.
        rows: The second result of `rows_with_text`.
    """
    return subset_rows if rows is None else rows[subset_rows]


def vectors_of(name: str, value: Any, row: bool = False) -> VectorSource:
    """Convert nested lists, frames, and arrays and tensors of NumPy, JAX and PyTorch to an array. Return other sources as they are.

    Args:
        name: The name of the argument, for messages.
        value: The vectors [rows, width].
        row: Whether a single vector [width] is accepted.

    Raises:
        ConfigError: `value` is something else, or has another shape.
    """
    in_memory = isinstance(value, np.ndarray | jax.Array | list | tuple) or hasattr(value, "detach") or hasattr(value, "to_numpy")
    vectors: Any = value if not in_memory and _is_source(value) else array(name, value)
    if row and len(vectors.shape) == 1:
        vectors = np.atleast_2d(vectors)
    if len(vectors.shape) != 2 or not vectors.shape[1]:
        raise ConfigError(f"{name} of shape {list(vectors.shape)}: must be [rows, width]")
    return vectors


def _is_source(value: Any) -> bool:
    try:
        return isinstance(value, VectorSource) and len(value) >= 0
    except TypeError:  # a sparse matrix, whose rows are not arrays
        return False


def check_finite(scores: Float[np.ndarray, "..."]) -> None:
    """Raise NumericsError if the best scores contain Inf, the mark of a score that is not finite. -Inf stands for no result."""
    if not (scores < np.inf).all():
        raise NumericsError("some of the vectors are not finite (NaN or Inf)")


def check_vectors(vectors: Float[np.ndarray, "..."]) -> None:
    """Raise NumericsError if vectors contain NaN or Inf."""
    check_finite(np.abs(vectors))  # -Inf is a fault here, and NaN is not below Inf


def block_size(largest: int, count: int) -> int:
    """Return the number of rows of a block: a power of two, so that few shapes are compiled."""
    return min(largest, 1 << max(count - 1, 0).bit_length())


def padded(rows: np.ndarray, count: int) -> np.ndarray:
    """Return the rows, followed by rows of zeros if there are fewer than `count`."""
    return np.concatenate([rows, np.zeros((count - len(rows), *rows.shape[1:]), rows.dtype)]) if len(rows) < count else rows


def rows_at(vectors: Any, numbers: Int[np.ndarray, " n"]) -> Shaped[np.ndarray, "n width"]:
    """Return the rows with these numbers, in this order."""
    if isinstance(vectors, np.ndarray):
        return vectors[numbers]
    if hasattr(vectors, "take"):
        return vectors.take(numbers)
    if not len(numbers):
        return array("vectors", vectors[:0])
    return np.concatenate([array("vectors", vectors[row : row + 1]) for row in numbers.tolist()])


def blocks(vectors: VectorSource, size: int, unit: bool = True) -> Iterator[tuple[int, int, Real[Array, "block width"]]]:
    """Yield for each block the number of its first row, the number of rows that are not padding, and the rows on the device.

    Args:
        vectors: The rows [N, E].
        size: The number of rows of a block.
        unit: Whether the rows are compared by cosine, so rows of extreme lengths are scaled.
    """
    for start in range(0, len(vectors), size):
        rows = numbers_of(vectors[start : start + size], unit)
        yield start, len(rows), jax.device_put(padded(rows, size))


def numbers_of(rows: Shaped[Array, "n width"], unit: bool) -> Real[np.ndarray, "n width"]:
    """Return rows of a source as an array of numbers, floats of at most 32 bits. If `unit`, rows of extreme lengths are scaled.

    NumPy converts them, since JAX's conversion crashes where the program makes exceptions of warnings (`np.seterr(all="raise")`).
    """
    numbers = array("vectors", rows)
    numbers = with_usual_lengths(numbers) if unit else numbers
    is_wide = numbers.dtype.kind == "f" and numbers.dtype.itemsize > 4
    with np.errstate(all="ignore"):
        return numbers.astype(np.float32) if is_wide else numbers


def prepare(rows: Shaped[Array, "n width"], unit: bool) -> Float[Array, "n width"]:
    """Return the rows as float32, scaled to length 1 if `unit`."""
    return _prepared(numbers_of(rows, unit) if isinstance(rows, np.ndarray) else rows, unit)


@functools.partial(jax.jit, static_argnames="unit")
def _prepared(rows: Shaped[Array, "n width"], unit: bool) -> Float[Array, "n width"]:
    rows = rows.astype(jnp.float32)
    return rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1e-12) if unit else rows
