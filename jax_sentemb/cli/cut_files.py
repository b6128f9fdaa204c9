"""Report a memory-mapped file that is truncated while it is read: one line and an exit code instead of death by SIGBUS."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys

from jax_sentemb.errors import DataError, ResourceError, plain

_ADDRESS = 16  # offset in siginfo_t of the address that could not be read, on 64-bit Linux
_SIGINFO = 4  # SA_SIGINFO: the handler receives a siginfo_t


class _Action(ctypes.Structure):
    """The struct sigaction of Linux with glibc or musl."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


def install() -> None:
    """Let SIGBUS end this process with one line that names the file. On systems other than 64-bit Linux, do nothing.

    Python cannot handle SIGBUS, because its handlers run after the C handler returns, and the read would fail again forever. The C
    handler below runs Python code at once. This is safe because the thread was reading memory, not allocating it.
    """
    if sys.platform == "linux" and sys.maxsize > 2**32 and not faulthandler.is_enabled():
        action = _Action(handler=ctypes.cast(_handler, ctypes.c_void_p), flags=_SIGINFO)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).sigaction(int(signal.SIGBUS), ctypes.byref(action), None)


def _end(number: int, information: int, context: int) -> None:
    address = ctypes.c_uint64.from_address(information + _ADDRESS).value
    file, offset = _mapped_at(address)
    problem, code = f"{file} was truncated while it was read: run the command again", DataError.exit_code
    with contextlib.suppress(OSError):
        if os.stat(file).st_size > offset:  # the file is long enough, so the disk is the cause
            problem, code = (
                f"{file} cannot be read or written: its disk is full or damaged; free space or use another disk",
                ResourceError.exit_code,
            )
    os.write(2, f"error: {plain(problem)}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)


def _mapped_at(address: int) -> tuple[str, int]:
    """Return the file that is mapped at an address of memory, and the offset in it."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            bounds, _, start, _, _, *name = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(bound, 16) for bound in bounds.split("-"))
            if first <= address < last and name:
                return name[0], address - first + int(start, 16)
    return "a memory-mapped file", 0


_handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)(
    _end
)  # a global reference, since C holds only its address
