"""Respect the process that the package runs in: the processors it may use, and its logging configuration."""

import contextlib
import logging
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of processor time in each period, or "max"


def usable_cpus() -> int:
    """Return the number of processors that this process may use.

    taskset, a batch system or the quota of a container may allow fewer than exist.
    """
    existing = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text(encoding="ascii").split()
        return min(existing, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no quota: no such file, or "max"
        return existing


_lock = threading.Lock()
_blocks = 0  # blocks of `unchanged_logging` that run now, in all threads


class _LastResort(logging.Handler):
    """Print what Python prints if no handler is configured: warnings and errors, if no other handler gets them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record that no other handler gets."""
        last_resort = logging.lastResort
        if last_resort and record.levelno >= last_resort.level and not self._has_other_handler(record):
            last_resort.handle(record)

    def _has_other_handler(self, record: logging.LogRecord) -> bool:
        """Return whether another handler gets the record."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


_root_handler = _LastResort()


@contextlib.contextmanager
def unchanged_logging() -> Iterator[None]:
    """Keep absl from configuring the root logger of the process.

    absl, with which Orbax logs, calls logging.basicConfig at its first message if the root logger has no handler. Later calls of
    basicConfig by the program would then have no effect. Inside the block the root logger has a handler that changes nothing.
    """
    global _blocks
    with _lock:
        _blocks += 1
        if _blocks == 1:
            logging.root.addHandler(_root_handler)
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                logging.root.removeHandler(_root_handler)
