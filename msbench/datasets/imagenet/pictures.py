"""Picture files in place: checked once, compared with their checksum whenever read, decoded to RGB.

- JPEG and PNG are recognised by their first bytes, whatever the file name; others are refused.
- Grey, CMYK, palettes, transparency and 16 bits all become RGB with 8 bits; transparency is dropped.
- Metadata are removed before decoding: nothing in EXIF or XMP can break it, and no picture is rotated.
- A truncated picture is an error, never filled up with grey. Wrong bytes in the middle of a JPEG are not:
  its decoder skips them, and the format has no checksum.

A quick check reads both ends of a file and accepts one that has a format's first bytes and end mark; only
one without an end mark is decoded. In a full check every file is decoded, and any byte that changes later
is noticed.
"""

import io
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from msbench.datasets.dataset import Progress
from msbench.errors import DataError
from msbench.results.files import open_regular, read_bytes

END = 64
"""Bytes at either end of a file that a quick check reads."""
AT_ONCE = 512
PER_PROCESSOR = 4
"""Threads a core: a quick check waits for the disk nearly all of its time."""


@dataclass(frozen=True)
class PictureSizes:
    """Sizes in bytes (n,) int64 and CRC-32 (n,) uint32 of files, and the faults of some, by name.

    The CRC is of both ends of a file, or of all of it after a full check.
    """

    sizes: NDArray[np.int64]
    checksums: NDArray[np.uint32]
    faults: dict[str, str]


def check_files(
    root: Path, names: Sequence[str], *, full: bool, processes: int, progress: Progress
) -> PictureSizes:
    """Check the files below `root`. Raises DataError where one cannot be read."""
    seen = PictureSizes(np.zeros(len(names), np.int64), np.zeros(len(names), np.uint32), {})
    threads = processes if full else PER_PROCESSOR * processes
    with ThreadPoolExecutor(threads, "look") as pool:
        for start in range(0, len(names), AT_ONCE):
            progress("looking at images", start, len(names))
            chunk = names[start : start + AT_ONCE]
            paths = [root / name for name in chunk]
            for number, found in enumerate(pool.map(_check_whole if full else _check_ends, paths), start):
                seen.sizes[number], seen.checksums[number], fault = found
                if fault:
                    seen.faults[names[number]] = fault
    progress("looking at images", len(names), max(len(names), 1))
    return seen


def read_checked(path: Path, size: int, checksum: int, *, full: bool) -> bytes:
    """Return the bytes of a file that was checked. Raises DataError where it has changed since."""
    data = _read_bytes(path)
    found = zlib.crc32(data) if full else compute_checksum_of_ends(data[:END], data[-END:])
    if len(data) != size or found != checksum:
        raise DataError(
            f"{path}: is not the file that was set up (then {size:,} bytes, now {len(data):,}, or others):"
            " put it back, or set the images up again"
        )
    return data


def compute_checksum_of_ends(head: bytes, tail: bytes) -> int:
    """Return the CRC-32 of the first and the last bytes of a file."""
    return zlib.crc32(tail, zlib.crc32(head))


def _check_ends(path: Path) -> tuple[int, int, str]:
    try:
        descriptor = open_regular(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            head = os.pread(descriptor, END, 0)
            tail = os.pread(descriptor, END, max(0, size - END))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _report_unreadable(path, error) from None
    try:
        fault = "" if has_end(head, tail) else _find_fault(_read_bytes(path))
    except ValueError as error:
        fault = str(error)
    return size, compute_checksum_of_ends(head, tail), fault


def _check_whole(path: Path) -> tuple[int, int, str]:
    data = _read_bytes(path)
    return len(data), zlib.crc32(data), _find_fault(data)


def _find_fault(data: bytes) -> str:
    try:
        decode_picture(data)
    except ValueError as error:
        return str(error)
    return ""


def _read_bytes(path: Path) -> bytes:
    try:
        return read_bytes(path, None)
    except OSError as error:
        raise _report_unreadable(path, error) from None


def _report_unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read: {error.strerror}")


def list_first(faults: Sequence[str], most: int = 10) -> Iterator[str]:
    """Yield the first few of many lines, and the number of further ones."""
    yield from faults[:most]
    if len(faults) > most:
        yield f"and {len(faults) - most:,} more"


JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
ENDS = {JPEG: b"\xff\xd9", PNG: b"IEND"}
FORMATS = {JPEG: ("JPEG",), PNG: ("PNG",)}
WITHIN = 16
"""Last bytes searched for the end mark: four bytes follow it in a PNG, and zeros in some JPEG."""
SCAN = 0xDA
METADATA = {*range(0xE1, 0xEE), 0xEF, 0xFE}  # all APPn but JFIF's and Adobe's, which define the colours
BROKEN = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    IndexError,
    TypeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""Exceptions that Pillow raises for bytes that are no picture or a damaged one."""


def decode_picture(data: bytes) -> Image.Image:
    """Return the picture as RGB. Raises ValueError saying what is wrong with it."""
    magic = find_magic(data)
    try:
        image = Image.open(
            io.BytesIO(strip_metadata(data) if magic == JPEG else data), formats=FORMATS[magic]
        )
        image.load()
        return _convert_to_rgb(image)
    except BROKEN as error:
        raise ValueError(f"cannot be decoded: {error}") from None


def find_magic(head: bytes) -> bytes:
    """Return the first bytes of the format. Raises ValueError where it is neither JPEG nor PNG."""
    if not head:
        raise ValueError("is empty")
    for magic in ENDS:
        if head.startswith(magic):
            return magic
    raise ValueError("is neither JPEG nor PNG")


def has_end(head: bytes, tail: bytes) -> bool:
    """Return True if the last bytes of a file hold the end mark of the format of its first bytes."""
    return ENDS[find_magic(head)] in tail[-WITHIN:]


def strip_metadata(data: bytes) -> bytes:
    """Return a JPEG without metadata, or unchanged where its segments cannot be followed."""
    kept, place = [data[:2]], 2
    while place + 4 <= len(data) and data[place] == 0xFF and data[place + 1] != SCAN:
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        if data[place + 1] not in METADATA:
            kept.append(data[place:end])
        place = end
    if data[place : place + 2] != bytes((0xFF, SCAN)):
        return data
    return b"".join((*kept, data[place:]))


def _convert_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):  # 16 bits: the upper 8 are those of an 8-bit picture
        grey = (np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")
