"""Check the arguments of public functions. The error names the argument, its value and what it must be."""

import math
import operator
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from jax_sentemb.errors import ConfigError, first_line
from jax_sentemb.files import quote

SMALL = re.compile(r"bfloat16|float[468]_\w+|u?int[24]")  # names of the types of the package ml_dtypes


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Check that `value` is an integer from `least` to `most`, and return it as int. Integers of NumPy are accepted.

    Raises:
        ConfigError: `value` is not such an integer. The message begins with `name`.
    """
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        limits = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise ConfigError(f"{name}={quote(value)}: must be a whole number {limits}")
    return number


def finite_number(name: str, value: Any, least: float = -math.inf) -> float:
    """Check that `value` is a finite number of at least `least`, and return it as float.

    Raises:
        ConfigError: `value` is not such a number. The message begins with `name`.
    """
    try:
        number = math.nan if isinstance(value, bool | np.bool_ | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < least:
        raise ConfigError(f"{name}={quote(value)}: must be a finite number" + f" of {least:g} or more" * (least > -math.inf))
    return number


def cosine(name: str, value: Any) -> float:
    """Check that `value` is a number from -1 to 1, and return it as float.

    Raises:
        ConfigError: `value` is not such a number. The message begins with `name`.
    """
    number = finite_number(name, value)
    if abs(number) > 1:
        raise ConfigError(f"{name}={quote(value)}: must be a cosine, from -1 to 1")
    return number


def flag(name: str, value: Any) -> bool:
    """Check that `value` is True or False, and return it as bool.

    Raises:
        ConfigError: `value` is neither True nor False. The message begins with `name`.
    """
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name}={quote(value)}: must be True or False")
    return bool(value)


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Check that `value` is one of `choices`, and return it.

    Raises:
        ConfigError: `value` is not one of them. The message begins with `name`.
    """
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name}={quote(value)}: must be one of {', '.join(choices)}")
    return value


def text(name: str, value: Any) -> str:
    """Check that `value` is a str, and return it.

    Raises:
        ConfigError: `value` is not a str. The message begins with `name`.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{name}={quote(value)}: must be a str")
    return value


def array(name: str, value: Any) -> Shaped[np.ndarray, "..."]:
    """Return an array of real numbers from nested lists, or from an array or tensor of NumPy, JAX or PyTorch.

    Raises:
        ConfigError: `value` is anything else, such as complex numbers, text, a sparse matrix or lists of different lengths.
    """
    if hasattr(value, "detach"):  # of PyTorch, also on a GPU or with a gradient; NumPy has no bfloat16
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    if np.ma.is_masked(value):
        raise ConfigError(f"{name} has masked values: fill them, or leave these rows out")
    try:
        numbers = np.asarray(value)
    except Exception as error:  # of the library that the value is from
        raise ConfigError(f"{name} is {type(value).__name__}: not an array of numbers ({first_line(error, 150)})") from None
    if SMALL.fullmatch(numbers.dtype.name):
        numbers = numbers.astype(np.float32)
    if numbers.dtype.kind == "U":
        raise ConfigError(f"{name} is text: must contain real numbers, such as the embeddings of SentenceEncoder.encode")
    if numbers.dtype.kind not in "bfiu":
        raise ConfigError(f"{name} is {type(value).__name__} of dtype {numbers.dtype.name[:40]}: must contain real numbers")
    if numbers.dtype.itemsize >= np.dtype(np.float64).itemsize:  # JAX would keep 32 bits of an integer, and refuses long doubles
        numbers = numbers.astype(np.float64, copy=False)
    return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)  # JAX misreads the bytes of another order


def limits_of(rows: Any, count: int) -> tuple[int, int]:
    """Return the first row of a slice of `count` rows, and the row after its last one.

    Raises:
        ConfigError: `rows` is not a slice, or has a step.
    """
    if not isinstance(rows, slice) or rows.step not in (None, 1):
        raise ConfigError(f"rows {quote(rows)}: must be a slice without a step; take() returns rows by their numbers")
    return rows.indices(count)[:2]


def row_numbers(rows: Any, count: int) -> Int[np.ndarray, " n"]:
    """Return row numbers as an array.

    Raises:
        ConfigError: `rows` is not a list of whole numbers from 0 to `count` - 1.
    """
    numbers = np.asarray(rows)
    numbers = numbers if numbers.size else numbers.astype(np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or (numbers.size and not 0 <= numbers.min() <= numbers.max() < count):
        raise ConfigError(f"rows {quote(rows)}: must be a list of whole numbers from 0 to {count - 1}")
    return numbers
