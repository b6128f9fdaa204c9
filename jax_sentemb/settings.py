"""Dataclasses as settings: limits of fields, values from any door, checks of limits and types, flat names of fields.

A setting can be given in the shell, as a keyword in Python, in a .yaml file and in a sweep. All of them call `assign`, which
converts a text or a value to the type of the field and checks it against the field's limits.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import math
import numbers
import os
import re
import textwrap
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from jax_sentemb.errors import ConfigError, Setting

LARGEST = 1 << 31  # steps and seeds are int32 on a device
NAMES = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}
SEVERAL = {bool: "True or False", int: "whole numbers", float: "numbers", str: "texts"}  # the items of a tuple
BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
ABSENT = ("none", "null", "~", "false")  # texts for an optional part that is left out

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Limits:
    """The allowed values of a field, or of each item of a tuple."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: tuple[Any, ...] = ()

    def __str__(self) -> str:
        bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        words = [f"{word} {bound}" for word, bound in bounds.items() if bound is not None]
        words += ["one of " + ", ".join(repr(choice) for choice in self.choices)] if self.choices else []
        return " and ".join(words)

    def allow(self, value: Any) -> bool:
        """Return whether a value is within the limits."""
        if self.choices and value not in self.choices:
            return False
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


def setting(default: Value, kw_only: bool = False, **limits: Any) -> Value:
    """A dataclass field with a default and Limits: `batch_size: int = setting(64, least=2)`."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"limits": Limits(**limits)})


class UnknownSetting(ConfigError):
    """A name that no setting has."""


def assign(settings: Any, name: str, value: Any, create: bool = True) -> None:
    """Set the setting `name` ("method.ami.layers") of a dataclass tree to `value`, converted to the type of its field.

    An optional part that is None is made, with its defaults, when one of its settings is assigned, unless `create` is False.

    Raises:
        ConfigError: The value does not have the type of the field, or is outside its limits.
        UnknownSetting: No setting has this name.
    """
    _assign(settings, name, value, Setting(name, value), create)


def _assign(settings: Any, name: str, value: Any, given: Setting, create: bool) -> None:
    head, _, rest = name.partition(".")
    if head not in field_types(type(settings)):
        raise UnknownSetting(Setting(given.name), " is unknown")
    kind, present = field_types(type(settings))[head], getattr(settings, head)
    if not rest:
        new = _optional(value, kind, given) if is_part(kind) else convert(value, kind, given)
        _check_value(given.name, new, settings.__dataclass_fields__[head].metadata.get("limits"))
        setattr(settings, head, new)
        return
    if present is None and create and (part := optional_part(kind)):
        present = part()
    if not dataclasses.is_dataclass(present):
        raise UnknownSetting(Setting(given.name), " is unknown")
    _assign(present, rest, value, given, create)
    setattr(settings, head, present)


@functools.cache
def field_types(settings: type) -> dict[str, Any]:
    """{field: type} of a dataclass."""
    hints = typing.get_type_hints(settings)
    return {item.name: hints[item.name] for item in dataclasses.fields(settings)}


def is_part(kind: Any) -> bool:
    """Return whether a field holds a dataclass, or None in its place."""
    return any(dataclasses.is_dataclass(each) for each in (kind, *typing.get_args(kind))) or not _is_value(kind)


def _is_value(kind: Any) -> bool:
    return kind in NAMES or typing.get_origin(kind) is tuple


def optional_part(kind: Any) -> Any:
    """The dataclass of a field that may be None, if it can be made without arguments; else None."""
    parts = [part for part in typing.get_args(kind) if dataclasses.is_dataclass(part)]
    if type(None) not in typing.get_args(kind) or len(parts) != 1:
        return None
    required = [item for item in dataclasses.fields(parts[0]) if item.default is item.default_factory is dataclasses.MISSING]
    return None if required else parts[0]


def convert(value: Any, kind: Any, given: Setting) -> Any:
    """Return `value` as a `kind`: itself, a number of another kind without loss, or what a text writes.

    Texts: true, false, yes, no, on, off, 1 and 0 for True and False; decimal numbers and 0x40 for numbers; items with commas
    between them for tuples, with or without brackets.

    Raises:
        ConfigError: The value cannot be converted; `given` names it.
    """
    is_tuple = typing.get_origin(kind) is tuple
    with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
        return _tuple(value, kind) if is_tuple else _scalar(value, kind)
    wanted = f"a list of {SEVERAL[typing.get_args(kind)[0]]}" if is_tuple else NAMES[kind]
    raise ConfigError(_brief(given), f" is not {wanted}")


def _brief(given: Setting) -> Setting:
    text = str(given.value)
    return given if len(text) <= 60 else given._replace(value=f"{text[:60]}...")


def _scalar(value: Any, kind: type) -> Any:
    """A bool, number or text from a value, or from its text; an exception if it is none."""
    if kind is bool:
        return BOOLEANS[str(value).strip().lower()]
    if kind is str:
        if not isinstance(value, str | os.PathLike | numbers.Real):
            raise TypeError
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    number: Any = _number(value.strip()) if isinstance(value, str) else value
    if not _is_number(number) or (kind is int and int(number) != number):
        raise TypeError
    return kind(number)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _number(text: str) -> int | float:
    """The number that a text writes: 64, 0x40, 1e-3."""
    try:
        return int(text, 0 if re.match(r"[+-]?0[box]", text, re.IGNORECASE) else 10)
    except ValueError:
        return float(text)


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    """The items of a list, or of a text such as 1,2 or (1, 2) or ['a', 'b']; a single value is a tuple of one."""
    if isinstance(value, str):
        value = _items(value.strip())
    elif isinstance(value, numbers.Real):
        value = [value]
    if not isinstance(value, list | tuple):
        raise TypeError
    return tuple(_scalar(item, typing.get_args(kind)[0]) for item in value)


def _items(text: str) -> list[Any]:
    if text[:1] in ("(", "["):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            if isinstance(items := ast.literal_eval(text), list | tuple):
                return list(items)
        text = text[1:].removesuffix(")").removesuffix("]")
    items = [item.strip() for item in text.split(",")]
    return items if items[-1] else items[:-1]


def _optional(value: Any, kind: Any, given: Setting) -> Any:
    """The value of an optional part: None, or a part with its defaults for True, or the part that Python gives."""
    part, text = optional_part(kind), str(value).strip().lower()
    if type(None) in typing.get_args(kind) and (value is None or text in ABSENT):
        return None
    if part and (isinstance(value, part) or text == "true"):
        return value if isinstance(value, part) else part()
    if part:
        first = Setting(f"{given.name}.{dataclasses.fields(part)[0].name}")
        raise ConfigError(_brief(given), " is not True or None: set what is in it, for instance ", first)
    raise ConfigError(Setting(given.name), " is a part of the config, not a setting: set what is in it, or write a .py recipe")


def check_settings(settings: Any, prefix: str = "") -> None:
    """Raises ConfigError for a value in a dataclass tree with a wrong type or outside its limits; `prefix` as in "method."."""
    check_types(settings, prefix)
    for name, value, limits in _leaves(settings, prefix):
        _check_value(name, value, limits)


def _check_value(name: str, value: Any, limits: Limits | None) -> None:
    """Raise ConfigError if a value, or an item of a tuple, is too large for a device, not finite, or outside its limits."""
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, float) and not math.isfinite(item):
            raise ConfigError(Setting(name, value), " is not a finite number")
        if isinstance(item, int) and item >= LARGEST:
            raise ConfigError(Setting(name, value), f" must be below {LARGEST}")
        if limits is not None and item is not None and not limits.allow(item):
            choices = ", ".join(str(choice) or "''" for choice in limits.choices)
            raise ConfigError(Setting(name, value), f" is not one of {choices}" if choices else f" must be {limits}")


def check_types(settings: Any, prefix: str = "") -> None:
    """Raises ConfigError for a value in a dataclass tree that does not have the type of its field."""
    kinds = field_types(type(settings))
    for name in (item.name for item in dataclasses.fields(settings)):
        kind, value = kinds[name], getattr(settings, name)
        if not _is_a(value, kind):
            wanted = NAMES.get(kind) or getattr(kind, "__name__", kind)
            if typing.get_origin(kind) is tuple:
                wanted = f"a tuple of {SEVERAL[typing.get_args(kind)[0]]}"
            raise ConfigError(Setting(f"{prefix}{name}", repr(value)[:60]), f" is {type(value).__name__}, not {wanted}")
        if dataclasses.is_dataclass(value):
            check_types(value, f"{prefix}{name}.")


def flatten(settings: Any, prefix: str = "") -> dict[str, Any]:
    """{"data.batch_size": 64, ...} for all leaves of a dataclass tree; an optional part that is not set is one leaf, None."""
    return {name: value for name, value, _ in _leaves(settings, prefix)}


def possible(settings: Any, prefix: str = "") -> dict[str, Any]:
    """As `flatten`, also with the settings of optional parts that are None, which `assign` can make."""
    found = flatten(settings, prefix)
    for name, kind in field_types(type(settings)).items():
        value, part = getattr(settings, name), optional_part(kind)
        if part:
            found |= {f"{prefix}{name}": value} | possible(value or part(), f"{prefix}{name}.")
        elif dataclasses.is_dataclass(value):
            found |= possible(value, f"{prefix}{name}.")
    return found


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
