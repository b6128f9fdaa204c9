"""Handle Ctrl-C in a command without a traceback, at any time and any number of times."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

EXIT_CODE = 130  # the code that a shell reports for a process that SIGINT ended


def end_at_once() -> None:
    """Let Ctrl-C end this process at once, while it starts and has written nothing, and while the interpreter ends."""
    _handle(_end)


def clean_up_first() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, so that temporary files are deleted. A second Ctrl-C ends this process at once."""
    _handle(_interrupt)


def came() -> bool:
    """Return whether Ctrl-C has raised KeyboardInterrupt, even if C code has replaced it by another exception, as imports do."""
    return signal.getsignal(signal.SIGINT) == signal.SIG_DFL


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end this process at once in the block, until a run that has something to save handles it.

    An exception could be lost here, because JAX calls Python from its compiler and from finalizers, which swallow it or crash.
    """
    previous = signal.getsignal(signal.SIGINT)
    _handle(_end)
    try:
        yield
    finally:
        _handle(previous)


def show_unraisable(unraisable: Any) -> None:
    """End the process if a finalizer or a callback has swallowed the KeyboardInterrupt. This is a sys.unraisablehook.

    TensorStore's late "Event loop is closed" errors after a failed write are ignored, since Orbax raises the failure itself.
    """
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        os._exit(EXIT_CODE)
    if not (isinstance(unraisable.exc_value, RuntimeError) and str(unraisable.exc_value) == "Event loop is closed"):
        sys.__unraisablehook__(unraisable)


def _interrupt(number: int, frame: Any) -> None:
    """Raise KeyboardInterrupt. The default handler ends the process at the next Ctrl-C, and shows `came` that there was one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _end(number: int, frame: Any) -> None:
    with contextlib.suppress(RuntimeError):  # raised if the signal came during a print
        sys.stdout.flush()
    os._exit(EXIT_CODE)


def _handle(handler: Any) -> None:
    """Install a handler, unless the process was started with the signal ignored, as a shell does for &."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)
