"""Registry of the datasets by name, and the operations that all of them share: set up, open, check."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.aan import AAN
from msbench.datasets.archive_dataset import ArchiveDataset
from msbench.datasets.cifar10 import CIFAR10
from msbench.datasets.dataset import Dataset, Progress, Split, TaskInfo, ignore_progress
from msbench.datasets.imagenet.dataset import IMAGENET
from msbench.datasets.imdb import IMDB
from msbench.datasets.listops.dataset import LISTOPS
from msbench.datasets.mnist import MNIST
from msbench.datasets.parallel import refuse_importing_worker
from msbench.datasets.pathfinder.dataset import PATHFINDER
from msbench.datasets.ptbxl.dataset import PTBXL
from msbench.datasets.recall import RECALL
from msbench.environment import expand_home
from msbench.errors import DataError, MsbenchError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.base import DataConfig
    from msbench.config.own import OwnCode

DATASETS: dict[str, ArchiveDataset[Any]] = {
    "listops": LISTOPS,
    "recall": RECALL,
    "pathfinder": PATHFINDER,
    "cifar10": CIFAR10,
    "mnist": MNIST,
    "imagenet": IMAGENET,
    "imdb": IMDB,
    "aan": AAN,
    "ptbxl": PTBXL,
}


def data_root() -> Path:
    """Return the folder of the data: ``MSBENCH_DATA``, or ``data`` in the user's cache folder for msbench."""
    if chosen := os.environ.get("MSBENCH_DATA"):
        return expand_home(chosen)
    import platformdirs

    try:
        path = platformdirs.user_cache_path("msbench") / "data"
    except RuntimeError:  # without a home folder; older versions leave the ~
        path = Path("~/.cache/msbench/data")
    return expand_home(path, "MSBENCH_DATA")


def get_dataset(config: DataConfig) -> ArchiveDataset[Any]:
    """Return the dataset of a config: one of msbench, or the user's own."""
    from msbench.config.own import find_own  # pydantic stays out of the worker processes

    code = find_own(config)
    return DATASETS[config.dataset] if code is None else _prepare_own(code)


@cache
def _prepare_own(code: OwnCode) -> ArchiveDataset[Any]:
    """Return a user's dataset, whose stored arrays are those of its present source, wherever that is."""
    found = code.target
    if not isinstance(found, ArchiveDataset):
        raise code.error("data.use", f"must be an ArchiveDataset, not {type(found).__name__}")
    return replace(
        found,
        version=f"{found.version} {code.digest_source()}",
        views=found.views | {"use"},
        ways=found.ways | {"use"},
        suite=code.suite,
        fill=partial(_call_own, code, found.fill),
        view=partial(_call_own, code, found.view),
        outline=partial(_call_own, code, found.outline),
        describe_examples=partial(_call_own, code, found.describe_examples),
    )


def _call_own(code: OwnCode, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a user's dataset; raise DataError, naming its line, where it fails."""
    try:
        return function(*arguments)
    except (MsbenchError, OSError):
        raise
    except Exception as error:
        raise DataError(f"{code.where}: data.use: {code.location}: {code.describe_failure(error)}") from error


def setup(
    config: DataConfig,
    root: Path,
    *,
    source: Path | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Build the dataset, or import it from `source`, where it is absent; verify and open it.

    Repeating it changes nothing. `processes` has no effect on the data; `progress` receives the current
    step, the amount done and the total. Raises DataError naming file, line or option.
    """
    refuse_importing_worker()
    return get_dataset(config).setup(
        config, root, source=source, processes=processes, progress=progress or ignore_progress
    )


def open_dataset(config: DataConfig, root: Path) -> Dataset:
    """Open the dataset, verifying it where it changed. Raises DataError naming the command to run."""
    return get_dataset(config).open_dataset(config, root)


def is_ready(config: DataConfig, root: Path) -> bool:
    """Return True if the dataset is set up, judging only by the names and sizes of its files."""
    return get_dataset(config).is_ready(config, root)


def stored_digest(config: DataConfig, root: Path) -> str | None:
    """Return the digest stored in the manifest; None where the dataset is not set up or damaged."""
    return get_dataset(config).stored_digest(config, root)


def command(config: DataConfig) -> str:
    """Return the command that sets the dataset up, such as ``msbench setup imagenet --from PATH``."""
    return get_dataset(config).command(config)


def describe_examples(config: DataConfig, split: Split) -> dict[str, NDArray[np.int64]]:
    """Return properties of the examples by name, each (n,): their length, and those that the dataset has."""
    found = get_dataset(config).describe_examples(split)
    return {"length": split.lengths, **{name: np.asarray(each, np.int64) for name, each in found.items()}}


def outline(config: DataConfig) -> TaskInfo:
    """Return the facts of the task known without data: enough to build a model and count its parameters.

    `longest` is an upper bound and `baselines` is empty.
    """
    return get_dataset(config).outline(config)
