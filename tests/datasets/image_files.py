"""Small encoded pictures, and ImageNet trees made of them."""

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from msbench.datasets.imagenet.dataset import ARCHIVES
from msbench.datasets.imagenet.tree import SYNSETS


def pixels(side: int = 24, colours: int = 3, seed: int = 0) -> np.ndarray:
    """A smooth picture, which JPEG keeps nearly as it is."""
    phase = np.random.default_rng(seed).uniform(0, 6, colours)
    x = np.linspace(0, 3, side)
    waves = np.sin(x[:, None, None] + phase) * np.cos(x[None, :, None] - phase)
    return (127 + 120 * waves).astype(np.uint8)


def encoded(array: np.ndarray, kind: str = "JPEG", mode: str | None = None, **options: Any) -> bytes:
    image = Image.fromarray(array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    buffer = io.BytesIO()
    if kind == "JPEG":
        options = {"quality": 95, "subsampling": 0, **options}
    (image.convert(mode) if mode else image).save(buffer, kind, **options)
    return buffer.getvalue()


def jpeg(seed: int = 0, side: int = 24) -> bytes:
    return encoded(pixels(side, seed=seed))


def damaged_inside() -> bytes:
    """A PNG with both of its ends, of which only decoding shows that a byte is another."""
    data = bytearray(encoded(pixels(64), "PNG"))
    data[len(data) // 2] ^= 1
    return bytes(data)


def wnid(number: int) -> str:
    return f"n{number:08d}"


def imagenet(root: Path, classes: Iterable[str], train: int = 3, val: int = 2) -> Path:
    """Folders train and val, each class with so many pictures of its own."""
    for number, name in enumerate(classes):
        for split, count in (("train", train), ("val", val)):
            folder = root / split / name
            folder.mkdir(parents=True)
            for image in range(count):
                seed = 100 * number + image + (50 if split == "val" else 0)
                (folder / f"{name}_{image}.JPEG").write_bytes(jpeg(seed))
    return root


def flat_val(root: Path, classes: list[str], count: int) -> list[str]:
    """A val folder without folders; the classes of its pictures, in the order of their numbers."""
    (root / "val").mkdir(parents=True)
    shown = [classes[(3 * number) % len(classes)] for number in range(count)]
    for number in range(1, count + 1):
        (root / "val" / f"ILSVRC2012_val_{number:08d}.JPEG").write_bytes(jpeg(number))
    return shown


def published(folder: Path, classes: list[str]) -> Path:
    """A tar of a tar a class, a flat tar of three pictures, and their list, as image-net.org has them."""
    source, tree = folder / "published", imagenet(folder / "tree", classes)
    source.mkdir()
    with tarfile.open(source / ARCHIVES["train"], "w") as outer:
        for name in classes:
            inner = folder / f"{name}.tar"
            with tarfile.open(inner, "w") as tar:
                for image in sorted((tree / "train" / name).iterdir()):
                    tar.add(image, image.name)
            outer.add(inner, inner.name)
    with tarfile.open(source / ARCHIVES["val"], "w") as tar:
        for number in (1, 2, 3):
            image = folder / f"ILSVRC2012_val_{number:08d}.JPEG"
            image.write_bytes(jpeg(number))
            tar.add(image, image.name)
    (source / SYNSETS).write_text("\n".join([classes[1], classes[0], classes[1]]))
    return source
