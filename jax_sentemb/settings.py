"""Dataclasses as settings: limits of fields, checks of limits and types, flat names of fields."""

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import textwrap
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from jax_sentemb.errors import ConfigError

LARGEST = 1 << 31  # steps and seeds are int32 on a device
NAMES = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Limits:
    """The allowed values of a field."""

    least: float | None = None
    below: float | None = None
    choices: tuple[Any, ...] = ()

    def __str__(self) -> str:
        words = [f"at least {self.least}"] if self.least is not None else []
        words += [f"below {self.below}"] if self.below is not None else []
        words += ["one of " + ", ".join(map(repr, self.choices))] if self.choices else []
        return " and ".join(words)

    def check(self, name: str, value: Any) -> None:
        """Raises ConfigError if a value is not allowed; the message has name, value and limit."""
        too_low = self.least is not None and value < self.least
        if self.below is not None:
            if too_low or value >= self.below:
                raise ConfigError(f"{name}={value} must be from {self.least or 0} to below {self.below}")
        elif too_low:
            raise ConfigError(f"{name}={value} must be at least {self.least}")
        if self.choices and value not in self.choices:
            raise ConfigError(f"{name}={value!r} is not one of {', '.join(self.choices)}")


def setting(default: Value, **limits: Any) -> Value:
    """A dataclass field with a default and Limits: `batch_size: int = setting(64, least=2)`."""
    return dataclasses.field(default=default, metadata={"limits": Limits(**limits)})


def check_settings(settings: Any) -> None:
    """Raises ConfigError for a value in a dataclass tree with a wrong type or outside its limits."""
    check_types(settings)
    for name, value, limits in _leaves(settings):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name}={value} is not a finite number")
        if isinstance(value, int) and value >= LARGEST:
            raise ConfigError(f"{name}={value} must be below {LARGEST}")
        if limits is not None:
            limits.check(name, value)


def check_types(settings: Any, prefix: str = "") -> None:
    """Raises ConfigError for a value in a dataclass tree that does not have the type of its field."""
    kinds = typing.get_type_hints(type(settings))
    for name in (item.name for item in dataclasses.fields(settings)):
        kind, value = kinds[name], getattr(settings, name)
        if not _is_a(value, kind):
            wanted = NAMES.get(kind) or getattr(kind, "__name__", kind)
            if typing.get_origin(kind) is tuple:
                wanted = f"a tuple in which each is {NAMES.get(typing.get_args(kind)[0], typing.get_args(kind)[0])}"
            raise ConfigError(f"{prefix}{name}={repr(value)[:60]} is {type(value).__name__}, not {wanted}")
        if dataclasses.is_dataclass(value):
            check_types(value, f"{prefix}{name}.")


def flatten(settings: Any, prefix: str = "") -> dict[str, Any]:
    """{"data.batch_size": 64, ...} for all leaves of a dataclass tree; an optional part that is not set is one leaf, None."""
    return {name: value for name, value, _ in _leaves(settings, prefix)}


class SettingLine(NamedTuple):
    """A setting as help and documentation show it."""

    section: str  # "data", "method.ami"; "" at the top
    about: str  # first line of the section's docstring
    name: str
    value: Any
    text: str  # meaning, limits, and the default where the value is another one


def setting_lines(settings: Any, prefix: str = "") -> Iterator[SettingLine]:
    """A line for every leaf of a dataclass tree, in the order of the fields, the leaves of a part before its own parts."""
    kind = type(settings)
    section, about = prefix.removesuffix("."), (kind.__doc__ or "").partition("\n")[0]
    parts = []
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            parts.append((value, f"{prefix}{item.name}."))
            continue
        limits = item.metadata.get("limits")
        default = item.default if item.default is not dataclasses.MISSING and item.default != value else None
        notes = (field_comments(kind).get(item.name), str(limits or ""), "" if default is None else f"default: {default!r}")
        yield SettingLine(section, about, prefix + item.name, value, "; ".join(filter(None, notes)))
    for value, inner in parts:
        yield from setting_lines(value, inner)


@functools.cache
def field_comments(kind: type) -> dict[str, str]:
    """{field: the comment beside it, or else above it} of a dataclass and its bases: the texts of help and documentation."""
    found: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if dataclasses.is_dataclass(base)]):
        source = textwrap.dedent(inspect.getsource(base))
        lines, (tree,) = source.splitlines(), ast.parse(source).body
        for item in tree.body if isinstance(tree, ast.ClassDef) else ():
            if isinstance(item, ast.AnnAssign):
                beside = lines[(item.end_lineno or item.lineno) - 1].partition("  # ")[2]
                before = reversed([line.strip() for line in lines[: item.lineno - 1]])
                above = [line.removeprefix("# ") for line in itertools.takewhile(lambda line: line.startswith("# "), before)]
                found[ast.unparse(item.target)] = (beside or " ".join(reversed(above))).rstrip(".")
    return found


def _leaves(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any, Limits | None]]:
    """(name, value, limits) of every leaf of a dataclass tree."""
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value, item.metadata.get("limits")


def _is_a(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is_a(item, typing.get_args(kind)[0]) for item in value)
    if typing.get_origin(kind) is dict:
        key_kind, value_kind = typing.get_args(kind)
        return isinstance(value, dict) and all(_is_a(key, key_kind) and _is_a(item, value_kind) for key, item in value.items())
    if kind is Any:
        return True
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)
