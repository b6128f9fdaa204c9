"""Control how glibc's malloc keeps freed memory. With another C library the functions do nothing."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

TRIM_THRESHOLD, MMAP_LIMIT, ARENAS = -1, -4, -8  # parameters of mallopt(3); mallopt.h has them as M_TRIM_THRESHOLD, ...
USER_VARIABLES = (
    "MALLOC_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)  # prefixes of variables by which a user chooses another behaviour or allocator


def keep_freed_memory() -> None:
    """Make malloc reuse large buffers; a process that runs one program many times calls this before it starts threads.

    XLA's programs for CPUs allocate all temporaries of a call in one buffer. Above 32 MB malloc requests new pages from the kernel
    each time, and the kernel clears them: 13 of 71 processor seconds of a short run (benchmarks/README.md). The price is memory
    that stays with the process until `return_freed_memory`.
    """
    if any(name.startswith(USER_VARIABLES) for name in os.environ):
        return
    with _glibc() as library:
        library.mallopt(ARENAS, 1)  # those of other threads cannot hold more than 64 MB
        library.mallopt(MMAP_LIMIT, 0)
        library.mallopt(TRIM_THRESHOLD, -1)  # never: temporaries of a BERT-base exceed the largest number of bytes


def return_freed_memory() -> None:
    """Return the memory that malloc holds free to the system: 300 MB after compiling, in milliseconds."""
    with _glibc() as library:
        library.malloc_trim(0)


@contextlib.contextmanager
def _glibc() -> Iterator[ctypes.CDLL]:
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        yield ctypes.CDLL(None)
