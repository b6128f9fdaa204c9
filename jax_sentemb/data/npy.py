"""Check the headers of .npy files before anything is allocated or mapped for their arrays."""

import io
import math
from typing import IO

import numpy as np

LONGEST_HEADER = 1 << 14  # bytes; the header of an array of numbers has 118


def check_npy(stream: IO[bytes], size: int) -> None:
    """Raise ValueError unless a .npy file has exactly the numbers that its header describes.

    Args:
        stream: The file, opened at its beginning.
        size: The number of bytes of the file.
    """
    version = np.lib.format.read_magic(stream)
    width = 2 if version == (1, 0) else 4  # bytes of the length of the header
    first = stream.read(width)
    length = int.from_bytes(first, "little")
    if length > LONGEST_HEADER:
        raise ValueError(f"its header has {length:,} bytes")
    header = io.BytesIO(first + stream.read(length))
    read = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(header)
    if dtype.hasobject:
        raise ValueError("it has Python objects, which are never loaded")
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    expected, actual = math.prod(shape) * dtype.itemsize, size - len(np.lib.format.magic(*version)) - width - length
    if expected != actual:
        raise ValueError(f"its header describes {expected:,} bytes of numbers, the file has {actual:,}")
