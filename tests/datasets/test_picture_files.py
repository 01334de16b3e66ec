from pathlib import Path

import pytest
from image_files import damaged_inside, encoded, jpeg, pixels

from msbench.datasets.dataset import ignore_progress
from msbench.datasets.picture_files import described, look, read
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
    seen = look(folder, list(FILES), full=full, processes=2, progress=ignore_progress)
    assert seen.sizes.tolist() == [len(data) for data in FILES.values()]
    return {list(FILES)[number]: fault for number, fault in seen.faults.items()}


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
            look(tmp_path, ["gone.jpg"], full=full, processes=1, progress=ignore_progress)


@pytest.mark.parametrize("full", [False, True])
def test_a_file_that_changed_is_told(tmp_path: Path, full: bool) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg())
    seen = look(tmp_path, ["a.jpg"], full=full, processes=1, progress=ignore_progress)
    size, checksum = int(seen.sizes[0]), int(seen.checksums[0])
    assert read(path, size, checksum, full=full) == jpeg()
    others = [jpeg()[:-5], jpeg() + b"\0", jpeg()[:-5] + b"\1" + jpeg()[-4:]]
    if full:
        others.append(jpeg()[:300] + bytes([jpeg()[300] ^ 1]) + jpeg()[301:])
    for other in others:
        path.write_bytes(other)
        with pytest.raises(DataError, match=r"a\.jpg: is not the file that was set up"):
            read(path, size, checksum, full=full)


def test_progress_is_told_and_may_stop_it(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    look(
        folder,
        list(FILES),
        full=False,
        processes=1,
        progress=lambda _, done, total: told.append((done, total)),
    )
    assert told == [(0, 7), (7, 7)]


def test_many_lines_are_cut() -> None:
    assert list(described(["a", "b", "c"], most=2)) == ["a", "b", "and 1 more"]
    assert list(described(["a", "b"], most=2)) == ["a", "b"]
