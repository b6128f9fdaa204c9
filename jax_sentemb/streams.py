"""Standard streams that never end a program: what a closed pipe, a lost terminal or a full disk does not take is dropped."""

import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import Any

LOST = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.ECONNRESET)  # nobody will read any more: a pipe or a terminal that is gone


class _Lasting(io.FileIO):
    """File descriptor 1 or 2. `lost`: its reader is gone. `refused`: the error of a file that took no more, as on a full disk."""

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
                _to_nothing(self.fileno())  # for libraries in C++, too
            else:
                self.refused = error
        return size


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


@contextlib.contextmanager
def protected() -> Iterator[None]:
    """`protect` for the block, in a program of somebody else, whose stream objects and their encodings are put back."""
    before = [(stream, getattr(stream, "encoding", None), getattr(stream, "errors", None)) for stream in (sys.stdout, sys.stderr)]
    protect()
    try:
        yield
    finally:
        for name, (stream, encoding, errors) in zip(("stdout", "stderr"), before, strict=True):
            if (ours := getattr(sys, name)) is not None:
                ours.flush()
            setattr(sys, name, stream)
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding=encoding, errors=errors)


def _lasting(stream: io.TextIOWrapper, number: int) -> io.TextIOWrapper:
    """A stream as `stream` that lasts; `stream` itself where it does not write to `number`: one of a test, or of a notebook."""
    raw: Any = getattr(stream.buffer, "raw", stream.buffer)
    if type(raw) is not io.FileIO or raw.fileno() != number:
        return stream
    stream.flush()
    raw = _Lasting(number, "wb", closefd=False)
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
