"""Reading the release's layout: its order, its known fault, and every other fault as one clear message."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from release_images import write_release

from msbench.datasets.pathfinder import generate as pathfinder_generate
from msbench.datasets.pathfinder.dataset import Release
from msbench.datasets.pathfinder.generate import generate_images
from msbench.datasets.pathfinder.parameters import find_preset
from msbench.errors import DataError

EASY = "curv_baseline"
SIDE = 8


def line(batch: int, index: int, label: int = 1) -> str:
    return f"imgs/{batch} sample_{index}.png {index} {label} 1.0 6 2 2 0.5 1 1\n"


def png(value: int, mode: str = "L", side: int = SIDE) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (side, side), value).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Batches 2 and 10 with three images each; the value of a pixel is ten times the batch plus the index."""
    for batch in (10, 2):
        folder = tmp_path / EASY / "imgs" / str(batch)
        folder.mkdir(parents=True)
        for index in range(3):
            (folder / f"sample_{index}.png").write_bytes(png(10 * batch + index))
        metadata = tmp_path / EASY / "metadata"
        metadata.mkdir(exist_ok=True)
        (metadata / f"{batch}.npy").write_text("".join(line(batch, index, index % 2) for index in (1, 0, 2)))
    return tmp_path


def values(folder: Path) -> list[int]:
    return [int(image[0, 0]) for _, image in Release(folder, EASY, SIDE).images()]


def fault(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        list(Release(folder, EASY, SIDE).images())
    assert "\n" not in str(error.value)
    return str(error.value)


def test_order_is_by_batch_number_then_by_line(release: Path) -> None:
    assert values(release) == [21, 20, 22, 101, 100, 102]
    rows = list(Release(release, EASY, SIDE).rows())
    assert [label for _, label in rows] == [1, 0, 0, 1, 0, 0]
    assert rows[0] == ("imgs/2/sample_1.png", 1)


def test_an_array_of_the_public_generator_is_metadata_too(release: Path) -> None:
    path = release / EASY / "metadata" / "2.npy"
    before = list(Release(release, EASY, SIDE).rows())
    np.save(path, np.array([text.split() for text in path.read_text().splitlines()], "<U32"))
    assert list(Release(release, EASY, SIDE).rows()) == before


def test_the_image_known_to_be_empty_is_skipped_and_counted(release: Path) -> None:
    folder = release / EASY / "imgs" / "0"
    folder.mkdir()
    (folder / "sample_172.png").write_bytes(b"")
    (folder / "sample_173.png").write_bytes(png(7))
    (release / EASY / "metadata" / "0.npy").write_text(line(0, 172) + line(0, 173))
    read = Release(release, EASY, SIDE)
    assert [int(image[0, 0]) for _, image in read.images()] == [7, 21, 20, 22, 101, 100, 102]
    assert read.skipped == 1
    (folder / "sample_172.png").write_bytes(png(5))
    assert values(release)[0] == 5


def test_any_other_empty_image_is_an_error(release: Path) -> None:
    (release / EASY / "imgs" / "2" / "sample_0.png").write_bytes(b"")
    assert "imgs/2/sample_0.png: an empty file" in fault(release)


def test_the_empty_image_is_known_on_one_level_only(release: Path) -> None:
    other = release / "curv_contour_length_9"
    (release / EASY).rename(other)
    (other / "imgs" / "0").mkdir()
    (other / "imgs" / "0" / "sample_172.png").write_bytes(b"")
    (other / "metadata" / "0.npy").write_text(line(0, 172))
    with pytest.raises(DataError, match=r"curv_contour_length_9/imgs/0/sample_172.png: an empty file"):
        list(Release(release, other.name, SIDE).images())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (png(1)[:40], "cannot be decoded"),
        (b"GIF89a" + bytes(50), "cannot be decoded"),
        (png(1, side=9), "9 x 9 pixels instead of 8 x 8"),
        (png(1, "I;16"), "pixels of kind I;16; only 8 bits a channel are read"),
    ],
)
def test_a_picture_of_another_kind_is_named(release: Path, content: bytes, says: str) -> None:
    (release / EASY / "imgs" / "10" / "sample_2.png").write_bytes(content)
    assert "imgs/10/sample_2.png: " + says in fault(release)


def test_a_missing_picture_is_named(release: Path) -> None:
    (release / EASY / "imgs" / "10" / "sample_2.png").unlink()
    assert "imgs/10/sample_2.png: no such file, though the metadata list it" in fault(release)


def test_colours_become_grey_as_in_the_public_loaders(release: Path) -> None:
    picture = Image.new("RGB", (SIDE, SIDE), (200, 100, 50))
    picture.save(release / EASY / "imgs" / "2" / "sample_1.png")
    assert values(release)[0] == picture.convert("L").getpixel((0, 0))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (line(2, 0) + line(2, 1, 2), "line 2: the label 2 is neither 0 nor 1"),
        ("imgs/2 sample_0.png 0 1\n", "line 1: 4 fields instead of 11"),
        (line(2, 0).replace("0.5", "thin"), "line 1: paddle_thickness 'thin' is no number"),
        (line(2, 0).replace("imgs/2", "../../2"), "line 1: ../../2/sample_0.png leads out of the folder"),
        ("", "lists no image"),
        ("\N{SNOWMAN}\n", "neither text nor an array"),
    ],
)
def test_a_wrong_line_is_named(release: Path, text: str, says: str) -> None:
    (release / EASY / "metadata" / "2.npy").write_text(text, encoding="utf-8")
    message = fault(release)
    assert "metadata/2.npy" in message
    assert says in message


def test_a_damaged_array_is_named(release: Path) -> None:
    path = release / EASY / "metadata" / "2.npy"
    np.save(path, np.zeros((2, 11)))
    assert "2.npy: an array (2, 11) of float64, not a table of strings" in fault(release)
    np.save(path, np.array([["a"] * 11]))
    path.write_bytes(path.read_bytes()[:-10])
    assert "2.npy: a damaged array" in fault(release)


def test_metadata_without_a_batch_number_and_none_at_all(release: Path) -> None:
    metadata = release / EASY / "metadata"
    (metadata / "all.npy").write_text(line(2, 0))
    assert "all.npy: the name of a metadata file must be a batch number" in fault(release)
    for path in metadata.iterdir():
        path.unlink()
    assert "no metadata files" in fault(release)
    metadata.rmdir()
    assert "metadata: no such folder" in fault(release)


def test_generated_images_are_read_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pathfinder_generate, "BATCH", 100)
    parameters = find_preset(32, EASY)
    write_release(tmp_path / EASY, parameters, 6, 170, batch=100)
    read = list(Release(tmp_path, EASY, 32).images())
    blocks = list(generate_images(parameters, 6, 170, processes=1))
    assert [label for label, _ in read] == np.concatenate([block.labels for block in blocks]).tolist()
    expected = np.concatenate([block.images for block in blocks])
    assert np.array_equal(np.stack([image for _, image in read]), expected)
    first = (tmp_path / EASY / "metadata" / "1.npy").read_text().splitlines()[69]
    assert first.startswith("imgs/1 sample_69.png 69 ")
    assert first.endswith(" 1.0 6 2 2 0.5 1 1")


@pytest.mark.parametrize("name", ["imgs/2/sample_0.png", "metadata/2.npy"])
def test_a_pipe_is_not_waited_for(release: Path, name: str) -> None:
    (release / EASY / name).unlink()
    os.mkfifo(release / EASY / name)
    assert "not a regular file" in fault(release)


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c"])
def test_a_line_of_metadata_ends_at_a_line_feed_alone(release: Path, mark: str) -> None:
    path = release / EASY / "metadata" / "2.npy"
    first, rest = path.read_text().split("\n", 1)
    path.write_bytes(f"{first}{mark}{first}\n{rest}".encode())
    assert fault(release).startswith(f"{path}, line 1: ")
    path.write_bytes(f"{first}\r\n{rest}".encode())
    assert values(release)[:3] == [21, 20, 22]


@pytest.mark.parametrize("mark", ["\x85", "\u2028"])
def test_metadata_that_are_not_ascii_are_named(release: Path, mark: str) -> None:
    path = release / EASY / "metadata" / "2.npy"
    path.write_text(path.read_text().replace("\n", f"{mark}\n", 1), encoding="utf-8")
    assert fault(release) == f"{path}: neither text nor an array of NumPy"
