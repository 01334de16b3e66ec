"""Generated images in the layout of the published Pathfinder release."""

from pathlib import Path

import numpy as np
from PIL import Image

from msbench.datasets.pathfinder.generate import BATCH, choose_engine, draw_images, generate_images
from msbench.datasets.pathfinder.parameters import Parameters


def rows_of(parameters: Parameters, seed: int, numbers: range, batch: int = BATCH) -> list[str]:
    """The lines of these images in the metadata."""
    drawn = draw_images(parameters, seed, numbers, choose_engine())
    margins = [parameters.paddle_margins[margin] for margin in drawn.margins]
    return [
        f"imgs/{number // batch} sample_{number % batch}.png {number % batch} {label}"
        f" {parameters.continuity} {parameters.contour_length} {parameters.distractor_length}"
        f" {parameters.paddle_length} {parameters.paddle_thickness} {margin} 1"
        for number, label, margin in zip(numbers, drawn.labels.tolist(), margins, strict=True)
    ]


def write_release(folder: Path, parameters: Parameters, seed: int, images: int, batch: int = BATCH) -> None:
    """Write the images, and the metadata of each batch, into `folder`: one difficulty of a release."""
    blocks = generate_images(parameters, seed, images, processes=1)
    pictures = np.concatenate([block.images for block in blocks])
    (folder / "metadata").mkdir(parents=True, exist_ok=True)
    for picture, row in zip(pictures, rows_of(parameters, seed, range(images), batch), strict=True):
        place, name, *_ = row.split()
        (folder / place).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / place / name)
        with (folder / "metadata" / f"{Path(place).name}.npy").open("a", encoding="utf-8") as lines:
            lines.write(f"{row}\n")
