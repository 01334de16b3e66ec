"""The same images whoever draws them, and images like the original generator's."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pathfinder_statistics import Estimate, statistics
from release_images import rows_of

from msbench.datasets.pathfinder import generate as pathfinder_native
from msbench.datasets.pathfinder.dataset import Release
from msbench.datasets.pathfinder.generate import BATCH, BLOCK, Engine, generate_images
from msbench.datasets.pathfinder.parameters import Parameters, find_preset
from msbench.datasets.pathfinder.tables import Bytes, Integers

HARD = "curv_contour_length_14"
EASY = "curv_baseline"
GOLDEN = {
    32: (HARD, 4, "5d29e3fa038cb2de"),
    64: (EASY, 3, "057fa76e675a23e7"),
    128: (HARD, 2, "d49c78020a447064"),
    256: (HARD, 2, "67574c9ed33b7a77"),
}


def images_of(parameters: Parameters, seed: int, images: int, **how: object) -> tuple[Bytes, Integers]:
    blocks = list(generate_images(parameters, seed, images, **how))  # type: ignore[arg-type]
    labels = np.concatenate([block.labels for block in blocks])
    return np.concatenate([block.images for block in blocks]), labels


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
    alone, labels = images_of(parameters, 4, 130, processes=1)
    together, same_labels = images_of(parameters, 4, 130, processes=2)
    assert (alone == together).all()
    assert (labels == same_labels).all()


def test_generation_starts_wherever_it_is_asked_to() -> None:
    parameters = find_preset(32, EASY)
    all_of_them, labels = images_of(parameters, 4, BATCH + 30, processes=1)
    some, their_labels = images_of(parameters, 4, BATCH + 30, first=BATCH - BLOCK - 7, processes=1)
    assert (all_of_them[BATCH - BLOCK - 7 :] == some).all()
    assert (labels[BATCH - BLOCK - 7 :] == their_labels).all()
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
    labels = np.array([label for label, _ in read])
    metadata = (folder / HARD / "metadata").glob("*.npy")
    settings = {line.split(" ", 4)[4] for path in metadata for line in path.read_text().splitlines()}
    return np.stack([image for _, image in read]), labels, settings


@pytest.mark.parametrize(("size", "count", "originals"), [(32, 2_000, 1_000), (128, 150, 32)])
def test_images_are_like_those_of_the_original_generator(
    sample: Callable[..., Path], size: int, count: int, originals: int
) -> None:
    theirs, their_labels, settings = original(sample, size)
    assert len(theirs) == originals
    parameters = find_preset(size, HARD, documented_distractors=True)
    blocks = list(generate_images(parameters, 1, count, processes=1))
    assert {row.split(" ", 4)[4] for row in rows_of(parameters, 1, range(count))} == settings
    images = np.concatenate([block.images for block in blocks])
    labels = np.concatenate([block.labels for block in blocks]).astype(np.int64)
    ours = statistics(images, labels, parameters.marker_radius)
    for name, estimate in statistics(theirs, their_labels, parameters.marker_radius).items():
        assert abs(ours[name].deviations(estimate)) < 4, (name, ours[name], estimate)


def test_a_label_says_nothing_of_how_bright_an_image_is() -> None:
    images, labels = images_of(find_preset(32, EASY), 3, 600, processes=1)
    found = statistics(images, labels.astype(np.int64), 1.5)
    assert abs(found["brightness, label 0"].deviations(found["brightness, label 1"])) < 4
    assert abs(found["label"].deviations(Estimate(0.5, 0.0))) < 4
    assert found["brightest"] == Estimate(255.0, 0.0)
