"""Provide the templates and number formats that the pages of a report share."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jax_sentemb.reporting.svg import printable


class Figure(NamedTuple):
    """A picture with its caption: title, coloured keys [(class, label), ...] and notes."""

    picture: Markup
    title: str
    notes: str = ""
    keys: Sequence[tuple[str, str]] = ()


@functools.cache
def templates() -> Environment:
    """Return the templates of this folder. Text is escaped, and characters that HTML excludes are replaced; markup is unchanged."""
    return Environment(
        loader=PackageLoader("jax_sentemb.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def score_text(value: float | None) -> str:
    """Return a score with two decimals; "" for None."""
    return "" if value is None else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def number_text(value: float, digits: int = 4) -> str:
    """Return a number with `digits` significant digits, or as a whole number from 1,000 on."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
    return text.replace("-", "\N{MINUS SIGN}")


def fact_text(value: object) -> str:
    """Return a value of a settings table as text; whole numbers have thousands separators."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def duration_text(time_taken: float) -> str:
    """Return seconds as text, such as "1 min 5 s"."""
    minutes, remainder = divmod(round(time_taken), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {remainder} s" if minutes else f"{remainder} s"
