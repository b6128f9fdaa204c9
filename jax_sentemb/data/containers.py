"""Check the containers in which callers pass sentences.

Iterating over a table or a mapping gives column names or keys, which would be encoded without an error.
"""

import array
from collections import UserString
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from jax_sentemb.errors import UNPAIRED_SURROGATE

MAX_LISTED = 5  # column names in a message


def problem_with(sentences: Any, name: str = "sentences", items: str = "str") -> str:
    """Return why `sentences` cannot be a container of sentences, in one line; "" if it can.

    Lists, tuples, generators, NumPy arrays of strings, Series of pandas and Polars, and columns of `datasets` and Arrow are
    accepted. The items are not checked here.

    Args:
        sentences: The container.
        name: The name of the argument, for the message.
        items: What the items must be, for the message.
    """
    if isinstance(sentences, list | tuple):
        return ""
    container = type(sentences)
    subject = f"{name} is {container.__name__}"
    if isinstance(sentences, str | UserString):
        return f"{subject}, a single text; give a list of {items}"
    if isinstance(sentences, bytes | bytearray | memoryview | array.array):
        return f"{subject}, not text; decode it and give a list of {items}"
    if isinstance(sentences, Set):
        return f"{subject}, which has no order; give a list of {items}"
    if (columns := columns_of(sentences)) is not None:
        column = "text" if "text" in columns or not columns else columns[0]
        return (
            f"{subject} with the columns {listed(columns)}, not a list of {items}; give one column, for instance data[{column!r}]"
        )
    if getattr(sentences, "ndim", 1) > 1:
        return f"{subject} with {sentences.ndim} dimensions; give one column, for instance data[:, 0]"
    if not isinstance(sentences, Iterable):
        return f"{subject}, which cannot be iterated over; give a list of {items}"
    return ""


def listed(columns: Sequence[str]) -> str:
    """Return the first names of columns for a message."""
    return ", ".join(columns[:MAX_LISTED]) + (", ..." if len(columns) > MAX_LISTED else "") or "(none)"


def columns_of(sentences: Any) -> list[str] | None:
    """Return the names of the columns or keys of a table or a mapping; None for any other object."""
    container: Any = type(sentences)
    if fields := getattr(getattr(sentences, "dtype", None), "names", None):  # of a structured array
        return _names(fields)
    if isinstance(sentences, Mapping) or (hasattr(container, "keys") and getattr(sentences, "ndim", 0) != 1):
        return _names(sentences.keys)
    for attribute in ("column_names", "columns"):
        if hasattr(container, attribute):
            is_lazy = hasattr(sentences, "collect_schema")  # a frame of Polars, which warns when `columns` is read
            return _names(sentences.collect_schema if is_lazy else getattr(sentences, attribute))
    return None


def _names(names: Any) -> list[str]:
    """Return the names in an attribute or in the result of a method; none for other attributes, such as those of pandas groups."""
    names = names() if callable(names) else names
    return [] if names is None or isinstance(names, str) else [str(name) for name in names]


def items_of(sentences: Any) -> Iterator[Any]:
    """Yield the items of an accepted container. Items of Arrow and NumPy become Python objects."""
    if hasattr(sentences, "to_pylist"):
        return iter(sentences.to_pylist())
    if hasattr(sentences, "dtype") and hasattr(sentences, "tolist"):
        items = sentences.tolist()
        return iter(items if isinstance(items, list) else [items])
    return iter(sentences)


def sentence_list(sentences: Any) -> list[Any]:
    """Return the items of a container as a list; raise TypeError if the container is not accepted."""
    if problem := problem_with(sentences):
        raise TypeError(problem)
    return list(items_of(sentences))


def check_text(sentences: Sequence[str]) -> None:
    """Check the sentences of a caller.

    Raises:
        TypeError: The container is not accepted, or an item is not a str.
        ValueError: A text is not valid Unicode.
    """
    if problem := problem_with(sentences):
        raise TypeError(problem)
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise TypeError(f"sentence {number} is {type(sentence).__name__}, not str")
        if not sentence.isascii():
            try:
                sentence.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError(f"sentence {number} {UNPAIRED_SURROGATE}") from None
