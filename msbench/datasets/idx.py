"""IDX, the file format of MNIST: magic and sizes as big-endian words, then bytes."""

import math
import struct

import numpy as np
from numpy.typing import NDArray

UNSIGNED_BYTES = 0x08


def parse(content: bytes, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of unsigned bytes in a file of this many dimensions.

    Raises ValueError where the magic differs, the file is truncated, or bytes follow its end.
    """
    magic = UNSIGNED_BYTES << 8 | dimensions
    header = 4 * (1 + dimensions)
    if len(content) < header:
        raise ValueError(f"has {len(content)} bytes, fewer than its header of {header}")
    found, *shape = struct.unpack(f">{1 + dimensions}I", content[:header])
    if found != magic:
        raise ValueError(f"begins with {found:#010x}, not {magic:#010x}: is no IDX file of this kind")
    expected = header + math.prod(shape)
    if len(content) != expected:
        sizes = " x ".join(map(str, shape))
        raise ValueError(f"has {len(content):,} bytes instead of {expected:,} for {sizes}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
