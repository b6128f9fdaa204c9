"""One line and an exit code instead of death by SIGBUS, when a memory-mapped file is cut while it is read."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys

from jax_sentemb.errors import DataError, ResourceError, plain

_ADDRESS = 16  # byte of siginfo_t where Linux, on machines of 64 bits, says which address could not be read
_SIGINFO = 4  # SA_SIGINFO: the handler gets a siginfo_t


class _Action(ctypes.Structure):
    """struct sigaction of Linux with glibc or musl."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


def install() -> None:
    """Lets SIGBUS end this process with one line that names the file. Elsewhere than on 64-bit Linux nothing is done.

    Python cannot handle SIGBUS: its handlers run after the C handler returns, and the read would fail again without end. The C
    handler below runs Python code at once, which is safe because the thread was reading memory, not allocating it.
    """
    if sys.platform == "linux" and sys.maxsize > 2**32 and not faulthandler.is_enabled():
        action = _Action(handler=ctypes.cast(_handler, ctypes.c_void_p), flags=_SIGINFO)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).sigaction(int(signal.SIGBUS), ctypes.byref(action), None)


def _end(number: int, information: int, context: int) -> None:
    address = ctypes.c_uint64.from_address(information + _ADDRESS).value
    file, offset = _mapped_at(address)
    problem, code = f"{file} was cut while it was read: start again", DataError.exit_code
    with contextlib.suppress(OSError):
        if os.stat(file).st_size > offset:  # the bytes should be there
            problem, code = f"{file} cannot be read or written: its disk is full or damaged", ResourceError.exit_code
    os.write(2, f"error: {plain(problem)}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)


def _mapped_at(address: int) -> tuple[str, int]:
    """The file that is mapped at an address of memory, and the place in it."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            bounds, _, start, _, _, *name = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(bound, 16) for bound in bounds.split("-"))
            if first <= address < last and name:
                return name[0], address - first + int(start, 16)
    return "a memory-mapped file", 0


_handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)(_end)  # kept: C has only its address
