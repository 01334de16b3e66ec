"""Pathfinder images of the published release, or of any folder in its layout, read strictly.

The order is that of the public PyTorch loaders: metadata files by the number in their names, then line by
line. Pixels are converted to grey as in those loaders, by Pillow's conversion to ``L``; pictures with more
than 8 bits a channel, which it would truncate, are refused.
"""

import io
import warnings
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, get_type_hints

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from msbench.datasets.imagenet.pictures import BROKEN
from msbench.datasets.pathfinder.parameters import CONTOUR_LENGTHS, Parameters
from msbench.datasets.pathfinder.tables import Bytes
from msbench.errors import ConfigError, DataError

CONTRASTS: Final = 1
"""Number of contrasts a paddle may have; in Long Range Arena always this one."""


@dataclass(frozen=True)
class ImageMetadata:
    """Metadata of one image; `label` is 1 where both markers are on one snake."""

    subpath: str
    filename: str
    n: int
    label: int
    continuity: float
    contour_length: int
    distractor_length: int
    paddle_length: int
    paddle_thickness: float
    paddle_margin: int
    n_contrasts: int

    def __str__(self) -> str:
        """Return the line of the release, without its line end."""
        return " ".join(map(str, astuple(self)))


COLUMNS: Final = get_type_hints(ImageMetadata)


def build_row(parameters: Parameters, batch: int, index: int, label: int, margin: int) -> ImageMetadata:
    """Return the row of image `index` of a batch."""
    return ImageMetadata(
        subpath=f"imgs/{batch}",
        filename=f"sample_{index}.png",
        n=index,
        label=label,
        continuity=parameters.continuity,
        contour_length=parameters.contour_length,
        distractor_length=parameters.distractor_length,
        paddle_length=parameters.paddle_length,
        paddle_thickness=parameters.paddle_thickness,
        paddle_margin=margin,
        n_contrasts=CONTRASTS,
    )


def parse_row(line: str) -> ImageMetadata:
    """Parse the row of a line. Raises ValueError saying what is wrong with it."""
    values = line.split()
    if len(values) != len(COLUMNS):
        raise ValueError(f"{len(values)} fields instead of {len(COLUMNS)}")
    read: dict[str, Any] = {}
    for (name, kind), value in zip(COLUMNS.items(), values, strict=True):
        try:
            read[name] = kind(value)
        except ValueError:
            raise ValueError(f"{name} {value!r} is no number") from None
    if read["label"] not in (0, 1):
        raise ValueError(f"the label {read['label']} is neither 0 nor 1")
    path = PurePosixPath(read["subpath"], read["filename"])
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{path} leads out of the folder")
    return ImageMetadata(**read)


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
                    yield parse_row(line)
                except ValueError as error:
                    raise DataError(f"{path}, line {number}: {error}") from None

    def images(self) -> Iterator[tuple[ImageMetadata, Bytes]]:
        """Yield every row with its image (window, window). Raises DataError naming the file."""
        self.skipped = 0
        for build_row in self.rows():
            name = f"{self.difficulty}/{build_row.subpath}/{build_row.filename}"
            content = _content(self.folder / name)
            if not content and name == EMPTY:
                self.skipped += 1
                continue
            yield build_row, _decoded(self.folder / name, content, self.window)

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
