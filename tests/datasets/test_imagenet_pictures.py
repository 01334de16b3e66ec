import io
import os
from pathlib import Path

import numpy as np
import pytest
from image_files import damaged_inside, encoded, jpeg, pixels
from PIL import Image

from msbench.datasets.dataset import ignore_progress
from msbench.datasets.imagenet.pictures import (
    check_files,
    decode_picture,
    has_end,
    list_first,
    read_checked,
    strip_metadata,
)
from msbench.errors import DataError

LARGE = encoded(pixels(64))
FILES = {
    "whole.jpg": LARGE,
    "png.JPEG": encoded(pixels(64), "PNG"),
    "end missing.jpg": LARGE + b"\0" * 100,  # no end mark at the end, but it can be decoded
    "cut.jpg": LARGE[: len(LARGE) // 2],
    "empty.jpg": b"",
    "text.jpg": b"<html>not found</html>",
    "inside.jpg": damaged_inside(),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def faults(folder: Path, *, full: bool) -> dict[str, str]:
    seen = check_files(folder, list(FILES), full=full, processes=2, progress=ignore_progress)
    assert seen.sizes.tolist() == [len(data) for data in FILES.values()]
    return seen.faults


def test_a_glance_finds_what_is_cut(folder: Path) -> None:
    found = faults(folder, full=False)
    assert set(found) == {"cut.jpg", "empty.jpg", "text.jpg"}
    assert found["cut.jpg"].startswith("cannot be decoded: ")
    assert (found["empty.jpg"], found["text.jpg"]) == ("is empty", "is neither JPEG nor PNG")


def test_decoding_finds_what_is_damaged(folder: Path) -> None:
    assert set(faults(folder, full=True)) == {"cut.jpg", "empty.jpg", "text.jpg", "inside.jpg"}


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    for full in (False, True):
        with pytest.raises(DataError, match=r"gone\.jpg: cannot be read: No such file"):
            check_files(tmp_path, ["gone.jpg"], full=full, processes=1, progress=ignore_progress)


@pytest.mark.parametrize("full", [False, True])
def test_a_file_that_changed_is_reported(tmp_path: Path, full: bool) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg())
    seen = check_files(tmp_path, ["a.jpg"], full=full, processes=1, progress=ignore_progress)
    size, checksum = int(seen.sizes[0]), int(seen.checksums[0])
    assert read_checked(path, size, checksum, full=full) == jpeg()
    others = [jpeg()[:-5], jpeg() + b"\0", jpeg()[:-5] + b"\1" + jpeg()[-4:]]
    if full:
        others.append(jpeg()[:300] + bytes([jpeg()[300] ^ 1]) + jpeg()[301:])
    for other in others:
        path.write_bytes(other)
        with pytest.raises(DataError, match=r"a\.jpg: is not the file that was set up"):
            read_checked(path, size, checksum, full=full)


def test_progress_is_reported_and_may_stop_it(folder: Path) -> None:
    reports: list[tuple[int, int]] = []
    check_files(
        folder,
        list(FILES),
        full=False,
        processes=1,
        progress=lambda _, done, total: reports.append((done, total)),
    )
    assert reports == [(0, 7), (7, 7)]


def test_many_lines_are_cut() -> None:
    assert list(list_first(["a", "b", "c"], most=2)) == ["a", "b", "and 1 more"]
    assert list(list_first(["a", "b"], most=2)) == ["a", "b"]


def array(data: bytes) -> np.ndarray:
    image = decode_picture(data)
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
    assert strip_metadata(data) == jpeg()


def test_no_picture_is_rotated() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter, says the camera
    wide = pixels()[:12]
    assert array(encoded(wide, exif=exif)).shape == wide.shape


def test_what_says_how_colours_are_meant_stays() -> None:
    cmyk = encoded(pixels(), "JPEG", "CMYK")
    assert b"Adobe" in strip_metadata(cmyk)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_cut_picture_is_an_error(kind: str, share: float) -> None:
    whole = encoded(pixels(64), kind)
    cut = whole[: int(len(whole) * share)]
    assert has_end(whole[:64], whole[-64:])
    assert not has_end(cut[:64], cut[-64:])
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode_picture(cut)


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
        decode_picture(data)


def test_zeros_behind_the_end_are_no_fault() -> None:
    data = jpeg() + b"\0" * 14
    assert has_end(data[:64], data[-64:])
    assert np.array_equal(array(data), array(jpeg()))


@pytest.mark.parametrize("full", [False, True])
def test_a_pipe_among_the_files_is_not_waited_for(tmp_path: Path, full: bool) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(DataError, match=r"pipe\.jpg: cannot be read: not a regular file"):
        check_files(tmp_path, ["pipe.jpg"], full=full, processes=1, progress=ignore_progress)
    with pytest.raises(DataError, match=r"pipe\.jpg: cannot be read: not a regular file"):
        read_checked(tmp_path / "pipe.jpg", 0, 0, full=full)
