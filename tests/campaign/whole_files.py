"""What must hold of a folder at every moment: a file that has its final name is whole."""

import csv
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from PIL import Image
from safetensors.torch import load_file

from msbench.datasets import manifest
from msbench.results import store


def _table(path: Path) -> None:
    with path.open(newline="", encoding="utf-8") as stream:
        assert len({len(line) for line in csv.reader(stream)}) == 1


def _picture(path: Path) -> None:
    with Image.open(path) as image:
        image.load()


def _ends_with(mark: bytes) -> Callable[[Path], None]:
    def look(path: Path) -> None:
        assert path.read_bytes().endswith(mark)

    return look


LOOKS: dict[str, Callable[[Path], object]] = {
    ".json": lambda path: json.loads(path.read_bytes()),
    ".csv": _table,
    ".parquet": pd.read_parquet,
    ".safetensors": load_file,
    ".yaml": lambda path: yaml.safe_load(path.read_bytes()),
    ".npy": lambda path: np.load(path, allow_pickle=False),
    ".svg": ET.parse,
    ".xml": ET.parse,
    ".html": ET.parse,
    ".png": _picture,
    ".pdf": _ends_with(b"%%EOF\n"),
    ".tex": _ends_with(b"\n"),
}
LEFTOVERS = (".tmp", ".part", ".part.json")


def assert_whole(root: Path) -> None:
    """Read every file below `root` that has its final name."""
    for path in root.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        if path.is_file() and not hidden and path.suffix in LOOKS and "part" not in path.name:
            LOOKS[path.suffix](path)
    assert store.read_records(root / "results")[1] == []
    for found in (root / "data").rglob(manifest.MANIFEST):
        if not any(part.startswith(".") for part in found.parts):
            manifest.load_arrays(found.parent, "")


def leftovers(root: Path) -> list[str]:
    """What no later command may leave lying: temporary files, half downloads, folders half built."""
    return [
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.name.endswith(LEFTOVERS) or ".building-" in path.name or ".unpacked-" in path.name
    ]
