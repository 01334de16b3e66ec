"""Generated images in the layout of the published release, batch by batch.

::

    <folder>/
        generator.json           the parameters of all images
        imgs/<batch>/sample_<i>.png
        metadata/<batch>.npy     text, in spite of its name; written last, when the batch is complete

Files and folders get their names when they are complete, so an interrupted run leaves whole batches and
resumes after them.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from PIL import Image

from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.pathfinder.generate import BATCH, VERSION, DrawnImages, generate
from msbench.datasets.pathfinder.metadata import ImageMetadata
from msbench.datasets.pathfinder.parameters import Parameters
from msbench.errors import DataError

RECORD = "generator.json"


def write_release(
    folder: Path,
    parameters: Parameters,
    seed: int,
    images: int,
    *,
    processes: int | None = None,
    progress: Progress = ignore_progress,
) -> None:
    """Write that many images into `folder`, which is one difficulty of a release; whole batches are kept.

    Raises DataError where the folder holds images of other parameters, or cannot be written.
    """
    try:
        _claim(folder, _record(parameters, seed, images))
        done = _whole_batches(folder)
        first = min(done * BATCH, images)
        blocks = generate(parameters, seed, images, first=first, processes=processes, progress=progress)
        with closing(blocks):
            for batch in range(done, -(-images // BATCH)):
                _write_batch(folder, batch, min(BATCH, images - batch * BATCH), blocks)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error}") from error


def _record(parameters: Parameters, seed: int, images: int) -> str:
    record = {"version": VERSION, "seed": seed, "images": images, "parameters": asdict(parameters)}
    return json.dumps(record, indent=1) + "\n"


def _claim(folder: Path, record: str) -> None:
    """Record the parameters of the folder, or check that they are those recorded."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORD
    if not path.exists():
        if any(folder.iterdir()):
            raise DataError(f"{folder}: holds files that were not generated here; give an empty folder")
        _write(path, record)
    elif path.read_text(encoding="utf-8") != record:
        raise DataError(
            f"{path}: other parameters, seed or number of images than asked for; give another folder"
        )


def _whole_batches(folder: Path) -> int:
    """Return the number of complete batches, from the first on without a gap."""
    batch = 0
    while (folder / "metadata" / f"{batch}.npy").exists():
        batch += 1
    return batch


def _write_batch(folder: Path, batch: int, size: int, blocks: Iterator[DrawnImages]) -> None:
    final, temporary = folder / "imgs" / str(batch), folder / "imgs" / f".{batch}.writing"
    for leftover in (final, temporary):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir(parents=True)
    rows: list[ImageMetadata] = []
    while len(rows) < size:
        block = next(blocks)
        for picture, row in zip(block.images, block.rows, strict=True):
            Image.fromarray(picture).save(temporary / row.filename)
        rows += block.rows
    temporary.rename(final)
    (folder / "metadata").mkdir(exist_ok=True)
    _write(folder / "metadata" / f"{batch}.npy", "".join(f"{row}\n" for row in rows))


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.writing")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    os.replace(temporary, path)
