import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from image_files import damaged_inside, encoded, imagenet, jpeg, pixels, wnid
from PIL import Image, ImageOps

from msbench import datasets as data
from msbench.config.data import ImageNetConfig
from msbench.datasets.imagenet import split
from msbench.datasets.imagenet import split as ra
from msbench.datasets.imagenet.pictures import decode_picture
from msbench.datasets.imagenet.split import (
    DEVIATION,
    FILL,
    FILTERS,
    MEAN,
    OPERATIONS,
    Generator,
    Pictures,
    apply_rand_augment,
    crop_centre,
    cut_patches,
)
from msbench.errors import DataError

CLASSES = [wnid(number) for number in (3, 7)]
CONFIG = ImageNetConfig(image_size=16, patch=4, validation=0.2)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return imagenet(tmp_path / "tree", CLASSES, train=5)


def train_of(tree: Path, root: Path, **options: object) -> Pictures:
    config = CONFIG.model_copy(update=options)
    split = data.setup(config, root, source=tree).splits["train"]
    assert isinstance(split, Pictures)
    return split


def test_evaluation_shows_the_centre(tree: Path, tmp_path: Path) -> None:
    split = train_of(tree, tmp_path / "data")
    batch = split.batch(np.array([3, 0]))
    assert batch.inputs.shape == (2, 16, 48)
    assert batch.inputs.dtype == np.float32
    assert split.slow
    for row, number in enumerate(split.numbers[[3, 0]]):
        picture = decode_picture(split.index.path(int(number)).read_bytes())
        square = np.asarray(crop_centre(picture, 16, 0.9)) / 255
        expected = cut_patches(((square - MEAN) / DEVIATION).astype(np.float32), 4)
        np.testing.assert_allclose(batch.inputs[row], expected, atol=2e-6)
        assert CLASSES[batch.labels[row]] in split.index.path(int(number)).name


def test_batches_are_padded_on_the_right(tree: Path, tmp_path: Path) -> None:
    split = train_of(tree, tmp_path / "data")
    batch = split.batch(np.array([1]), pad_to=20)
    assert batch.inputs.shape == (1, 20, 48)
    assert not batch.inputs[:, 16:].any()
    assert batch.lengths.tolist() == [16]
    assert np.array_equal(batch.inputs[:, :16], split.batch(np.array([1])).inputs)


@pytest.mark.parametrize("augmentation", ["crop-flip", "rand-m9-mstd0.5-inc1"])
def test_chance_is_of_seed_epoch_and_image(tree: Path, tmp_path: Path, augmentation: str) -> None:
    split = train_of(tree, tmp_path / "data", augmentation=augmentation, erasing=0.5)
    everything = np.arange(len(split))
    first = split.augmented(2**62, 0).batch(everything).inputs
    assert np.array_equal(split.augmented(2**62, 0).batch(everything).inputs, first)
    # in any batch and order
    assert np.array_equal(split.augmented(2**62, 0).batch(everything[::-1]).inputs[::-1], first)
    assert np.array_equal(split.augmented(2**62, 0).batch(everything[4:5]).inputs[0], first[4])
    for other in (split, split.augmented(2**62, 1), split.augmented(1, 0)):
        changed = other.batch(everything).inputs
        assert (changed != first).any(axis=(1, 2)).mean() > 0.9
    assert np.array_equal(split.augmented(2**62, 0).batch(everything).labels, split.batch(everything).labels)


def test_repeats_of_an_image_are_augmented_anew(tree: Path, tmp_path: Path) -> None:
    once, thrice = (train_of(tree, tmp_path / "data", repeats=repeats) for repeats in (None, 3))
    assert (once.repeats, thrice.repeats, len(thrice)) == (1, 3, len(once))
    count, chance = len(once), (2**62, 1)
    everything = np.arange(count)
    first = thrice.augmented(*chance).batch(everything)
    assert np.array_equal(first.inputs, once.augmented(*chance).batch(everything).inputs)
    batch = thrice.augmented(*chance).batch(np.concatenate([everything + count, everything + 2 * count]))
    assert np.array_equal(batch.labels, np.tile(first.labels, 2))
    for other in (batch.inputs[:count], batch.inputs[count:]):
        assert (other != first.inputs).any(axis=(1, 2)).all()
    assert (batch.inputs[:count] != batch.inputs[count:]).any(axis=(1, 2)).all()


def test_repeats_leave_the_digest_as_it_was(tree: Path, tmp_path: Path) -> None:
    once, twice = (CONFIG.model_copy(update={"repeats": repeats}) for repeats in (None, 2))
    digests = [data.setup(each, tmp_path / "data", source=tree).digest for each in (once, twice)]
    assert digests[0] == digests[1]
    kept = data.open_dataset(once, tmp_path / "data").manifest["digest"]
    names = ("augmentation", "crop", "erasing", "image_size", "patch", "split_seed", "validation")
    view = json.dumps({name: getattr(once, name) for name in names})
    assert digests[0] == hashlib.sha256(f"{kept}\n1\n{view}".encode()).hexdigest()


def test_without_augmentation_every_epoch_is_the_same(tree: Path, tmp_path: Path) -> None:
    split = train_of(tree, tmp_path / "data", augmentation="none")
    assert split.augmented(1, 2) is split


def test_half_are_flipped(tmp_path: Path) -> None:
    slope = np.repeat(np.linspace(0, 255, 24).astype(np.uint8)[None, :, None], 24, axis=0).repeat(3, axis=2)
    tree = imagenet(tmp_path / "tree", CLASSES, train=5)
    for path in (tree / "train").rglob("*.JPEG"):
        path.write_bytes(encoded(slope, "PNG"))
    split = train_of(tree, tmp_path / "data")
    flipped = 0
    for epoch in range(20):
        inputs = split.augmented(0, epoch).batch(np.arange(8)).inputs
        flipped += int((inputs[:, 0, 0] > inputs[:, 3, -3]).sum())  # the slope falls along the first row
    assert 55 < flipped < 105


def test_an_image_that_changed_is_named(tree: Path, tmp_path: Path) -> None:
    split = train_of(tree, tmp_path / "data")
    path = split.index.path(int(split.numbers[2]))
    path.write_bytes(jpeg(12345, side=30))
    with pytest.raises(DataError, match=rf"{path.name}: is not the file that was set up"):
        split.batch(np.arange(len(split)))
    assert len(split.batch(np.array([0, 1])).labels) == 2


def test_an_image_that_cannot_be_decoded_is_named(tree: Path, tmp_path: Path) -> None:
    (tree / "train" / CLASSES[0] / "a.JPEG").write_bytes(damaged_inside())
    split = train_of(tree, tmp_path / "data")
    with pytest.raises(DataError, match=r"a\.JPEG: cannot be decoded.*data\.verify: full"):
        split.pixels(0)


def test_names_may_be_any(tmp_path: Path) -> None:
    tree = imagenet(tmp_path / "tree", CLASSES)
    (tree / "train" / CLASSES[0] / "été 1.JPEG").write_bytes(jpeg())
    Image.fromarray(pixels()).save(tree / "train" / CLASSES[1] / "a,b.png")
    split = train_of(tree, tmp_path / "data")
    names = {split.index.path(number).name for number in range(len(split.index.labels))}
    assert {"été 1.JPEG", "a,b.png"} <= names


SIZES = [(300, 200), (200, 300), (256, 256), (90, 400), (37, 41)]


def picture(width: int, height: int) -> Image.Image:
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.mark.parametrize("size", SIZES)
def test_the_centre_is_torchvisions(size: tuple[int, int]) -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    image = picture(*size)
    theirs = v2.Compose([v2.Resize(71, interpolation=v2.InterpolationMode.BICUBIC), v2.CenterCrop(64)])
    assert split.crop_centre(image, 64, 0.9).tobytes() == theirs(image).tobytes()


def test_random_squares_are_of_8_to_100_percent() -> None:
    generator, shares, ratios = np.random.default_rng(0), [], []
    for _ in range(2000):
        left, top, right, bottom = split._draw_box(240, 250, generator)
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

    left, top, right, bottom = split._draw_box(*size, Unlucky())  # type: ignore[arg-type]
    assert sorted((right - left, bottom - top)) == [10, 13]
    assert abs(left + right - size[0]) <= 1
    assert abs(top + bottom - size[1]) <= 1


def test_a_random_square_is_a_part_of_the_picture() -> None:
    image = Image.fromarray(pixels(80))
    box = split._draw_box(80, 80, np.random.default_rng(3))
    square = split.crop_randomly(image, 32, np.random.default_rng(3))
    assert square.tobytes() == image.crop(box).resize((32, 32), split.BICUBIC).tobytes()


def test_a_random_square_may_be_made_by_either_filter() -> None:
    image = Image.fromarray(pixels(80))
    used = set()
    for seed in range(10):
        part = image.crop(split._draw_box(80, 80, np.random.default_rng(seed)))
        made = {part.resize((32, 32), each).tobytes(): each for each in FILTERS}
        found = split.crop_randomly(image, 32, np.random.default_rng(seed), any_filter=True)
        used.add(made[found.tobytes()])
    assert used == set(FILTERS)


def test_standardised_by_imagenets_mean_and_deviation() -> None:
    image = picture(40, 30)
    expected = (np.asarray(image) / 255 - split.MEAN) / split.DEVIATION
    found = split.standardise(image)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_patches_come_in_reading_order() -> None:
    rows, columns = np.mgrid[:6, :9]
    image = np.stack([rows, columns, rows * 0], axis=2).astype(np.float32)
    found = split.cut_patches(image, 3)
    assert found.shape == (6, 27)
    corners = found.reshape(6, 3, 3, 3)[:, 0, 0, :2]
    assert corners.tolist() == [[0, 0], [0, 3], [0, 6], [3, 0], [3, 3], [3, 6]]
    assert found[4].reshape(3, 3, 3)[2, 1].tolist() == [5, 4, 0]


def test_an_erased_rectangle_is_noise() -> None:
    generator, shares = np.random.default_rng(0), []
    for _ in range(200):
        image = np.full((64, 64, 3), 9, np.float32)
        split.erase_rectangle(image, generator)
        rows, columns = np.nonzero((image != 9).any(axis=2))
        box = image[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert (box != 9).all()
        shares.append(box.size / image.size)
    assert 0.015 < min(shares) < 0.04
    assert 0.3 < max(shares) < 0.34
    large = np.full((200, 200, 3), 9, np.float32)
    split.erase_rectangle(large, generator)
    noise = large[large != 9]
    assert abs(noise.mean()) < 0.1
    assert abs(noise.std() - 1) < 0.1


def test_chance_is_all_in_the_generator() -> None:
    def changed(generator: Generator) -> bytes:
        square = split.crop_randomly(picture(60, 50), 32, generator, any_filter=True)
        found = split.standardise(square)
        split.erase_rectangle(found, generator)
        return found.tobytes()

    assert changed(np.random.default_rng(5)) == changed(np.random.default_rng(5))
    assert changed(np.random.default_rng(5)) != changed(np.random.default_rng(6))


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
    first, again = (apply_rand_augment(PICTURE, np.random.default_rng(7)) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    seen = {apply_rand_augment(PICTURE, np.random.default_rng(seed)).tobytes() for seed in range(40)}
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
        apply_rand_augment(PICTURE, generator)
    assert abs(sum(counts.values()) - 3000) < 150
    assert len(counts) == 15
    assert min(counts.values()) > 140
    assert max(levels) == 1.0
    assert abs(np.mean(levels) - 0.9) < 0.01
