"""Treat dataclasses as settings: limits of fields, conversion of values, checks of limits and types, flat names of fields.

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
ITEM_NAMES = {bool: "True or False", int: "whole numbers", float: "numbers", str: "texts"}  # the items of a tuple
BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
ABSENT = ("none", "null", "~", "false")  # texts that leave an optional part out

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


def setting(default: Value, kw_only: bool = False, used_if: str = "", **limits: Any) -> Value:
    """Return a dataclass field with a default, Limits and the settings of its dataclass on which it depends.

    The field `batch_size: int = setting(64, least=2)` is 64 by default and must be 2 or more. `used_if` is "congen" (neither 0 nor
    empty), "not weights", "form=pairs", "form=generative|both", or several of them joined by " and ".
    """
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"limits": Limits(**limits), "used_if": used_if})


class UnknownSetting(ConfigError):
    """Report a name that no setting has."""


def assign(settings: Any, name: str, value: Any, create: bool = True) -> None:
    """Set the setting `name` ("method.ami.layers") of a dataclass tree to `value`, converted to the type of its field.

    If one setting of an optional part that is None is assigned, the part is created with its defaults, unless `create` is False.

    Raises:
        ConfigError: The value does not have the type of the field, or is outside its limits.
        UnknownSetting: No setting has this name.
    """
    _assign(settings, name, value, Setting(name, value), create)


def _assign(settings: Any, name: str, value: Any, original: Setting, create: bool) -> None:
    head, _, inner_name = name.partition(".")
    if head not in field_types(type(settings)):
        raise UnknownSetting(Setting(original.name), " is unknown")
    field_type, present = field_types(type(settings))[head], getattr(settings, head)
    if not inner_name:
        new = _optional(value, field_type, original) if is_part(field_type) else convert(value, field_type, original)
        _check_value(original.name, new, settings.__dataclass_fields__[head].metadata.get("limits"))
        setattr(settings, head, new)
        return
    if present is None and create and (part := optional_part(field_type)):
        present = part()
    if not dataclasses.is_dataclass(present):
        raise UnknownSetting(Setting(original.name), " is unknown")
    _assign(present, inner_name, value, original, create)
    setattr(settings, head, present)


@functools.cache
def field_types(settings: type) -> dict[str, Any]:
    """Return {field: type} of a dataclass."""
    hints = typing.get_type_hints(settings)
    return {item.name: hints[item.name] for item in dataclasses.fields(settings)}


def is_part(field_type: Any) -> bool:
    """Return whether a field holds a dataclass, or None instead of one."""
    return any(dataclasses.is_dataclass(option) for option in (field_type, *typing.get_args(field_type))) or not _is_value(
        field_type
    )


def _is_value(field_type: Any) -> bool:
    return field_type in NAMES or typing.get_origin(field_type) is tuple


def optional_part(field_type: Any) -> Any:
    """Return the dataclass of a field that may be None, if it can be created without arguments; otherwise None."""
    parts = [part for part in typing.get_args(field_type) if dataclasses.is_dataclass(part)]
    if type(None) not in typing.get_args(field_type) or len(parts) != 1:
        return None
    required = [item for item in dataclasses.fields(parts[0]) if item.default is item.default_factory is dataclasses.MISSING]
    return None if required else parts[0]


def convert(value: Any, field_type: Any, original: Setting) -> Any:
    """Return `value` as a `field_type`: the value itself, an equal number of another type, or the value that a text writes.

    Texts: true, false, yes, no, on, off, 1 and 0 for True and False; decimal numbers and 0x40 for numbers; items with commas
    between them for tuples, with or without brackets.

    Raises:
        ConfigError: The value cannot be converted; the message names `original`.
    """
    is_tuple = typing.get_origin(field_type) is tuple
    with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
        return _tuple(value, field_type) if is_tuple else _scalar(value, field_type)
    expected = f"a list of {ITEM_NAMES[typing.get_args(field_type)[0]]}" if is_tuple else NAMES[field_type]
    raise ConfigError(_brief(original), f" is not {expected}")


def _brief(original: Setting) -> Setting:
    text = str(original.value)
    return original if len(text) <= 60 else original._replace(value=f"{text[:60]}...")


def _scalar(value: Any, field_type: type) -> Any:
    """Return a bool, number or text from a value or from its text; raise an exception if it is none."""
    if field_type is bool:
        return BOOLEANS[str(value).strip().lower()]
    if field_type is str:
        if not isinstance(value, str | os.PathLike | numbers.Real):
            raise TypeError
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    number: Any = _number(value.strip()) if isinstance(value, str) else value
    if not _is_number(number) or (field_type is int and int(number) != number):
        raise TypeError
    return field_type(number)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _number(text: str) -> int | float:
    """Return the number that a text writes: 64, 0x40, 1e-3."""
    try:
        return int(text, 0 if re.match(r"[+-]?0[box]", text, re.IGNORECASE) else 10)
    except ValueError:
        return float(text)


def _tuple(value: Any, field_type: Any) -> tuple[Any, ...]:
    """Return the items of a list, or of a text such as 1,2 or (1, 2) or ['a', 'b']; a single value becomes a tuple."""
    if isinstance(value, str):
        value = _items(value.strip())
    elif isinstance(value, numbers.Real):
        value = [value]
    if not isinstance(value, list | tuple):
        raise TypeError
    return tuple(_scalar(item, typing.get_args(field_type)[0]) for item in value)


def _items(text: str) -> list[Any]:
    if text[:1] in ("(", "["):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            if isinstance(items := ast.literal_eval(text), list | tuple):
                return list(items)
        text = text[1:].removesuffix(")").removesuffix("]")
    items = [item.strip() for item in text.split(",")]
    return items if items[-1] else items[:-1]


def _optional(value: Any, field_type: Any, original: Setting) -> Any:
    """Return the value of an optional part: None, a part with its defaults for True, or the part that Python gives."""
    part, text = optional_part(field_type), str(value).strip().lower()
    if type(None) in typing.get_args(field_type) and (value is None or text in ABSENT):
        return None
    if part and (isinstance(value, part) or text == "true"):
        return value if isinstance(value, part) else part()
    if part:
        example = Setting(f"{original.name}.{dataclasses.fields(part)[0].name}")
        raise ConfigError(_brief(original), " is not True or None: set one of its settings, for instance ", example)
    raise ConfigError(Setting(original.name), " is a section, not a setting: set one of its settings, or write a .py recipe")


def check_settings(settings: Any, prefix: str = "") -> None:
    """Raise ConfigError for a value in a dataclass tree with a wrong type or outside its limits.

    `prefix` is put before the names in messages, for example "method.".
    """
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
    """Raise ConfigError for a value in a dataclass tree that does not have the type of its field."""
    types = field_types(type(settings))
    for name in (item.name for item in dataclasses.fields(settings)):
        field_type, value = types[name], getattr(settings, name)
        if not _is_a(value, field_type):
            expected = NAMES.get(field_type) or getattr(field_type, "__name__", field_type)
            if typing.get_origin(field_type) is tuple:
                expected = f"a tuple of {ITEM_NAMES[typing.get_args(field_type)[0]]}"
            raise ConfigError(Setting(f"{prefix}{name}", repr(value)[:60]), f" is {type(value).__name__}, not {expected}")
        if dataclasses.is_dataclass(value):
            check_types(value, f"{prefix}{name}.")


def unused(settings: Any, prefix: str = "") -> Iterator[tuple[Setting, Setting]]:
    """Yield each setting of a dataclass tree that differs from its default and is not used (`used_if`), and its cause."""
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            yield from unused(value, f"{prefix}{item.name}.")
        elif value != item.default and (cause := unmet(settings, item.name)):
            yield Setting(f"{prefix}{item.name}", value), Setting(f"{prefix}{cause}", getattr(settings, cause))


def unmet(settings: Any, name: str) -> str:
    """Return the first setting because of which the setting `name` of a dataclass is not used; "" if it is used."""
    conditions = settings.__dataclass_fields__[name].metadata.get("used_if", "")
    for condition in conditions.split(" and ") if conditions else ():
        other, _, values = condition.removeprefix("not ").partition("=")
        value = getattr(settings, other)
        if (str(value) in values.split("|") if values else bool(value)) == condition.startswith("not "):
            return other
    return ""


def flatten(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Return {"data.batch_size": 64, ...} for all leaves of a dataclass tree; an optional part that is None is one leaf."""
    return {name: value for name, value, _ in _leaves(settings, prefix)}


def possible(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Return the same as `flatten`, with the settings of optional parts that are None, which `assign` can create."""
    values = flatten(settings, prefix)
    for name, field_type in field_types(type(settings)).items():
        value, part = getattr(settings, name), optional_part(field_type)
        if part:
            values |= {f"{prefix}{name}": value} | possible(value or part(), f"{prefix}{name}.")
        elif dataclasses.is_dataclass(value):
            values |= possible(value, f"{prefix}{name}.")
    return values


class SettingLine(NamedTuple):
    """A setting as help and documentation show it."""

    section: str  # "data", "method.ami"; "" at the top
    about: str  # first line of the section's docstring
    name: str
    value: Any
    text: str  # meaning, limits, and the default if the value differs from it


def setting_lines(settings: Any, prefix: str = "") -> Iterator[SettingLine]:
    """Yield a line for every leaf of a dataclass tree, in the order of the fields, leaves before nested parts."""
    settings_type = type(settings)
    section, about = prefix.removesuffix("."), (settings_type.__doc__ or "").partition("\n")[0]
    parts = []
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            parts.append((value, f"{prefix}{item.name}."))
            continue
        limits = item.metadata.get("limits")
        default = item.default if item.default is not dataclasses.MISSING and item.default != value else None
        notes = (
            field_comments(settings_type).get(item.name),
            str(limits or ""),
            condition_text(item),
            "" if default is None else f"default: {default!r}",
        )
        yield SettingLine(section, about, prefix + item.name, value, "; ".join(filter(None, notes)))
    for value, inner in parts:
        yield from setting_lines(value, inner)


def condition_text(item: dataclasses.Field) -> str:
    """Return the condition of a field for help and documentation; "" if it has none."""
    condition = item.metadata.get("used_if", "").replace("|", " or ")
    return condition and f"used if {condition}"


@functools.cache
def field_comments(settings_type: type) -> dict[str, str]:
    """Return {field: the comment next to it, or else above it} of a dataclass and its bases, for help and documentation."""
    comments: dict[str, str] = {}
    for base in reversed([base for base in settings_type.__mro__ if dataclasses.is_dataclass(base)]):
        source = textwrap.dedent(inspect.getsource(base))
        lines, (tree,) = source.splitlines(), ast.parse(source).body
        for item in tree.body if isinstance(tree, ast.ClassDef) else ():
            if isinstance(item, ast.AnnAssign):
                same_line = lines[(item.end_lineno or item.lineno) - 1].partition("  # ")[2]
                same_line = "" if same_line.startswith("pyright:") else same_line
                lines_before = reversed([line.strip() for line in lines[: item.lineno - 1]])
                lines_above = [
                    line.removeprefix("# ") for line in itertools.takewhile(lambda line: line.startswith("# "), lines_before)
                ]
                comments[ast.unparse(item.target)] = (same_line or " ".join(reversed(lines_above))).rstrip(".")
    return comments


def _leaves(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any, Limits | None]]:
    """Yield (name, value, limits) of every leaf of a dataclass tree."""
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value, item.metadata.get("limits")


def _is_a(value: Any, field_type: Any) -> bool:
    if typing.get_origin(field_type) is tuple:
        return isinstance(value, tuple) and all(_is_a(item, typing.get_args(field_type)[0]) for item in value)
    if typing.get_origin(field_type) is dict:
        key_kind, value_kind = typing.get_args(field_type)
        return isinstance(value, dict) and all(_is_a(key, key_kind) and _is_a(item, value_kind) for key, item in value.items())
    if field_type is Any:
        return True
    if isinstance(value, bool):
        return field_type is bool
    return isinstance(value, int | float if field_type is float else field_type)
