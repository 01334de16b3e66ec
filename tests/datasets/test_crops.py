import numpy as np
import pytest
from image_files import pixels
from PIL import Image

from msbench.datasets.imagenet import crops
from msbench.datasets.imagenet.rand_augment import FILTERS, Generator

SIZES = [(300, 200), (200, 300), (256, 256), (90, 400), (37, 41)]


def picture(width: int, height: int) -> Image.Image:
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.mark.parametrize("size", SIZES)
def test_the_centre_is_torchvisions(size: tuple[int, int]) -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    image = picture(*size)
    theirs = v2.Compose([v2.Resize(71, interpolation=v2.InterpolationMode.BICUBIC), v2.CenterCrop(64)])
    assert crops.centre_crop(image, 64, 0.9).tobytes() == theirs(image).tobytes()


def test_random_squares_are_of_8_to_100_percent() -> None:
    generator, shares, ratios = np.random.default_rng(0), [], []
    for _ in range(2000):
        left, top, right, bottom = crops._box(240, 250, generator)
        assert 0 <= left < right <= 240
        assert 0 <= top < bottom <= 250
        shares.append((right - left) * (bottom - top) / 60_000)
        ratios.append((right - left) / (bottom - top))
    assert 0.07 < min(shares) < 0.1
    assert max(shares) > 0.9
    assert 0.73 < min(ratios) < 0.78
    assert 1.3 < max(ratios) < 1.37


@pytest.mark.parametrize("size", [(1000, 10), (10, 1000)])
def test_a_strip_gives_its_middle(size: tuple[int, int]) -> None:
    class Unlucky:
        def uniform(self, _low: float, high: float) -> float:
            return high

    left, top, right, bottom = crops._box(*size, Unlucky())  # type: ignore[arg-type]
    assert sorted((right - left, bottom - top)) == [10, 13]
    assert abs(left + right - size[0]) <= 1
    assert abs(top + bottom - size[1]) <= 1


def test_a_random_square_is_a_part_of_the_picture() -> None:
    image = Image.fromarray(pixels(80))
    box = crops._box(80, 80, np.random.default_rng(3))
    square = crops.random_crop(image, 32, np.random.default_rng(3))
    assert square.tobytes() == image.crop(box).resize((32, 32), crops.BICUBIC).tobytes()


def test_a_random_square_may_be_made_by_either_filter() -> None:
    image = Image.fromarray(pixels(80))
    used = set()
    for seed in range(10):
        part = image.crop(crops._box(80, 80, np.random.default_rng(seed)))
        made = {part.resize((32, 32), each).tobytes(): each for each in FILTERS}
        found = crops.random_crop(image, 32, np.random.default_rng(seed), any_filter=True)
        used.add(made[found.tobytes()])
    assert used == set(FILTERS)


def test_standardised_by_imagenets_mean_and_deviation() -> None:
    image = picture(40, 30)
    expected = (np.asarray(image) / 255 - crops.MEAN) / crops.DEVIATION
    found = crops.standardised(image)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_patches_come_in_reading_order() -> None:
    rows, columns = np.mgrid[:6, :9]
    image = np.stack([rows, columns, rows * 0], axis=2).astype(np.float32)
    found = crops.patches(image, 3)
    assert found.shape == (6, 27)
    corners = found.reshape(6, 3, 3, 3)[:, 0, 0, :2]
    assert corners.tolist() == [[0, 0], [0, 3], [0, 6], [3, 0], [3, 3], [3, 6]]
    assert found[4].reshape(3, 3, 3)[2, 1].tolist() == [5, 4, 0]


def test_an_erased_rectangle_is_noise() -> None:
    generator, shares = np.random.default_rng(0), []
    for _ in range(200):
        image = np.full((64, 64, 3), 9, np.float32)
        crops.erase(image, generator)
        rows, columns = np.nonzero((image != 9).any(axis=2))
        box = image[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert (box != 9).all()
        shares.append(box.size / image.size)
    assert 0.015 < min(shares) < 0.04
    assert 0.3 < max(shares) < 0.34
    large = np.full((200, 200, 3), 9, np.float32)
    crops.erase(large, generator)
    noise = large[large != 9]
    assert abs(noise.mean()) < 0.1
    assert abs(noise.std() - 1) < 0.1


def test_chance_is_all_in_the_generator() -> None:
    def changed(generator: Generator) -> bytes:
        square = crops.random_crop(picture(60, 50), 32, generator, any_filter=True)
        found = crops.standardised(square)
        crops.erase(found, generator)
        return found.tobytes()

    assert changed(np.random.default_rng(5)) == changed(np.random.default_rng(5))
    assert changed(np.random.default_rng(5)) != changed(np.random.default_rng(6))
