"""Stop a run after a checkpoint when a signal arrives."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import jax

# A terminal that closes sends SIGHUP to the processes in it. Windows does not have that signal.
STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class Preempted(KeyboardInterrupt):
    """Interrupt work that can be repeated later, because a signal arrived."""


class StopSignal:
    """Handle STOPPING after `watch`: the first signal makes `at(step)` True, a second SIGTERM or SIGINT ends the process at once.

    A signal that was ignored when the process started stays ignored: `nohup` ignores SIGHUP, a shell's & ignores SIGINT. Before
    `watch` and after the end of the block, signals have their usual effect, since there is nothing to save. In a run of several
    processes any process may get the signal: JAX's preemption service catches SIGTERM there, and all processes stop at the same
    step.

    Python runs a handler between two bytecodes, once for all signals of a number that arrived before. The signals in between are
    known only from the bytes, one for each signal, that the C handler writes into a pipe (signal.set_wakeup_fd).
    """

    def __init__(self) -> None:
        self.reached = False
        self._several = jax.process_count() > 1
        self._interruptible = False
        self._previous: dict[int, Any] = {}
        self._pipe: tuple[int, ...] = ()
        self._caught = b""

    def at(self, step: int) -> bool:
        """Return whether to save and stop after this step."""
        if self._several and not self.reached:
            from jax.experimental import multihost_utils

            self.reached = multihost_utils.reached_preemption_sync_point(step)
        return self.reached

    def watch(self) -> None:
        """Install the handlers, once. If JAX catches SIGTERM, SIGHUP is turned into SIGTERM.

        Only the main thread can install them, so a run in another thread cannot be stopped by a signal.
        """
        if self._previous or threading.current_thread() is not threading.main_thread():
            return
        handlers = dict.fromkeys(STOPPING, self._note)
        if self._several:
            handlers = {number: lambda *_: signal.raise_signal(signal.SIGTERM) for number in STOPPING[2:]}
        else:
            self._open_pipe()
        for number, handler in handlers.items():
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # None: Python did not install it and could not restore it
                self._previous[number] = signal.signal(number, handler)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal in the block raise Preempted, for work that can be repeated later; only in a run of one process.

        C code may replace Preempted by another exception, as an import in it does.
        """
        if self.reached and not self._several:
            raise Preempted
        self._interruptible = not self._several
        try:
            yield
        except Exception:
            if self.reached and not self._several:
                raise Preempted from None
            raise
        finally:
            self._interruptible = False

    def __enter__(self) -> "StopSignal":
        return self

    def _note(self, number: int, frame: Any) -> None:
        self.reached = True
        self._read_pipe()
        for caught in self._previous:
            if caught == number or caught not in self._caught:  # the handlers of caught signals run next
                # A shell that ends sends a second SIGHUP to its jobs.
                signal.signal(caught, signal.SIG_IGN if caught in STOPPING[2:] else signal.SIG_DFL)
        self._read_pipe()
        for second in set(self._caught[1:]) & set(STOPPING[:2]):
            signal.signal(second, signal.SIG_DFL)
            signal.raise_signal(second)
        if self._interruptible:
            self._interruptible = False
            raise Preempted

    def _open_pipe(self) -> None:
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        if (earlier := signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)) >= 0:  # an event loop has its own
            signal.set_wakeup_fd(earlier)

    def _read_pipe(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._caught += bytes(number for number in os.read(self._pipe[0], 1000) if number in self._previous)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        if self._pipe:
            if (current := signal.set_wakeup_fd(-1)) not in (-1, self._pipe[1]):
                signal.set_wakeup_fd(current)
            for end in self._pipe:
                os.close(end)
            self._pipe = ()
