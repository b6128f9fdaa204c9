"""What Ctrl-C does to a command: no traceback, whenever it comes and however often."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

EXIT_CODE = 130  # as a shell reports a process that SIGINT ended


def end_at_once() -> None:
    """Let Ctrl-C end this process at once: while it starts, when nothing is written yet, and while the interpreter ends."""
    _handle(_end)


def clean_up_first() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, so that temporary files are deleted, and a second one end this process at once."""
    _handle(_interrupt)


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end this process at once in the block, until a run that has something to save handles it.

    As an exception it can be lost: JAX calls Python from its compiler and from finalizers, which swallow it or crash.
    """
    before = signal.getsignal(signal.SIGINT)
    _handle(_end)
    try:
        yield
    finally:
        _handle(before)


def show_unraisable(unraisable: Any) -> None:
    """Replace sys.unraisablehook: end the process if a finalizer or a callback has swallowed the KeyboardInterrupt."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        os._exit(EXIT_CODE)
    # TensorStore's threads remark this after a write that failed, dozens of times. Orbax raises the failure itself.
    if not (isinstance(unraisable.exc_value, RuntimeError) and str(unraisable.exc_value) == "Event loop is closed"):
        sys.__unraisablehook__(unraisable)


def _interrupt(number: int, frame: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _end(number: int, frame: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the signal came during a print
        sys.stdout.flush()
    os._exit(EXIT_CODE)


def _handle(handler: Any) -> None:
    """Install a handler, unless the signal was ignored at the start, as by a shell's &."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)
