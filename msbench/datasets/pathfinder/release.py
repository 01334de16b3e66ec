"""Pathfinder images of the published release, or of any folder in its layout, read strictly.

The order is that of the public PyTorch loaders: metadata files by the number in their names, then line by
line. Pixels are converted to grey as in those loaders, by Pillow's conversion to ``L``; pictures with more
than 8 bits a channel, which it would truncate, are refused.
"""

import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from msbench.datasets.pathfinder.metadata import ImageMetadata, parse
from msbench.datasets.pathfinder.parameters import CONTOUR_LENGTHS
from msbench.datasets.pathfinder.patches import Bytes
from msbench.datasets.pictures import BROKEN
from msbench.errors import ConfigError, DataError

EMPTY: Final = "curv_baseline/imgs/0/sample_172.png"
"""An empty file in the published Pathfinder of 32 pixels, known to public loaders; the metadata list it."""
NUMPY_MAGIC = b"\x93NUMPY"
MODES = ("1", "L", "LA", "P", "RGB", "RGBA")


@dataclass
class Release:
    """One difficulty below `folder`, for images of `window` pixels.

    `skipped` counts the image that is known to be empty, once `images` has passed it.
    """

    folder: Path
    difficulty: str
    window: int
    skipped: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for an unknown difficulty."""
        if self.difficulty not in CONTOUR_LENGTHS:
            raise ConfigError(
                f"pathfinder: unknown difficulty {self.difficulty!r}; known: {', '.join(CONTOUR_LENGTHS)}"
            )

    def rows(self) -> Iterator[ImageMetadata]:
        """Yield all rows in order, that of the empty image too. Raises DataError naming file and line."""
        for path in self._metadata():
            lines = _lines(path)
            if not lines:
                raise DataError(f"{path}: lists no image")
            for number, line in enumerate(lines, start=1):
                try:
                    yield parse(line)
                except ValueError as error:
                    raise DataError(f"{path}, line {number}: {error}") from None

    def images(self) -> Iterator[tuple[ImageMetadata, Bytes]]:
        """Yield every row with its image (window, window). Raises DataError naming the file."""
        self.skipped = 0
        for row in self.rows():
            name = f"{self.difficulty}/{row.subpath}/{row.filename}"
            content = _content(self.folder / name)
            if not content and name == EMPTY:
                self.skipped += 1
                continue
            yield row, _decoded(self.folder / name, content, self.window)

    def _metadata(self) -> list[Path]:
        folder = self.folder / self.difficulty / "metadata"
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder")
        paths = [path for path in folder.glob("*.npy") if not path.name.startswith(".")]
        if not paths:
            raise DataError(f"{folder}: no metadata files, <batch>.npy")
        for path in paths:
            if not (path.stem.isascii() and path.stem.isdecimal()):
                raise DataError(f"{path}: the name of a metadata file must be a batch number")
        return sorted(paths, key=lambda path: int(path.stem))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file, though the metadata list it") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def _lines(path: Path) -> list[str]:
    """Return the lines of a metadata file: text in the release, an array from the public generator itself."""
    content = _content(path)
    if content.startswith(NUMPY_MAGIC):
        return [" ".join(values) for values in _array(path, content).tolist()]
    try:
        return content.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path}: neither text nor an array of NumPy") from None


def _array(path: Path, content: bytes) -> NDArray[np.str_]:
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: a damaged array: {error}") from None
    if array.ndim != 2 or array.dtype.kind != "U":
        raise DataError(f"{path}: an array {array.shape} of {array.dtype}, not a table of strings")
    return np.asarray(array, np.str_)


def _decoded(path: Path, content: bytes, window: int) -> Bytes:
    if not content:
        raise DataError(f"{path}: an empty file; unpack the archive again")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as Pillow's on decompression bombs
            picture = Image.open(io.BytesIO(content), formats=("PNG",))
            if picture.size != (window, window):
                width, height = picture.size
                raise DataError(f"{path}: {width} x {height} pixels instead of {window} x {window}")
            if picture.mode not in MODES:
                raise DataError(f"{path}: pixels of kind {picture.mode}; only 8 bits a channel are read")
            return np.asarray(picture.convert("L"))
    except (*BROKEN, Warning) as error:
        raise DataError(f"{path}: not to be decoded: {error}") from None
