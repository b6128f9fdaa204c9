"""python -m jax_sentemb.main --config RECIPE [--workdir DIR] [--config.section.field=value ...], also `jax-sentemb train`."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from jax_sentemb.allocator import keep_freed_memory
from jax_sentemb.cli.config_flags import parse
from jax_sentemb.cli.config_flags import parser as parser
from jax_sentemb.cli.program import program


def main(argv: list[str]) -> int:
    """Exit code of a run with the command line `argv` (program name first)."""
    config, workdir, how = parse(argv)
    keep_freed_memory()
    from jax_sentemb.parallel import Join, join  # after parsing: --help and mistakes answer without loading JAX's compiler

    join(Join(**how))
    from jax_sentemb.training.run import run

    with interrupts_end_at_once():
        return run(config, workdir)


@contextlib.contextmanager
def interrupts_end_at_once() -> Iterator[None]:
    """A block in which SIGINT ends the process with exit code 130, until a run that has something to save handles it.

    As an exception it can be lost: JAX calls Python from its compiler and from finalizers, which swallow it or crash.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) != signal.default_int_handler:
        yield
        return

    def end(number: int, frame: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the signal came during a print
            sys.stdout.flush()
        os._exit(130)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    sys.exit(program(main, sys.argv))
