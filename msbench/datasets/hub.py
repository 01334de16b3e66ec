"""Copies of datasets on the Hugging Face Hub, read through its library `datasets`, an optional extra.

::

    hub              the dataset's own name on the Hub, from the library's cache, or fetched into it
    hub:NAME         the same of another name
    hub:FOLDER       parquet files, the arrow files of a cache, or what the library's `save_to_disk` wrote

A folder with parquet files needs no ``hub:`` before it. A copy is imported only if it is the data of the
published archive: the sha256 of its rows is the known one, or each of its examples is that of an import of
the archive.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.download import is_offline
from msbench.environment import expand_home
from msbench.errors import ConfigError, DataError, explain_extra, get_first_line

PREFIX = "hub"
FORMATS = ("parquet", "arrow")
SAVED = "dataset_dict.json"
SPLIT = re.compile(r"(?:^|[/_.-])(train|test|validation|unsupervised)(?=[/_.-])")
SHARDS = re.compile(r"-of-(\d+)")
NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True, kw_only=True)
class HubLayout:
    """The form of a dataset on the Hub.

    `column` holds its texts or images, `classes` are the names of its labels, where they are fixed; `splits`
    has the Hub's name of each of ours, and `digests` the sha256 of its rows, as its reader computes them.
    """

    name: str
    column: str
    classes: tuple[str, ...] = ()
    splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "test": "test"})
    digests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class HubCopy:
    """A copy of a dataset: a folder, or a name on the Hub. If `is_compared`, it need not be as published."""

    layout: HubLayout
    where: str | Path
    progress: Progress = ignore_progress
    is_compared: bool = False

    def read_rows(self, split: str) -> Iterator[tuple[Any, int]]:
        """Yield the content and the label of each example, in the copy's order.

        The content is a text, or ``bytes`` and ``path`` of an image. Raises DataError naming split and
        column, or the example.
        """
        library, name = _import_library(), self.layout.splits[split]
        with self._explain_errors(library, name):
            table, total = self._open_table(library, name)
        self._check_columns(table.features, name)
        column, number = self.layout.column, 0
        if isinstance(table.features[column], library.Image):
            table = table.cast_column(column, library.Image(decode=False))
        rows = iter(table)
        while True:
            with self._explain_errors(library, f"{name}, example {number:,}"):
                row = next(rows, None)
            if row is None:
                return
            if number % 1000 == 0:
                self.progress(f"reading {name} of {self.layout.name}", number, max(total, number + 1))
            yield row[column], row["label"]
            number += 1

    def read_images(self, split: str, side: int, mode: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return square images (n, side², channels) and labels (n,) in the copy's order, verified.

        Raises DataError naming an image of another form.
        """
        images, labels = [], []
        for number, (image, label) in enumerate(self.read_rows(split)):
            try:
                with Image.open(io.BytesIO(image["bytes"])) as picture:
                    if (picture.size, picture.mode) != ((side, side), mode):
                        raise ValueError(f"is {picture.size[0]} x {picture.size[1]} pixels of {picture.mode}")
                    images.append(np.asarray(picture).reshape(side * side, -1))
            except (
                OSError,
                ValueError,
                TypeError,
                SyntaxError,
            ) as error:  # SyntaxError: Pillow's for a damaged PNG
                raise self.fault(split, number, f"{error}; images are {side} x {side} of {mode}") from None
            if not 0 <= label < len(self.layout.classes):
                raise self.fault(
                    split, number, f"label {label} is none of {len(self.layout.classes)} classes"
                )
            labels.append(label)
        if not images:
            raise DataError(f"{self.where}: {self.layout.splits[split]} holds no examples")
        stacked, codes = np.stack(images), np.array(labels, np.int64)
        self.require_published(
            split, *(hashlib.sha256(each.tobytes()).hexdigest() for each in (stacked, codes))
        )
        return stacked, codes.astype(np.uint8)

    def require_published(self, split: str, *digests: str) -> None:
        """Raise DataError where a split's rows are not the published ones, unless they are compared."""
        if not self.is_compared and digests != self.layout.digests[split]:
            raise DataError(
                f"{self.where}: {self.layout.splits[split]} is not that of {self.layout.name}: its sha256 is"
                " another; get a whole copy, or import the published archive first: then the same command"
                " names the first example that differs"
            )

    def fault(self, split: str, number: int, fault: str) -> DataError:
        """Return the error for an example, counted from 0."""
        return DataError(f"{self.where}: {self.layout.splits[split]}, example {number:,}: {fault}")

    def _open_table(self, library: Any, name: str) -> tuple[Any, int]:
        """Return the library's table of a split, and its number of rows where that is known, else 0."""
        if isinstance(self.where, str):
            table = library.load_dataset(self.where, split=name)
        elif (self.where / SAVED).is_file():
            table = library.load_from_disk(str(self.where))[name]
        else:
            kind, paths = self._find_files(name)
            files = {name: [str(path) for path in paths]}
            total = _count_rows(kind, paths)
            # Streamed, as otherwise the library would first write all of it into its cache.
            streamed = library.load_dataset(kind, data_files=files, split=name, streaming=True)
            return streamed, total
        return table, table.num_rows

    def _find_files(self, name: str) -> tuple[str, list[Path]]:
        """Return format and files of a split. Raises DataError for none, too few, or several copies."""
        assert isinstance(self.where, Path)
        found: dict[tuple[Path, str], list[Path]] = {}
        for kind in FORMATS:
            for path in sorted(self.where.rglob(f"*.{kind}")):
                splits = SPLIT.findall(path.relative_to(self.where).as_posix())
                if splits[-1:] == [name] and not path.name.startswith(
                    "cache-"
                ):  # results of the library's `map`
                    found.setdefault((path.parent, kind), []).append(path)
        if len(found) != 1:
            several = " and ".join(f"{folder}/*.{kind}" for folder, kind in found)
            raise DataError(
                f"{self.where}: holds {name} twice, as {several}: name the folder of one"
                if found
                else f"{self.where}: holds no {name}: no parquet or arrow file is named so, such as"
                f" {name}-00000-of-00001.parquet"
            )
        ((_, kind), paths) = found.popitem()
        shards = SHARDS.search(paths[0].name)
        if shards and int(shards[1]) != len(paths):
            raise DataError(
                f"{paths[0].parent}: holds {len(paths)} of the {int(shards[1])} files of {name}: get all"
            )
        return kind, paths

    def _check_columns(self, features: Mapping[str, Any], name: str) -> None:
        columns = (self.layout.column, "label")
        if lacking := [column for column in columns if column not in features]:
            raise DataError(
                f"{self.where}: {name} has no column {lacking[0]!r}, but {', '.join(features)}: a copy of"
                f" {self.layout.name} has {' and '.join(columns)}"
            )
        names = tuple(getattr(features["label"], "names", None) or ())
        if self.layout.classes and names and names != self.layout.classes:
            raise DataError(
                f"{self.where}: {name} has the classes {', '.join(names)}, not those of {self.layout.name}"
            )

    @contextmanager
    def _explain_errors(self, library: Any, what: str) -> Iterator[None]:
        """Turn errors of the library into one DataError."""
        try:
            yield
        except (OSError, ValueError, KeyError, library.exceptions.DatasetsError) as error:
            remedy = "get a whole copy"
            if isinstance(self.where, str):
                remedy = f"load it once with a network, or give its parquet files: --from {PREFIX}:FOLDER"
            fault = get_first_line(error.__cause__ or error)
            raise DataError(f"{self.where}: {what} cannot be read ({fault}): {remedy}") from None


def _count_rows(kind: str, paths: list[Path]) -> int:
    """Return the number of rows by the ends of parquet files; 0 for arrow. Raises DataError for a cut one."""
    from pyarrow import parquet

    total = 0
    for path in paths if kind == "parquet" else ():
        try:
            total += parquet.read_metadata(path).num_rows
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: is cut short or no parquet file ({get_first_line(error)}): get it again"
            ) from None
    return total


def find_copy(source: Path, layout: HubLayout | None, dataset: str, progress: Progress) -> HubCopy | None:
    """Return the copy that ``--from`` means; None for an archive or another folder.

    Raises ConfigError where the dataset cannot be read from the Hub, DataError for no such folder.
    """
    prefix, _, rest = str(source).partition(":")
    is_named = prefix == PREFIX
    if not is_named and not any(any(source.glob(pattern)) for pattern in ("*.parquet", "*/*.parquet", SAVED)):
        return None
    if layout is None:
        raise ConfigError(
            f"--from {source}: {dataset} is not read from the Hub, only from its published files"
        )
    folder = expand_home(rest) if is_named else source
    if (rest or not is_named) and folder.is_dir():
        return HubCopy(layout, folder, progress)
    if not NAME.fullmatch(rest or layout.name):
        raise DataError(f"{rest}: is no folder, and no name on the Hub")
    return HubCopy(layout, rest or layout.name, progress)


def _import_library() -> Any:
    """Return the library, quiet and offline if msbench is. Raises ConfigError where it is not installed."""
    if is_offline():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the library is imported
    try:
        library: Any = import_module("datasets")
    except ImportError:
        raise ConfigError(
            f"--from {PREFIX}: Hugging Face's datasets is not installed: {explain_extra('hub')}"
        ) from None
    library.disable_progress_bars()
    library.logging.set_verbosity(library.logging.CRITICAL)  # each error becomes a message here
    return library
