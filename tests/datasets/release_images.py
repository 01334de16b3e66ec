"""Generated images in the layout of the published Pathfinder release."""

from pathlib import Path

from PIL import Image

from msbench.datasets.pathfinder.generate import generate_images
from msbench.datasets.pathfinder.parameters import Parameters


def write_release(folder: Path, parameters: Parameters, seed: int, images: int) -> None:
    """Write the images, and the metadata of each batch, into `folder`: one difficulty of a release."""
    for block in generate_images(parameters, seed, images, processes=1):
        batch = folder / block.rows[0].subpath
        batch.mkdir(parents=True, exist_ok=True)
        for picture, row in zip(block.images, block.rows, strict=True):
            Image.fromarray(picture).save(batch / row.filename)
        (folder / "metadata").mkdir(exist_ok=True)
        with (folder / "metadata" / f"{batch.name}.npy").open("a", encoding="utf-8", newline="\n") as lines:
            lines.writelines(f"{row}\n" for row in block.rows)
