"""Write the page of all settings: `python docs/settings.py` rewrites docs/settings.md."""

import argparse
import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import Any

from jax_sentemb import config
from jax_sentemb.methods.wrapped import Wrapped
from jax_sentemb.settings import condition_text, field_comments

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/settings.md"
INTRODUCTION = """\
# Settings

This page shows how to change every setting, with its default, meaning and limits. On the command
line write `--config.data.batch_size=128`, in Python `data__batch_size=128`. A recipe in `configs/`
overrides some defaults, and `--config RECIPE --help` prints its values. *Used if* names the settings
of the same section on which a setting depends. A run notes each changed setting that it does not
use. `python docs/settings.py` writes this page from the code.
"""
SECTIONS = [
    ("", config.Config),
    ("data.", config.Data),
    ("encoder.", config.Encoder),
    ("encoder.", config.Words),
    ("optimizer.", config.Optimizer),
    ("eval.", config.Evaluation),
    ("train.", config.Train),
]
PARTS_OF_METHODS = {"AttentionMI": "method.ami.", "Momentum": "method.momentum.", "Convolution": "method.convolution."}


def page() -> str:
    """Return the page as Markdown: a section for each dataclass of settings."""
    methods = [(PARTS_OF_METHODS.get(cls.__name__, "method."), cls) for cls in method_settings()]
    return "\n".join([INTRODUCTION, *(section(prefix, cls) for prefix, cls in [*SECTIONS, *methods])])


def method_settings() -> list[type]:
    """Return the dataclasses of the methods and of their parts, by module."""
    names = [f"jax_sentemb.methods.{path.stem}" for path in sorted((ROOT / "jax_sentemb/methods").glob("[!_]*.py"))]
    classes = []
    for module in map(importlib.import_module, [*names, "jax_sentemb.models.cnn"]):
        own = [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__]
        own = [cls for cls in own if not issubclass(cls, Wrapped)]  # a run puts these around the method of its settings
        classes += [cls for cls in own if dataclasses.is_dataclass(cls) and dataclasses.fields(cls)]
    return classes


def section(prefix: str, cls: Any) -> str:
    """Return the heading, the docstring and the table of the fields of a dataclass."""
    rows = [row(prefix, field, field_comments(cls).get(field.name, "")) for field in dataclasses.fields(cls)]
    return "\n".join(
        [f"## {cls.__name__}\n", f"{inspect.getdoc(cls) or ''}\n", "| setting | default | meaning |", "|---|---|---|", *rows, ""]
    )


def row(prefix: str, field: dataclasses.Field, comment: str) -> str:
    """Return the row of a setting: its name, default, and meaning with limits."""
    default = "required" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
        default = f"see {type(value).__name__}" if dataclasses.is_dataclass(value) else f"`{value!r}`"
    text = "; ".join(filter(None, (comment, str(field.metadata.get("limits") or ""), condition_text(field))))
    return f"| `{prefix}{field.name}` | {default} | {text.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help and a typo write nothing
    PAGE.write_text(page(), encoding="utf-8")
