"""Tables and progress bars for the terminal and for notebooks."""

import functools
import importlib.util
import io
import json
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jax_sentemb.errors import plain

if TYPE_CHECKING:
    from tqdm import tqdm

WIDTH = 118  # of a table that does not go to a terminal
_OBEYED = re.compile("[\x7f-\x9f]")  # control characters that JSON leaves as they are


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", text_columns: Sequence[int] = (0,)) -> str:
    """A table as text: numbers to the right, the columns `text_columns` to the left; what is too wide is wrapped.

    As wide as the terminal, or WIDTH where the output goes elsewhere. It has no colours and no control characters.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    found = Table(
        title=plain(title) or None,
        title_justify="left",
        title_style="",
        header_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for place, column in enumerate(columns):
        found.add_column(plain(column), justify="left" if place in text_columns else "right", overflow="fold")
    for row in rows:
        found.add_row(*(plain(cell) for cell in row))
    width = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() or sys.stderr.isatty() else WIDTH
    output = io.StringIO()
    Console(file=output, width=max(width, 40), markup=False, highlight=False, emoji=False, no_color=True).print(found)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).strip("\n")


def json_text(value: Any, **options: Any) -> str:
    """Return readable JSON in which every character that a terminal obeys is escaped."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False, **options))


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which shows progress bars although it has no terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


@functools.cache
def bar() -> "type[tqdm[Any]]":
    """Return tqdm's progress bar: a widget in a notebook that has widgets, else text.

    It starts no thread that watches it, since that thread would stay in the process.
    """
    if in_notebook() and importlib.util.find_spec("ipywidgets"):
        from tqdm.notebook import tqdm
    else:
        from tqdm.std import tqdm
    unwatched: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    return unwatched
