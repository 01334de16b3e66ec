"""Written releases: what the reader reads, whole batches only, and resumed where they stopped."""

from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest

from msbench.datasets.pathfinder import generate as pathfinder_generate
from msbench.datasets.pathfinder import write as pathfinder_write
from msbench.datasets.pathfinder.generate import DrawnImages, generate
from msbench.datasets.pathfinder.parameters import preset
from msbench.datasets.pathfinder.release import Release
from msbench.datasets.pathfinder.write import write_release
from msbench.errors import DataError

EASY = "curv_baseline"
PARAMETERS = preset(32, EASY)
BATCH = 100
IMAGES = BATCH + 70


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module", autouse=True)
def _small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pathfinder_generate, "BATCH", BATCH)
        patched.setattr(pathfinder_write, "BATCH", BATCH)
        yield


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("release")
    write_release(root / EASY, PARAMETERS, 6, IMAGES, processes=1)
    return root


def test_what_is_written_is_read(written: Path) -> None:
    read = list(Release(written, EASY, 32).images())
    blocks = list(generate(PARAMETERS, 6, IMAGES, processes=1))
    assert [row for row, _ in read] == [row for block in blocks for row in block.rows]
    assert (
        np.stack([image for _, image in read]) == np.concatenate([block.images for block in blocks])
    ).all()
    names = {path.name for path in (written / EASY).iterdir()}
    assert names == {"generator.json", "imgs", "metadata"}
    first = (written / EASY / "metadata" / "1.npy").read_text().splitlines()[69]
    assert first.startswith("imgs/1 sample_69.png 69 ")
    assert first.endswith(" 1.0 6 2 2 0.5 1 1")


def test_a_run_that_stops_leaves_whole_batches_and_is_resumed(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(*arguments: object, **how: object) -> Generator[DrawnImages, None, None]:
        for block in generate(*arguments, **how):  # type: ignore[arg-type]
            if block.rows[0].subpath == "imgs/1" and block.rows[0].n == 50:
                raise OSError("no space left")
            yield block

    with monkeypatch.context() as patched:
        patched.setattr(pathfinder_write, "generate", stopping)
        with pytest.raises(DataError, match="cannot be written: no space left"):
            write_release(tmp_path / EASY, PARAMETERS, 6, IMAGES, processes=1)
    assert [path.name for path in (tmp_path / EASY / "metadata").iterdir()] == ["0.npy"]
    assert not (tmp_path / EASY / "imgs" / "1").exists()
    kept = (tmp_path / EASY / "imgs" / "0" / "sample_0.png").stat().st_mtime_ns
    write_release(tmp_path / EASY, PARAMETERS, 6, IMAGES, processes=1)
    assert files(tmp_path / EASY) == files(written / EASY)
    assert (tmp_path / EASY / "imgs" / "0" / "sample_0.png").stat().st_mtime_ns == kept


def test_a_whole_release_is_left_alone(written: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in written.rglob("*")}
    write_release(written / EASY, PARAMETERS, 6, IMAGES, processes=1)
    assert {path: path.stat().st_mtime_ns for path in written.rglob("*")} == times


def test_other_images_do_not_get_into_a_folder(written: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"generator.json: other parameters, seed or number of images"):
        write_release(written / EASY, PARAMETERS, 7, IMAGES)
    (tmp_path / "holiday.png").write_bytes(b"")
    with pytest.raises(DataError, match="holds files that were not generated here"):
        write_release(tmp_path, PARAMETERS, 6, IMAGES)
