"""Standard streams that never end a program: what a closed pipe, a lost terminal or a full disk does not take is dropped.

Commands `protect` the streams of their process. The library changes no stream of its host: it prints with `print_line`.
"""

import contextlib
import errno
import io
import os
import select
import sys
from typing import Any, Literal, TextIO

from jax_sentemb.errors import plain

LOST = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.ECONNRESET)  # nobody will read any more: a pipe or a terminal that is gone


class _Lasting(io.FileIO):
    """File descriptor 1 or 2. `lost`: its reader is gone. `refused`: the error of a file that took no more, as on a full disk."""

    is_of_process = False  # whether the descriptor leads to /dev/null after its reader is gone
    lost = False
    refused: OSError | None = None

    def write(self, data: Any, /) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                if (written := super().write(rest)) is None:  # whoever shares it has made it non-blocking, and it is full
                    select.select([], [self], [])
                rest = rest[written or 0 :]
        except OSError as error:
            if error.errno in LOST:
                self.lost = True
                if self.is_of_process:
                    _to_nothing(self.fileno())  # for libraries in C++, too
            else:
                self.refused = error
        return size


class _Nowhere(io.RawIOBase):
    """Takes everything and keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        return len(data)


def protect() -> None:
    """Replace sys.stdout and sys.stderr, where they are the process's own, by streams that never raise; UTF-8 whatever the locale.

    Of descriptors that are closed at the start the next file that is opened would take the number, and the messages of libraries
    would go into it: they lead to /dev/null from here on. A name that is not UTF-8 is printed as the bytes that it has.
    """
    if sys.stdin is None:
        sys.stdin = open(_to_nothing(0), encoding="utf-8", closefd=False)  # noqa: SIM115
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(_to_nothing(number), "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
            stream = _lasting(stream, number)
        setattr(sys, name, stream)


def print_line(text: str, name: Literal["stdout", "stderr"] = "stdout") -> None:
    """Print text without control characters on sys.stdout or sys.stderr. A stream that takes no more drops it."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
        print(plain(text), file=lasting(getattr(sys, name)), flush=True)


def lasting(stream: TextIO | None) -> TextIO:
    """Return a stream that never raises and leads where a standard stream leads, which it does not change.

    `stream` itself where it is no plain file, as in a notebook.
    """
    if stream is None:  # a program without a console
        nowhere: Any = _Nowhere()
        return io.TextIOWrapper(nowhere, encoding="utf-8", write_through=True)
    if (number := _descriptor(stream)) is None:
        return stream
    with contextlib.suppress(OSError):
        stream.flush()
    raw: Any = _Lasting(number, "wb", closefd=False)
    return io.TextIOWrapper(raw, encoding=stream.encoding, errors="backslashreplace", write_through=True)


def _descriptor(stream: Any) -> int | None:
    """Return the file descriptor of a text stream on a plain file; None for a stream of a test or a notebook, or a closed one."""
    if not isinstance(stream, io.TextIOWrapper) or stream.closed:
        return None
    raw: Any = getattr(stream.buffer, "raw", stream.buffer)
    return raw.fileno() if type(raw) is io.FileIO else None


def _lasting(stream: io.TextIOWrapper, number: int) -> io.TextIOWrapper:
    """A stream as `stream` that lasts; `stream` itself where it does not write to `number`: one of a test, or of a notebook."""
    if _descriptor(stream) != number:
        return stream
    stream.flush()
    raw: Any = _Lasting(number, "wb", closefd=False)
    raw.is_of_process = True
    buffer: Any = raw if stream.write_through else io.BufferedWriter(raw)  # python -u
    return io.TextIOWrapper(
        buffer, encoding="utf-8", errors="surrogateescape", line_buffering=stream.line_buffering, write_through=stream.write_through
    )


def _raw() -> Any:
    buffer = getattr(sys.stdout, "buffer", None)
    return getattr(buffer, "raw", buffer)


def reader_is_gone() -> bool:
    """Whether nobody reads standard output any more, so that a command whose product it is may end."""
    return getattr(_raw(), "lost", False)


def refused_output() -> OSError | None:
    """The error with which a file took no more of standard output."""
    sys.stdout.flush()
    return getattr(_raw(), "refused", None)


def _to_nothing(number: int) -> int:
    """Let a file descriptor lead to /dev/null; the descriptor."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)
    return number
