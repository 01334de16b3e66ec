"""Pathfinder (Linsley et al. 2018; Kim et al. 2020) and Path-X of Long Range Arena, pixel by pixel.

Are the two discs on one of the dashed snakes? All images of a size and a difficulty are stored, as bytes, in
the order of their generation or of the release's metadata; splits are rows of them.

A release is read strictly, in the order of the public PyTorch loaders: metadata files by the number in their
names, then line by line. Pixels are converted to grey as there, by Pillow's conversion to ``L``; pictures
with more than 8 bits a channel, which it would truncate, are refused.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from msbench.datasets import manifest
from msbench.datasets.archive import explain_errors, open_folder, read_file
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription
from msbench.datasets.dataset import Samples, TaskInfo, score_majority_rule
from msbench.datasets.disk import require_space
from msbench.datasets.imagenet.pictures import BROKEN
from msbench.datasets.pathfinder.generate import BATCH, VERSION, generate_images
from msbench.datasets.pathfinder.parameters import Parameters, find_preset, parse_row
from msbench.datasets.pathfinder.tables import Bytes
from msbench.datasets.pixels import split_randomly
from msbench.errors import DataError
from msbench.results.files import list_lines, parse_json, read_bytes, write_atomically

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import PathfinderConfig

ABOUT = DatasetDescription(
    what="pathfinder32 or pathfinder128 of Long Range Arena's lra_release.gz, in it or unpacked",
    licence="the generator is MIT; for the published images none is stated, so msbench does not pass them on",
    where="anywhere, then: msbench setup pathfinder --from PATH (--set data.size=128 for Path-X)",
)
ALL = "images"
FOLDERS = ("lra_release/lra_release/", "lra_release/", "")
"""Folders of the sets in a release, the preferred copy first: the outer ones are those of an older build."""
PUBLISHED = 200_000
FEWEST = 10
"""Images of which a tenth, for validation or test, is at least one."""
REPORT_EVERY = 500


def fill(config: PathfinderConfig, build: DatasetBuild) -> None:
    """Draw or read all images."""
    if config.source == "release":
        _import(config, build)
        return
    parameters = find_preset(
        config.size, config.difficulty, documented_distractors=config.documented_distractors
    )
    labels = _generate(config, parameters, build)
    generator = {"version": VERSION, "parameters": asdict(parameters)}
    described = {ALL: manifest.describe_split(labels, config.size**2)}
    build.finish(config, described, generator=generator)


def view(
    config: PathfinderConfig, arrays: manifest.Arrays, _facts: Mapping[str, Any]
) -> tuple[TaskInfo, dict[str, Samples]]:
    """Return the facts of the task and the splits of the public loaders."""
    values, labels = arrays[ALL]["values"], arrays[ALL]["labels"]
    shift, scale = (127.5, 127.5) if config.centred else (0.0, 255.0)
    rows = split_as_published(len(labels))
    splits = {name: Samples(values, labels, shift, scale, chosen) for name, chosen in rows.items()}
    rules = {"majority": score_majority_rule(labels[rows["train"]], labels[rows["test"]])}
    return _describe_task(config, rules), splits


PATHFINDER = ArchiveDataset["PathfinderConfig"](
    name="pathfinder",
    about=ABOUT,
    fill=fill,
    view=view,
    outline=lambda config: _describe_task(config, {}),
    views=frozenset({"centred"}),
    is_generated=lambda config: config.source == "generated",
)


def _describe_task(config: PathfinderConfig, rules: Mapping[str, float]) -> TaskInfo:
    return TaskInfo(
        kind="signal",
        vocabulary=0,
        classes=2,
        longest=config.size**2,
        metric="accuracy",
        chance=0.5,
        baselines=rules,
        channels=1,
    )


def _generate(config: PathfinderConfig, parameters: Parameters, build: DatasetBuild) -> NDArray[np.uint8]:
    """Draw into arrays that outlive this process: a later run resumes after the last whole batch."""
    require_space(build.folder, config.images * config.size**2, "pathfinder")
    kept = manifest.path_next_to(build.folder, "drawn")
    values, labels, done = _open_drawn(kept, config)
    blocks = generate_images(
        parameters,
        config.seed,
        config.images,
        first=done,
        processes=build.processes,
        progress=build.progress,
    )
    for block in blocks:
        end = done + len(block.labels)
        values[done:end] = block.images.reshape(len(block.labels), -1, 1)
        labels[done:end] = block.labels
        done = end
        if done % BATCH == 0:
            _record_progress(kept, done, values, labels)
    found = np.array(labels)
    (kept / ALL).rename(build.folder / ALL)
    shutil.rmtree(kept)
    return found


def _open_drawn(kept: Path, config: PathfinderConfig) -> tuple[NDArray[np.uint8], NDArray[np.uint8], int]:
    """Return the arrays of an interrupted generation and their number of images, or new arrays and 0."""
    try:
        state = parse_json(read_bytes(kept / "done.json"))
        paths = [kept / ALL / f"{name}.npy" for name in ("values", "labels")]
        if any(path.is_symlink() for path in (kept, kept / ALL, *paths)):  # laid by another: never written to
            raise ValueError
        there = [np.lib.format.open_memmap(path, mode="r+") for path in paths]
        if state["version"] == VERSION:
            return there[0], there[1], int(state["images"])
    # No usable arrays: images can be drawn again. Any other OSError ends the set-up, so that hours of
    # drawing that merely cannot be opened are kept.
    except (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError):
        pass
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    values = manifest.create_array(kept, ALL, "values", (config.images, config.size**2, 1), "u1")
    return values, manifest.create_array(kept, ALL, "labels", (config.images,), "u1"), 0


def _record_progress(kept: Path, done: int, *arrays: Any) -> None:
    """Record the number of finished images, once they are on disk."""
    for array in arrays:
        array.flush()
    write_atomically(kept / "done.json", json.dumps({"version": VERSION, "images": done}).encode())


def _import(config: PathfinderConfig, build: DatasetBuild) -> None:
    (source,) = build.sources
    name = f"pathfinder{config.size}"
    of_use = re.compile(rf"(lra_release/){{0,2}}{name}/{config.difficulty}/(metadata/|imgs/\d+/)[^/]+")
    with open_folder(
        source,
        lambda each: of_use.fullmatch(each) is not None,
        build.folder.parent,
        build.progress,
        largest=LARGEST_FILE,
    ) as place:
        found = _find_folders(place, name)
        chosen = next(((where, path) for where, path in found if (path / config.difficulty).is_dir()), None)
        if chosen is None:
            below = ", ".join(FOLDERS[:-1])
            raise DataError(f"{source}: no {name}/{config.difficulty} in it, nor below {below}")
        release = Release(chosen[1], config.difficulty, config.size)
        labels = _read_release(release, build)
    if len(labels) < FEWEST:
        found_images = f"{len(labels) or 'no'} images in {chosen[0]}/{config.difficulty}"
        raise DataError(f"{source}: {found_images}; at least {FEWEST} are needed to split them")
    others = [where for where, _ in found if where != chosen[0]]
    notes = [f"{where} is another copy, and was not read: {chosen[0]} was" for where in others]
    if release.skipped:
        notes.append(f"{release.skipped} image left out, which is known to be empty in the release")
    if len(labels) + release.skipped != PUBLISHED:
        notes.append(f"{len(labels):,} images; the release has {PUBLISHED:,}")
    described = {ALL: manifest.describe_split(labels, config.size**2)}
    build.finish(config, described, read_from=chosen[0], skipped=release.skipped, notes=notes)


def _find_folders(source: Path, name: str) -> list[tuple[str, Path]]:
    """Return the places in `source` with images of this size and their folders, the preferred one first."""
    places = [(f"{folder}{name}", source / f"{folder}{name}") for folder in FOLDERS]
    found = [(place, path) for place, path in places if path.is_dir()]
    return found or [(source.name, source)]


def _read_release(release: Release, build: DatasetBuild) -> NDArray[np.uint8]:
    """Read all images of a release into arrays; return their labels."""
    listed = sum(1 for _ in release.rows())
    require_space(build.folder, listed * release.window**2, "pathfinder")
    values = manifest.create_array(build.folder, ALL, "values", (listed, release.window**2, 1), "u1")
    labels = bytearray()
    for label, image in release.images():
        values[len(labels)] = image.reshape(-1, 1)
        labels.append(label)
        if len(labels) % REPORT_EVERY == 0 or len(labels) == listed:
            build.progress("reading pathfinder", len(labels), listed)
    if release.skipped:
        manifest.save_array(build.folder, ALL, "values", values[: len(labels)].copy())
    found = np.frombuffer(bytes(labels), np.uint8)
    manifest.save_array(build.folder, ALL, "labels", found)
    return found


SPLIT_SEED = 42


def split_as_published(images: int) -> dict[str, NDArray[np.int64]]:
    """Return the image numbers, in the order of reading, of each split in its order.

    A tenth each, rounded down, is for validation and test; the rest, drawn first, is for training.
    """
    held_out = int(0.1 * images)
    train, rest = split_randomly(images, images - 2 * held_out, SPLIT_SEED)
    return {"train": train, "validation": rest[:held_out], "test": rest[held_out:]}


EMPTY: Final = "curv_baseline/imgs/0/sample_172.png"
"""An empty file in the published Pathfinder of 32 pixels, known to public loaders; the metadata list it."""
LARGEST_FILE = 2**24
"""Bytes of an image or a metadata file; the largest published ones have thousands."""
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

    def rows(self) -> Iterator[tuple[str, int]]:
        """Yield path and label of all images in order. Raises DataError naming file and line."""
        for path in self._metadata():
            lines = _read_lines(path)
            if not lines:
                raise DataError(f"{path}: lists no image")
            for number, line in enumerate(lines, start=1):
                try:
                    yield parse_row(line)
                except ValueError as error:
                    raise DataError(f"{path}, line {number}: {error}") from None

    def images(self) -> Iterator[tuple[int, Bytes]]:
        """Yield every label with its image (window, window). Raises DataError naming the file."""
        self.skipped = 0
        for path, label in self.rows():
            name = f"{self.difficulty}/{path}"
            content = _read_picture(self.folder / name)
            if not content and name == EMPTY:
                self.skipped += 1
                continue
            yield label, _decode_image(self.folder / name, content, self.window)

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


def _read_picture(path: Path) -> bytes:
    with explain_errors(path):
        try:
            return read_bytes(path, LARGEST_FILE)
        except FileNotFoundError:
            raise DataError(f"{path}: no such file, though the metadata list it") from None


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a metadata file: text in the release, an array from the public generator itself."""
    content = read_file(path, LARGEST_FILE)
    if content.startswith(NUMPY_MAGIC):
        return [" ".join(values) for values in _parse_array(path, content).tolist()]
    try:
        return list_lines(content.decode("ascii"))
    except UnicodeDecodeError:
        raise DataError(f"{path}: neither text nor an array of NumPy") from None


def _parse_array(path: Path, content: bytes) -> NDArray[np.str_]:
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: a damaged array: {error}") from None
    if array.ndim != 2 or array.dtype.kind != "U":
        raise DataError(f"{path}: an array {array.shape} of {array.dtype}, not a table of strings")
    return np.asarray(array, np.str_)


def _decode_image(path: Path, content: bytes, window: int) -> Bytes:
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
        raise DataError(f"{path}: cannot be decoded: {error}") from None
