import struct

import numpy as np
import pytest

from msbench.datasets.idx import parse


def idx(array: np.ndarray, magic: int | None = None) -> bytes:
    word = 0x0800 | array.ndim if magic is None else magic
    return struct.pack(f">{1 + array.ndim}I", word, *array.shape) + array.tobytes()


@pytest.mark.parametrize("shape", [(4,), (2, 3, 5)])
def test_the_shape_is_in_the_file(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(parse(idx(array), len(shape)), array)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "has 0 bytes, fewer than its header of 8"),
        (idx(np.zeros(3, np.uint8))[:-1], "has 10 bytes instead of 11 for 3"),
        (idx(np.zeros(3, np.uint8)) + b"x", "has 12 bytes instead of 11 for 3"),
        (idx(np.zeros(3, np.uint8), magic=0x0D01), "begins with 0x00000d01, not 0x00000801"),
        (idx(np.zeros((1, 1, 1), np.uint8)), "begins with 0x00000803, not 0x00000801"),
    ],
)
def test_what_is_no_such_file_is_refused(content: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse(content, 1)
