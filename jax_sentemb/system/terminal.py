"""Make tables and progress bars for the terminal and for notebooks."""

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
_OBEYED = re.compile("[\x7f-\x9f]")  # control characters that JSON does not escape


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", text_columns: Sequence[int] = (0,)) -> str:
    """Return a table as text, without colours and control characters.

    It is as wide as the terminal, or WIDTH if the output is not a terminal. Cells that are too wide are wrapped.

    Args:
        columns: The headings.
        rows: The cells of each row.
        title: A line above the table.
        text_columns: The numbers of the columns that are aligned to the left; the others are aligned to the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rich_table = Table(
        title=plain(title) or None,
        title_justify="left",
        title_style="",
        header_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for number, column in enumerate(columns):
        rich_table.add_column(plain(column), justify="left" if number in text_columns else "right", overflow="fold")
    for row in rows:
        rich_table.add_row(*(plain(cell) for cell in row))
    width = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() or sys.stderr.isatty() else WIDTH
    output = io.StringIO()
    Console(file=output, width=max(width, 40), markup=False, highlight=False, emoji=False, no_color=True).print(rich_table)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).strip("\n")


def json_text(value: Any, **options: Any) -> str:
    """Return readable JSON in which every character that a terminal obeys is escaped."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False, **options))


def in_notebook() -> bool:
    """Return whether this is the kernel of a notebook, which shows progress bars although it has no terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


@functools.cache
def bar() -> "type[tqdm[Any]]":
    """Return tqdm's progress bar: a widget in a notebook that has widgets, otherwise text.

    It starts no monitor thread, since that thread would stay in the process.
    """
    if in_notebook() and importlib.util.find_spec("ipywidgets"):
        from tqdm.notebook import tqdm
    else:
        from tqdm.std import tqdm
    unwatched: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    return unwatched
