from collections import Counter

import numpy as np
import pytest
from image_files import pixels
from PIL import Image, ImageOps

from msbench.datasets.imagenet import rand_augment as ra
from msbench.datasets.imagenet.rand_augment import FILL, OPERATIONS, rand_augment

PICTURE = Image.fromarray(pixels(40)[:30])


class Fixed:
    """A generator whose numbers are known: the first sign, the first filter."""

    def random(self) -> float:
        return 0.25

    def integers(self, _bound: int) -> int:
        return 0


def done(name: str, level: float) -> np.ndarray:
    return np.asarray(OPERATIONS[name](PICTURE, level, Fixed()))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPERATIONS)
def test_size_and_colours_stay(name: str) -> None:
    for level in (0.0, 0.9, 1.0):
        changed = OPERATIONS[name](PICTURE, level, np.random.default_rng(0))
        assert (changed.size, changed.mode) == (PICTURE.size, "RGB")
    assert not np.array_equal(done(name, 0.9), np.asarray(PICTURE))


@pytest.mark.parametrize(
    "name", ["rotate", "shear x", "shear y", "translate x", "translate y", "colour", "contrast", "brightness"]
)
def test_at_level_0_nothing_is_changed(name: str) -> None:
    assert np.array_equal(done(name, 0.0), np.asarray(PICTURE))


def test_a_rotation_is_pillows_about_the_centre() -> None:
    expected = PICTURE.rotate(27, Image.Resampling.BILINEAR, fillcolor=FILL)
    assert np.abs(done("rotate", 0.9).astype(int) - np.asarray(expected)).max() <= 1


def test_a_shift_brings_in_the_mean_colour() -> None:
    moved = done("translate x", 1.0)
    assert np.array_equal(moved[:, :20], np.asarray(PICTURE)[:, 18:38])
    assert (moved[:, 23:] == FILL).all()


def test_levels_are_timms() -> None:
    assert np.array_equal(done("posterize", 0.9), np.asarray(ImageOps.posterize(PICTURE, 1)))
    assert np.array_equal(done("solarize", 0.9), np.asarray(ImageOps.solarize(PICTURE, 26)))
    given = np.asarray(PICTURE).astype(int)
    assert np.array_equal(done("solarize add", 0.9), np.where(given < 128, given + 99, given))
    assert np.abs(done("brightness", 1.0).astype(int) - np.minimum(given * 1.9, 255)).max() <= 1
    assert np.array_equal(done("posterize", 1.0), done("posterize", 0.9))


def test_a_seed_is_a_change() -> None:
    first, again = (rand_augment(PICTURE, np.random.default_rng(7)) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    seen = {rand_augment(PICTURE, np.random.default_rng(seed)).tobytes() for seed in range(40)}
    assert len(seen) > 20


def test_two_operations_are_drawn_and_half_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    levels: list[float] = []

    def counted(name: str) -> ra.Operation:
        def operation(picture: ra.Picture, level: float, _generator: ra.Generator) -> ra.Picture:
            counts[name] += 1
            levels.append(level)
            return picture

        return operation

    monkeypatch.setattr(ra, "OPERATIONS", {name: counted(name) for name in OPERATIONS})
    generator = np.random.default_rng(0)
    for _ in range(3000):
        rand_augment(PICTURE, generator)
    assert abs(sum(counts.values()) - 3000) < 150
    assert len(counts) == 15
    assert min(counts.values()) > 140
    assert max(levels) == 1.0
    assert abs(np.mean(levels) - 0.9) < 0.01
