"""The same images whoever draws them, and images like the original generator's."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pathfinder_statistics import Estimate, statistics

from msbench.datasets.pathfinder import generate as pathfinder_native
from msbench.datasets.pathfinder.dataset import Release
from msbench.datasets.pathfinder.generate import BATCH, BLOCK, Engine, generate_images
from msbench.datasets.pathfinder.parameters import Parameters, find_preset
from msbench.datasets.pathfinder.tables import Bytes

HARD = "curv_contour_length_14"
EASY = "curv_baseline"
GOLDEN = {
    32: (HARD, 4, "5d29e3fa038cb2de"),
    64: (EASY, 3, "057fa76e675a23e7"),
    128: (HARD, 2, "d49c78020a447064"),
    256: (HARD, 2, "67574c9ed33b7a77"),
}


def images_of(parameters: Parameters, seed: int, images: int, **how: object) -> tuple[Bytes, list[str]]:
    blocks = list(generate_images(parameters, seed, images, **how))  # type: ignore[arg-type]
    rows = [str(row) for block in blocks for row in block.rows]
    return np.concatenate([block.images for block in blocks]), rows


@pytest.mark.parametrize("size", GOLDEN)
@pytest.mark.parametrize("engine", ["cpp", "python"])
def test_images_are_what_they_were(size: int, engine: Engine) -> None:
    if engine == "cpp" and pathfinder_native.find_native_function() is None:
        pytest.skip("the C++ library was not built")
    difficulty, count, digest = GOLDEN[size]
    images, _ = images_of(find_preset(size, difficulty), 1, count, engine=engine)
    assert hashlib.sha256(images.tobytes()).hexdigest()[:16] == digest


def test_any_number_of_processes_draws_the_same() -> None:
    parameters = find_preset(32, EASY)
    alone, rows = images_of(parameters, 4, 130, processes=1)
    together, same_rows = images_of(parameters, 4, 130, processes=2)
    assert (alone == together).all()
    assert rows == same_rows


def test_generation_starts_wherever_it_is_asked_to() -> None:
    parameters = find_preset(32, EASY)
    all_of_them, rows = images_of(parameters, 4, BATCH + 30, processes=1)
    some, their_rows = images_of(parameters, 4, BATCH + 30, first=BATCH - BLOCK - 7, processes=1)
    assert (all_of_them[BATCH - BLOCK - 7 :] == some).all()
    assert rows[BATCH - BLOCK - 7 :] == their_rows
    assert rows[BATCH + 3].startswith("imgs/1 sample_3.png 3 ")
    assert len({image.tobytes() for image in all_of_them}) == BATCH + 30


def test_seeds_differ_and_progress_is_reported() -> None:
    reports: list[tuple[str, int, int]] = []
    parameters = find_preset(32, EASY)
    blocks = generate_images(parameters, 1, 60, processes=1, progress=lambda *step: reports.append(step))
    first = np.concatenate([block.images for block in blocks])
    assert reports == [("generating pathfinder", done, 60) for done in (0, 50, 60)]
    assert not (first == images_of(parameters, 2, 60)[0]).all(axis=(1, 2)).any()
    assert not list(generate_images(parameters, 1, 0))


def original(
    sample: Callable[..., Path], size: int
) -> tuple[Bytes, np.ndarray[tuple[int], np.dtype[np.int64]], set[str]]:
    folder = sample("pathfinder", f"pathfinder{size}")
    read = list(Release(folder, HARD, size).images())
    labels = np.array([row.label for row, _ in read])
    return np.stack([image for _, image in read]), labels, {str(row).split(" ", 4)[4] for row, _ in read}


@pytest.mark.parametrize(("size", "count", "originals"), [(32, 2_000, 1_000), (128, 150, 32)])
def test_images_are_like_those_of_the_original_generator(
    sample: Callable[..., Path], size: int, count: int, originals: int
) -> None:
    theirs, labels, settings = original(sample, size)
    assert len(theirs) == originals
    parameters = find_preset(size, HARD, documented_distractors=True)
    blocks = list(generate_images(parameters, 1, count, processes=1))
    rows = [row for block in blocks for row in block.rows]
    assert {str(row).split(" ", 4)[4] for row in rows} == settings
    images = np.concatenate([block.images for block in blocks])
    ours = statistics(images, np.array([row.label for row in rows]), parameters.marker_radius)
    for name, estimate in statistics(theirs, labels, parameters.marker_radius).items():
        assert abs(ours[name].deviations(estimate)) < 4, (name, ours[name], estimate)


def test_a_label_says_nothing_of_how_bright_an_image_is() -> None:
    images, rows = images_of(find_preset(32, EASY), 3, 600, processes=1)
    found = statistics(images, np.array([int(row.split()[3]) for row in rows]), 1.5)
    assert abs(found["brightness, label 0"].deviations(found["brightness, label 1"])) < 4
    assert abs(found["label"].deviations(Estimate(0.5, 0.0))) < 4
    assert found["brightest"] == Estimate(255.0, 0.0)
