import io

import numpy as np
import pytest
from image_files import encoded, jpeg, pixels
from PIL import Image

from msbench.datasets.pictures import bare, decode, has_end


def array(data: bytes) -> np.ndarray:
    image = decode(data)
    assert image.mode == "RGB"
    return np.asarray(image)


def with_segments(data: bytes, *segments: tuple[int, bytes]) -> bytes:
    """A JPEG with APPn or other segments behind its first."""
    added = b"".join(
        bytes((0xFF, marker)) + (len(content) + 2).to_bytes(2, "big") + content
        for marker, content in segments
    )
    return data[:2] + added + data[2:]


@pytest.mark.parametrize(
    ("data", "tolerance"),
    [
        (encoded(pixels(), "PNG"), 0),
        (encoded(pixels(), "PNG", "RGBA"), 0),
        (encoded(pixels()), 8),
        (encoded(pixels(), "JPEG", "CMYK"), 8),
    ],
    ids=["png", "rgba", "jpeg", "cmyk"],
)
def test_all_kinds_become_rgb(data: bytes, tolerance: int) -> None:
    assert np.abs(array(data).astype(int) - pixels()).max() <= tolerance


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_grey_becomes_three_equal_colours(kind: str) -> None:
    shown = array(encoded(pixels(colours=1), kind)).astype(int)
    assert np.abs(shown - pixels(colours=1)).max() <= 4
    assert np.ptp(shown, axis=2).max() == 0


def test_of_16_bits_the_upper_ones_stay() -> None:
    deep = pixels(colours=1)[..., 0].astype(np.uint16) * 257
    assert np.array_equal(array(encoded(deep, "PNG"))[..., 0], pixels(colours=1)[..., 0])


def test_a_palette_with_transparency_is_unfolded() -> None:
    image = Image.fromarray(pixels()).quantize(16)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", transparency=bytes(range(16)))
    assert np.array_equal(array(buffer.getvalue()), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(
    "segment",
    [
        (0xE1, b"Exif\0\0" + b"\xff" * 40),
        (0xE1, b"Exif\0\0II*\0\x08\0\0\0\xff\xff"),
        (0xE1, b"http://ns.adobe.com/xap/1.0/\0<x>\xff\xfe</x>"),
        (0xED, b"Photoshop 3.0\0" + b"8BIM" * 3),
        (0xFE, b"\xff\xd9"),
    ],
    ids=["exif", "exif cut", "xmp", "photoshop", "comment"],
)
def test_broken_metadata_change_nothing(segment: tuple[int, bytes]) -> None:
    data = with_segments(jpeg(), segment)
    assert np.array_equal(array(data), array(jpeg()))
    assert bare(data) == jpeg()


def test_no_picture_is_rotated() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter, says the camera
    wide = pixels()[:12]
    assert array(encoded(wide, exif=exif)).shape == wide.shape


def test_what_says_how_colours_are_meant_stays() -> None:
    cmyk = encoded(pixels(), "JPEG", "CMYK")
    assert b"Adobe" in bare(cmyk)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_cut_picture_is_an_error(kind: str, share: float) -> None:
    whole = encoded(pixels(64), kind)
    cut = whole[: int(len(whole) * share)]
    assert has_end(whole[:64], whole[-64:])
    assert not has_end(cut[:64], cut[-64:])
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode(cut)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "is empty"),
        (b"GIF89a" + b"\0" * 50, "is neither JPEG nor PNG"),
        (b"\xff\xd8\xff", "cannot be decoded"),
        (b"\xff\xd8\xff\xe1\x00\x00", "cannot be decoded"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "cannot be decoded"),
        (jpeg()[:3] + b"\0" * 200, "cannot be decoded"),
    ],
)
def test_what_is_no_picture_is_an_error(data: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        decode(data)


def test_zeros_behind_the_end_are_no_fault() -> None:
    data = jpeg() + b"\0" * 14
    assert has_end(data[:64], data[-64:])
    assert np.array_equal(array(data), array(jpeg()))
