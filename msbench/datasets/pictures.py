"""Decoding of pictures to RGB: the content of ImageNet's files, whatever their names.

- JPEG and PNG are recognised by their first bytes; others are refused.
- Grey, CMYK, palettes, transparency and 16 bits all become RGB with 8 bits; transparency is dropped.
- Metadata are removed before decoding: nothing in EXIF or XMP can break it, and no picture is rotated.
- A truncated picture is an error, never filled up with grey. Wrong bytes in the middle of a JPEG are not:
  its decoder skips them, and the format has no checksum.
"""

import io
import struct
import zlib

import numpy as np
from PIL import Image

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


def decode(data: bytes) -> Image.Image:
    """Return the picture as RGB. Raises ValueError saying what is wrong with it."""
    magic = magic_of(data)
    try:
        image = Image.open(io.BytesIO(bare(data) if magic == JPEG else data), formats=FORMATS[magic])
        image.load()
        return _as_rgb(image)
    except BROKEN as error:
        raise ValueError(f"cannot be decoded: {error}") from None


def magic_of(head: bytes) -> bytes:
    """Return the first bytes of the format. Raises ValueError where it is neither JPEG nor PNG."""
    if not head:
        raise ValueError("is empty")
    for magic in ENDS:
        if head.startswith(magic):
            return magic
    raise ValueError("is neither JPEG nor PNG")


def has_end(head: bytes, tail: bytes) -> bool:
    """Return True if the last bytes of a file hold the end mark of the format of its first bytes."""
    return ENDS[magic_of(head)] in tail[-WITHIN:]


def bare(data: bytes) -> bytes:
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


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):  # 16 bits: the upper 8 are those of an 8-bit picture
        grey = (np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")
