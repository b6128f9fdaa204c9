"""Provide standard streams that never end a program: output that a closed pipe, a lost terminal or a full disk rejects is lost.

Commands `protect` the streams of their process. The library does not change the streams of its host program: it prints with
`print_line`.
"""

import contextlib
import errno
import io
import os
import select
import sys
from typing import Any, Literal, TextIO

from jax_sentemb.errors import plain

LOST = (errno.EPIPE, errno.EIO, errno.ENXIO, errno.ECONNRESET)  # the pipe or terminal has gone, so nobody will read


class _Lasting(io.FileIO):
    """File descriptor 1 or 2, with writes that never raise."""

    is_of_process = False  # whether to redirect the descriptor to /dev/null when its reader has gone
    lost = False  # whether the reader has gone
    refused: OSError | None = None  # the error of a file that rejected output, as on a full disk

    def write(self, data: Any, /) -> int:
        """Write as much as possible; return the size of `data` in any case."""
        remaining = memoryview(data).cast("B")
        size = len(remaining)
        try:
            while remaining:
                # None: another process that shares the descriptor has made it non-blocking, and it is full.
                if (written := super().write(remaining)) is None:
                    select.select([], [self], [])
                remaining = remaining[written or 0 :]
        except OSError as error:
            if error.errno in LOST:
                self.lost = True
                if self.is_of_process:
                    _redirect_to_null(self.fileno())  # so that libraries in C++ do not fail either
            else:
                self.refused = error
        return size


class _Discard(io.RawIOBase):
    """Discard everything."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Discard `data` and return its size."""
        return len(data)


def protect() -> None:
    """Replace sys.stdout and sys.stderr, if they are those of the process, by streams that never raise; UTF-8 whatever the locale.

    A descriptor that is closed at the start is redirected to /dev/null. Otherwise the next file that is opened would get its
    number, and messages of libraries would be written into that file. A name that is not UTF-8 is printed as its bytes.
    """
    if sys.stdin is None:
        sys.stdin = open(_redirect_to_null(0), encoding="utf-8", closefd=False)  # noqa: SIM115
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(_redirect_to_null(number), "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
            stream = _lasting(stream, number)
        setattr(sys, name, stream)


def print_line(text: str, name: Literal["stdout", "stderr"] = "stdout") -> None:
    """Print text without control characters on sys.stdout or sys.stderr. If the stream rejects it, it is dropped."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
        print(plain(text), file=lasting(getattr(sys, name)), flush=True)


def lasting(stream: TextIO | None) -> TextIO:
    """Return a stream that never raises and writes to the same file as a standard stream, which is not changed.

    If the stream is not a plain file, as in a notebook, it is returned itself.
    """
    if stream is None:  # a program without a console
        nowhere: Any = _Discard()
        return io.TextIOWrapper(nowhere, encoding="utf-8", write_through=True)
    if (number := _descriptor(stream)) is None:
        return stream
    with contextlib.suppress(OSError):
        stream.flush()
    raw: Any = _Lasting(number, "wb", closefd=False)
    return io.TextIOWrapper(raw, encoding=stream.encoding, errors="backslashreplace", write_through=True)


def _descriptor(stream: Any) -> int | None:
    """Return the file descriptor of an open text stream on a plain file; None for a stream of a test or a notebook."""
    if not isinstance(stream, io.TextIOWrapper) or stream.closed:
        return None
    raw: Any = getattr(stream.buffer, "raw", stream.buffer)
    return raw.fileno() if type(raw) is io.FileIO else None


def _lasting(stream: io.TextIOWrapper, number: int) -> io.TextIOWrapper:
    """Return a stream like `stream` that never raises.

    It is `stream` itself if that does not write to `number`, as in a test or a notebook.
    """
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
    """Return whether the reader of standard output has gone, so that a command that only prints can stop."""
    return getattr(_raw(), "lost", False)


def refused_output() -> OSError | None:
    """Return the error of a file that rejected standard output, or None."""
    sys.stdout.flush()
    return getattr(_raw(), "refused", None)


def _redirect_to_null(number: int) -> int:
    """Redirect a file descriptor to /dev/null and return it."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)
    return number
