"""Make tables and progress bars for the terminal and for notebooks."""

import contextlib
import functools
import importlib.util
import io
import json
import math
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from jax_sentemb.errors import plain
from jax_sentemb.system.streams import lasting, print_line

if TYPE_CHECKING:
    from tqdm import tqdm

WIDTH = 118  # of a table that does not go to a terminal
DELAY = 3.0  # seconds after which a task shows its progress
# Without a terminal, a line of progress follows after a twentieth of the time so far, within these limits in seconds.
SHORTEST, LONGEST = 30.0, 600.0
LEAST_MEASURED = 0.5  # seconds between two reports that give a rate
_OBEYED = re.compile("[\x7f-\x9f]")  # control characters that JSON does not escape


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str = "",
    text_columns: Sequence[int] = (0,),
    width: int = WIDTH,
) -> str:
    """Return a table as text, without colours and control characters.

    It is as wide as the terminal, or WIDTH if the output is not a terminal. Cells that are too wide are wrapped.

    Args:
        columns: The headings.
        rows: The cells of each row.
        title: A line above the table.
        text_columns: The numbers of the columns that are aligned to the left; the others are aligned to the right.
        width: The largest width if it is less than WIDTH; otherwise that of the terminal.
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
    output = io.StringIO()
    Console(
        file=output,
        width=min(_width(), width) if width < WIDTH else _width(),
        markup=False,
        highlight=False,
        emoji=False,
        no_color=True,
    ).print(rich_table)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).strip("\n")


def bullets(lines: Sequence[str]) -> str:
    """Return notes below a table: a bullet each, wrapped at the width of a table."""
    return "\n".join(textwrap.fill(plain(line), _width(), initial_indent="* ", subsequent_indent="  ") for line in lines)


def _width() -> int:
    """Return the width of the terminal, WIDTH if the output is not a terminal."""
    watched = sys.stdout.isatty() or sys.stderr.isatty()
    return max(shutil.get_terminal_size((WIDTH, 24)).columns if watched else WIDTH, 40)


def json_text(value: Any, **options: Any) -> str:
    """Return readable JSON in which every character that a terminal obeys is escaped."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False, **options))


def in_notebook() -> bool:
    """Return whether this is the kernel of a notebook, which shows progress bars although it has no terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


class Progress:
    """Show how much of a task is done and when it will end: a bar, or lines at growing intervals without a terminal.

    Nothing is shown of a task that takes less than `delay` seconds. The items of the first report may include the compilation of
    programs, so the time left is estimated from later ones; a task without `delay` is reported after its compilation.
    """

    def __init__(self, label: str, total: int, unit: str, initial: int = 0, delay: float = DELAY, has_rate: bool = True) -> None:
        """Start with `initial` of `total` done. `unit` is a plural, such as "sentences". `has_rate`: show units per second."""
        self.label, self.total, self.unit, self.done = plain(label), total, unit, initial
        self._finished, self._delay, self._bar, self._has_rate = initial, delay, None, has_rate
        self._start, self._first, self._last_line, self._printed = time.monotonic(), initial, -math.inf, initial
        self._measured_from = None if delay else (initial, self._start)  # number of items and time
        if is_watched():
            self._bar = _bar()(
                total=total,
                desc=self.label,
                unit=f" {unit}",
                initial=initial,
                delay=delay,
                dynamic_ncols=True,
                file=lasting(sys.stderr),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def update(self, count: int = 1) -> None:
        """Add `count` to the number of finished items."""
        self.show(self.done + count)

    def finish(self, count: int) -> None:
        """Add `count` to the number at the last call, which replaces the counts of `update` since then (of distinct texts, say).

        Items of which `update` has counted none existed before: the estimates leave them out.
        """
        if self.done == self._finished:
            self._skip(count)
        self._finished += count
        self.show(self._finished)

    def show(self, done: int, note: str = "") -> None:
        """Set the number of finished items, and show `note` next to it."""
        self.done = done
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._bar.n)
            return
        now = time.monotonic()
        elapsed = now - self._start
        if self._measured_from is None and done > self._first:
            self._measured_from = done, now
        pause = min(max(SHORTEST, elapsed / 20), LONGEST)
        is_due = now - self._last_line > pause or done == self.total
        if done > max(self._first, self._printed) and elapsed >= self._delay and is_due:
            self._last_line, self._printed = now, done
            facts = [note, *self._estimates(done, now, elapsed)]
            print_line(f"{self.label} {done}/{self.total}: {', '.join(filter(None, facts))}", "stderr")

    def _estimates(self, done: int, now: float, elapsed: float) -> list[str]:
        """Return the texts of the rate, if shown, the time so far and the time left; at the first report only the time so far."""
        first, since = self._measured_from or (done, now)
        if done == self.total:
            first, since = self._first, self._start
        if done == first or (done < self.total and now - since < LEAST_MEASURED):
            return [f"{_clock(elapsed)} done"]
        seconds = (now - since) / (done - first)  # of one unit
        times = [f"{_clock(elapsed)} done", f"{_clock((self.total - done) * seconds)} left"]
        rate = 1 / max(seconds, 1e-9)
        number = f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"
        return [f"{number} {self.unit}/s", *times] if self._has_rate else times

    def _skip(self, count: int) -> None:
        """Leave `count` items out of the estimates."""
        self._first += count
        self._measured_from = None if self._delay else (self.done + count, time.monotonic())
        if self._bar is not None:
            self._bar.initial += count
            self._bar.n = self._bar.last_print_n = self.done + count

    def restart(self) -> None:
        """Start again from zero."""
        self.done = self._finished = self._first = self._printed = 0
        self._start = time.monotonic()
        self._measured_from = None if self._delay else (0, self._start)
        if self._bar is not None:
            self._bar.reset()

    def write(self, text: str, name: Literal["stdout", "stderr"] = "stderr") -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print_line(text, name)
        if self._bar is not None and self._bar.n > self._first:
            self._bar.refresh()

    def close(self) -> None:
        """End the bar; later output is written below it."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@contextlib.contextmanager
def counted(label: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Provide a function that shows how many of all items are finished; 0 finished items start the count."""
    bars: list[Progress] = []

    def show(done: int, total: int) -> None:
        if not done or not bars:
            for bar in bars:
                bar.close()
            bars[:] = [Progress(label, total, unit)]
        bars[0].show(done)

    try:
        yield show
    finally:
        for bar in bars:
            bar.close()


def _clock(seconds: float) -> str:
    """Return seconds as "MM:SS" or "H:MM:SS"."""
    from tqdm import tqdm

    return tqdm.format_interval(seconds)


def is_watched() -> bool:
    """Return whether standard error is a terminal or a notebook, where a bar can move."""
    return (sys.stderr is not None and sys.stderr.isatty()) or in_notebook()


@functools.cache
def _bar() -> "type[tqdm[Any]]":
    """Return tqdm's progress bar: a widget in a notebook that has widgets, otherwise text.

    It starts no monitor thread, since that thread would stay in the process.
    """
    if in_notebook() and importlib.util.find_spec("ipywidgets"):
        from tqdm.notebook import tqdm
    else:
        from tqdm.std import tqdm
    unwatched: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    return unwatched
