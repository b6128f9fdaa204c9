"""Checks the headers of .npy files before anything is allocated or mapped for their arrays."""

import io
import math
from typing import IO

import numpy as np

LONGEST_HEADER = 1 << 14  # bytes; that of an array of numbers has 118


def check_npy(opened: IO[bytes], size: int) -> None:
    """Raise ValueError unless a .npy file of `size` bytes, opened at its beginning, has exactly the numbers of its header."""
    version = np.lib.format.read_magic(opened)
    width = 2 if version == (1, 0) else 4  # bytes of the length of the header
    first = opened.read(width)
    length = int.from_bytes(first, "little")
    if length > LONGEST_HEADER:
        raise ValueError(f"its header has {length:,} bytes")
    rest = io.BytesIO(first + opened.read(length))
    read = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(rest)
    if dtype.hasobject:
        raise ValueError("it has Python objects, which are never loaded")
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    promised, there = math.prod(shape) * dtype.itemsize, size - len(np.lib.format.magic(*version)) - width - length
    if promised != there:
        raise ValueError(f"its header promises {promised:,} bytes of numbers, the file has {there:,}")
