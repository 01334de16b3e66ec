"""What datasets have in common that are read from archives once and kept as arrays.

::

    archive or folder --fill--> <root>/<dataset>/<key>/ (arrays and manifest) --view--> Dataset

The key stands for those fields of the config that decide what is kept. Fields named in `views` only decide
how it is looked at (which labels, which standardisation): they share one folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msbench.datasets import manifest
from msbench.datasets.about import GENERATED, About, setup_command
from msbench.datasets.dataset import Dataset, Split, TaskInfo
from msbench.datasets.download import Remote, fetch
from msbench.datasets.manifest import Arrays
from msbench.datasets.progress import Progress, silent
from msbench.datasets.stamps import hash_file
from msbench.errors import ConfigError, DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import DataConfig

C = TypeVar("C", bound="DataConfig")
MOST_FILES = 10_000


@dataclass(frozen=True)
class Making:
    """What `fill` is given: the folder to fill, which is empty, and how.

    `sources` are the archives in the order of `Kept.remotes`, or the one file or folder that the user
    brought. `processes` has no effect on the data; `licence` is theirs.
    """

    folder: Path
    sources: tuple[Path, ...]
    processes: int | None
    progress: Progress
    licence: str
    remotes: tuple[Remote, ...] = ()

    def finish(
        self,
        config: DataConfig,
        splits: Mapping[str, Mapping[str, Any]],
        *,
        notes: Iterable[str] = (),
        **facts: Any,
    ) -> None:
        """Write the manifest: what was read, what came of it (`splits` as `manifest.describe` has it).

        `notes` are for whoever sets it up; whether an archive is the published one is noted here.
        """
        named = {"dataset": config.dataset, "config": config.model_dump(mode="json")}
        sources = [described(source, self.progress) for source in self.sources]
        origin = {"licence": self.licence, "sources": sources, "notes": [*self._strange(), *notes]}
        manifest.finish(self.folder, {**named, **origin, **facts}, splits)

    def _strange(self) -> Iterator[str]:
        """Of an archive that the user brought, that it is not the published one, where that is known."""
        known = [remote for remote in self.remotes if remote.digest is not None]
        for source in self.sources:
            if not source.is_file() or not known:
                continue
            algorithms = {str(remote.digest).partition(":")[0] for remote in known}
            digests = {f"{each}:{hash_file(source, each, self.progress)}" for each in algorithms}
            if digests.isdisjoint(str(remote.digest) for remote in known):
                yield f"{source.name} is not the published file: its digest is another"


@dataclass(frozen=True)
class Kept(Generic[C]):
    """A dataset by its parts; what `msbench.datasets.DatasetModule` asks for, it has.

    Parameters
    ----------
    name : of the dataset
    version : of what `fill` writes; another one is another folder
    about : what it is, its licence and where to get it
    remotes : what can be fetched; empty where nothing can
    fill : write arrays into a folder and end with `Making.finish`; raises DataError
    view : the facts of the task and its splits, from the config, the arrays and the manifest
    outline : the facts of the task before any data is there
    views : fields of the config that `fill` does not look at
    view_version : of what `view` makes of arrays; another one makes other examples of the same config
    is_generated : whether this config is made from nothing but itself
    """

    name: str
    version: int
    about: About
    fill: Callable[[C, Making], None]
    view: Callable[[C, Arrays, Mapping[str, Any]], tuple[TaskInfo, Mapping[str, Split]]]
    outline: Callable[[C], TaskInfo]
    remotes: tuple[Remote, ...] = ()
    views: frozenset[str] = frozenset()
    is_generated: Callable[[C], bool] = lambda _config: False
    view_version: int = 1

    def setup(
        self,
        config: C,
        root: Path,
        *,
        source: Path | None = None,
        processes: int | None = None,
        progress: Progress = silent,
    ) -> Dataset:
        """Generate, fetch or import where absent, verify, open.

        Raises DataError; ConfigError where a `source` is given for what is generated.
        """
        if source is not None:
            self._check(source, config)
        folder = self.folder_of(config, root)
        if not (folder / manifest.MANIFEST).exists():
            sources = (source,) if source is not None else self._sources(config, root, progress)
            licence = self.about.licence if sources else GENERATED
            making = partial(
                Making,
                sources=sources,
                processes=processes,
                progress=progress,
                licence=licence,
                remotes=self.remotes,
            )
            manifest.build(folder, lambda new: self.fill(config, making(new)), progress)
        elif source is not None:
            self._refuse_another(config, folder, source, progress)
        return self.open_dataset(config, root)

    def open_dataset(self, config: C, root: Path) -> Dataset:
        """The dataset, verified. Raises DataError saying what is wrong and what to run.

        Its manifest is of the config asked for: ``splits`` are those of the view, ``kept`` what they are of.
        """
        folder = self.folder_of(config, root)
        if not (folder / manifest.MANIFEST).exists():
            raise DataError(f"{self.name} is not set up in {folder}: run `{self.command(config)}`")
        arrays, facts = manifest.load(folder, self._remedy(config, folder))
        info, splits = self.view(config, arrays, facts)
        digest = self._digest(config, facts["digest"])
        return Dataset(info, splits, digest, {**facts, **_of_view(config, splits, facts)})

    def is_ready(self, config: C, root: Path) -> bool:
        """True where `open_dataset` finds every file with its size; what is in them it checks itself."""
        return manifest.is_whole(self.folder_of(config, root))

    def stored_digest(self, config: C, root: Path) -> str | None:
        """The digest that `open_dataset` would give, from the manifest alone; None without a whole one."""
        facts = manifest.find_manifest(self.folder_of(config, root))
        return None if facts is None else self._digest(config, facts["digest"])

    def folder_of(self, config: C, root: Path) -> Path:
        """Where this config's arrays are."""
        values = config.model_dump(mode="json", exclude=set(self.views))
        return root / self.name / manifest.short_hash({"version": self.version, "config": values})

    def command(self, config: C) -> str:
        """What sets up this config, or others that look at the same arrays."""
        return setup_command(config, "" if self.remotes or self.is_generated(config) else "PATH", self.views)

    def _remedy(self, config: C, folder: Path) -> str:
        return f"delete {folder}, then run `{self.command(config)}`"

    def _sources(self, config: C, root: Path, progress: Progress) -> tuple[Path, ...]:
        if self.is_generated(config):
            return ()
        if not self.remotes:
            raise DataError(f"{self.name}: the data are not here\n{self.about}")
        folder = root / "downloads" / self.name
        return tuple(fetch(remote, folder, progress) for remote in self.remotes)

    def _check(self, source: Path, config: C) -> None:
        if self.is_generated(config):
            raise ConfigError(
                f"{self.name} is generated here, so nothing is read from {source}; set source: release"
            )
        if not source.exists():
            raise DataError(f"{source}: no such file or folder")

    def _refuse_another(self, config: C, folder: Path, source: Path, progress: Progress) -> None:
        facts = manifest.read_manifest(folder, self._remedy(config, folder))
        known = [{**each, "file": source.name} if "file" in each else each for each in facts["sources"]]
        if [described(source, progress)] != known:  # an archive may have another name
            raise DataError(
                f"{source} is not what {folder} was made from; to replace that, delete it and run this again"
            )

    def _digest(self, config: C, kept: str) -> str:
        """sha256 of what is kept and of how it is looked at."""
        view = json.dumps(config.model_dump(mode="json", include=set(self.views)), sort_keys=True)
        return hashlib.sha256(f"{kept}\n{self.view_version}\n{view}".encode()).hexdigest()


def _of_view(config: DataConfig, splits: Mapping[str, Split], facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest says of this config, rather than of the one that its arrays were made for."""
    asked = config.model_dump(mode="json")
    if facts["splits"].keys() == splits.keys():
        return {"config": asked}
    counts = {name: manifest.describe(split.targets, split.lengths) for name, split in splits.items()}
    return {"config": asked, "kept": facts["splits"], "splits": counts}


def described(source: Path, progress: Progress = silent) -> dict[str, Any]:
    """What a manifest says of an archive: name, size, sha256; of a folder: name, files, size in all.

    Of a folder with more than `MOST_FILES`, only so many are looked at: millions would take minutes.
    """
    if source.is_dir():
        sizes = [path.stat().st_size for path in islice(_files(source), MOST_FILES)]
        return {"folder": source.name, "files": len(sizes), "bytes": sum(sizes)}
    return {
        "file": source.name,
        "bytes": source.stat().st_size,
        "sha256": hash_file(source, progress=progress),
    }


def _files(folder: Path) -> Iterator[Path]:
    """In an order that does not depend on the file system."""
    for path, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(path, name) for name in sorted(names))
