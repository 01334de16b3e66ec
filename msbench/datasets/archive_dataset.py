"""Common implementation of datasets that are read from archives once and stored as arrays.

::

    archive or folder --fill--> <root>/<dataset>/<key>/ (arrays and manifest) --view--> Dataset

The key is a hash of those fields of the config that decide what is stored. Fields named in `views` only
decide how it is presented (which labels, which standardisation): such configs share one folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from msbench.datasets import manifest
from msbench.datasets.dataset import SPLITS, Dataset, Progress, Split, TaskInfo, ignore_progress
from msbench.datasets.disk import hash_file, make_temporary_folder
from msbench.datasets.download import RemoteFile, fetch_file
from msbench.datasets.hub import HubCopy, HubLayout, find_copy
from msbench.datasets.manifest import Arrays
from msbench.errors import ConfigError, DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.base import DataConfig

C = TypeVar("C", bound="DataConfig")
MOST_FILES = 10_000
VIEW_VERSION = 1
"""Part of every digest: to be raised if a view, with the same options, presents stored data differently."""


@dataclass(frozen=True)
class DatasetBuild:
    """Arguments of `fill`: the empty folder to fill, and its settings.

    `sources` are the archives in the order of `ArchiveDataset.remotes`, or the one file or folder that the
    user imports. `processes` has no effect on the data; `licence` is that of the data; `published` are the
    known digests of the archives, such as ``md5:...``. `copy` is what is read in place of sources, where
    it is from the Hub.
    """

    folder: Path
    sources: tuple[Path, ...]
    processes: int | None
    progress: Progress
    licence: str
    published: frozenset[str] = frozenset()
    copy: HubCopy | None = None

    def finish(
        self,
        config: DataConfig,
        splits: Mapping[str, Mapping[str, Any]],
        *,
        notes: Iterable[str] = (),
        **facts: Any,
    ) -> None:
        """Write the manifest: what was read, and `splits` as `manifest.describe_split` returns them.

        `notes` are for the user who sets it up; a note on an archive that is not the published one is added
        here.
        """
        named = {"dataset": config.dataset, "config": config.model_dump(mode="json")}
        sources = [describe_source(source, self.progress) for source in self.sources]
        origin = {
            "licence": self.licence,
            "sources": sources,
            "notes": [*self._describe_other_archives(), *notes],
        }
        if self.copy is not None:
            origin["hub"] = self.copy.layout.name
        manifest.write_manifest(self.folder, {**named, **origin, **facts}, splits)

    def _describe_other_archives(self) -> Iterator[str]:
        """Yield a note on a user's archive that is not the published one, where that is known."""
        algorithms = {digest.partition(":")[0] for digest in self.published}
        for source in self.sources:
            if source.is_file() and self.published:
                digests = {f"{each}:{hash_file(source, each, self.progress)}" for each in algorithms}
                if digests.isdisjoint(self.published):
                    yield f"{source.name} is not the published file: its digest is another"


@dataclass(frozen=True, kw_only=True)
class ArchiveDataset(Generic[C]):
    """A dataset composed of its parts.

    Parameters
    ----------
    name : of the dataset
    version : of the output of `fill`; each version has its own folder, and so has each source of a user's own
    about : its content, its licence and its source
    remotes : files that can be downloaded; empty where there are none
    other_digests : of further published archives that a user may import
    fill : write arrays into a folder and end with `DatasetBuild.finish`; raises DataError
    view : the facts of the task and its splits, from the config, the arrays and the manifest
    outline : the facts of the task known without data
    describe_examples : properties of the examples of a split by name, whole numbers (n,), that accuracy can
        be reported by beside their length; none if not given
    views : fields of the config that `fill` does not read
    ways : those of `views` that change how a model is given the examples, and not which; runs that differ in
        them alone are on the same data, so they are no part of the digest
    is_generated : returns True if this config is generated without any source
    suite : the suite whose file names it, if it is a user's own: the set-up is by that name
    hub : its form on the Hugging Face Hub, where copies of it can be imported
    """

    name: str
    about: DatasetDescription
    fill: Callable[[C, DatasetBuild], None]
    view: Callable[[C, Arrays, Mapping[str, Any]], tuple[TaskInfo, Mapping[str, Split]]]
    outline: Callable[[C], TaskInfo]
    describe_examples: Callable[[Any], Mapping[str, NDArray[np.integer[Any]]]] = lambda _split: {}
    version: int | str = 1
    remotes: tuple[RemoteFile, ...] = ()
    other_digests: frozenset[str] = frozenset()
    views: frozenset[str] = frozenset()
    ways: frozenset[str] = frozenset()
    is_generated: Callable[[C], bool] = lambda _config: False
    suite: str = ""
    hub: HubLayout | None = None

    def setup(
        self,
        config: C,
        root: Path,
        *,
        source: Path | None = None,
        processes: int | None = None,
        progress: Progress = ignore_progress,
    ) -> Dataset:
        """Generate, fetch or import the dataset where absent, verify it and open it.

        Raises DataError; ConfigError where a `source` is given for generated data.
        """
        if source is not None and self.is_generated(config):
            remedy = "set source: release" if hasattr(config, "source") else "leave out --from"
            raise ConfigError(f"{self.name} is generated here, so nothing is read from {source}; {remedy}")
        copy = None if source is None else find_copy(source, self.hub, self.name, progress)
        if source is not None and copy is None and not source.exists():
            raise DataError(f"{source}: no such file or folder")
        if source is not None and copy is None and not (source.is_file() or source.is_dir()):
            raise DataError(f"{source}: is neither a regular file nor a folder, and is not read")
        folder, built = self.folder_of(config, root), False
        sources: tuple[Path, ...] = ()
        if copy is None and (source is not None or not (folder / manifest.MANIFEST).exists()):
            sources = (source,) if source is not None else self._sources(config, root, progress)
        build = partial(
            DatasetBuild,
            sources=sources,
            processes=processes,
            progress=progress,
            licence=self.about.licence if sources or copy else GENERATED,
            published=self.other_digests | {each.digest for each in self.remotes if each.digest},
        )
        if not (folder / manifest.MANIFEST).exists():
            built = manifest.build_folder(
                folder, lambda new: self.fill(config, build(new, copy=copy)), progress
            )
        if source is not None and not built:
            if copy is None and not manifest.read_manifest(folder, self._remedy(config, folder)).get("hub"):
                self._refuse_another(config, folder, source, progress)
            else:
                compared = None if copy is None else replace(copy, is_compared=True)
                self._require_same(
                    config, folder, source, lambda new: self.fill(config, build(new, copy=compared))
                )
        return self.open_dataset(config, root)

    def open_dataset(self, config: C, root: Path) -> Dataset:
        """Open the dataset, verified. Raises DataError saying what is wrong and what to run.

        Its manifest is that of the requested config: ``splits`` are those of the view, ``kept`` the stored
        ones.
        """
        folder = self.folder_of(config, root)
        if not (folder / manifest.MANIFEST).exists():
            raise DataError(f"{self.name} is not set up in {folder}: run `{self.command(config)}`")
        arrays, facts = manifest.load_arrays(folder, self._remedy(config, folder))
        views = set(self.views)
        stored = {name: value for name, value in facts.get("config", {}).items() if name not in views}
        # Imported data can be the same for several configs, as published ListOps is.
        if self.is_generated(config) and stored != config.model_dump(mode="json", exclude=views):
            raise DataError(
                f"{folder / manifest.MANIFEST}: is of another config: {self._remedy(config, folder)}"
            )
        try:
            info, splits = self.view(config, arrays, facts)
        except (KeyError, TypeError, AttributeError) as error:
            fault = f"no {error}" if isinstance(error, KeyError) else error
            raise DataError(
                f"{folder / manifest.MANIFEST}: is damaged ({fault}): {self._remedy(config, folder)}"
            ) from error
        digest = self._digest(config, facts["digest"])
        return Dataset(info, splits, digest, {**facts, **_describe_view(config, splits, facts)})

    def is_ready(self, config: C, root: Path) -> bool:
        """Return True if `open_dataset` finds every file with its size; contents are verified on opening."""
        return manifest.find_manifest(self.folder_of(config, root)) is not None

    def stored_digest(self, config: C, root: Path) -> str | None:
        """Return the digest as `open_dataset` would, from the manifest alone; None without a whole one."""
        facts = manifest.find_manifest(self.folder_of(config, root))
        return None if facts is None else self._digest(config, facts["digest"])

    def folder_of(self, config: C, root: Path) -> Path:
        """Return the folder of this config's arrays."""
        values = config.model_dump(mode="json", exclude=set(self.views))
        return root / self.name / manifest.hash_values({"version": self.version, "config": values})

    def command(self, config: C) -> str:
        """Return the command that sets up this config, or others that share its arrays."""
        # Loads PyYAML, which stays out of the worker processes.
        from msbench.config.differences import format_yaml

        path = "" if self.remotes or self.is_generated(config) else " --from PATH"
        if self.suite:  # its settings are in there
            return f"msbench setup {shlex.quote(self.suite)}{path}"
        # `source` is given by --from, or by its absence
        excluded = {"dataset", "source", *self.views}
        values = config.model_dump(mode="json", exclude=excluded, exclude_defaults=True)
        sets = (f" --set {shlex.quote(f'data.{key}={format_yaml(value)}')}" for key, value in values.items())
        return "".join((f"msbench setup {config.dataset}{path}", *sets))

    def _remedy(self, config: C, folder: Path) -> str:
        return f"delete {folder}, then run `{self.command(config)}`"

    def _sources(self, config: C, root: Path, progress: Progress) -> tuple[Path, ...]:
        if self.is_generated(config):
            return ()
        if not self.remotes:
            raise DataError(f"{self.name}: the data are not available\n{self.about}")
        folder = root / "downloads" / self.name
        return tuple(fetch_file(remote, folder, progress) for remote in self.remotes)

    def _refuse_another(self, config: C, folder: Path, source: Path, progress: Progress) -> None:
        facts = manifest.read_manifest(folder, self._remedy(config, folder))
        # An archive may have another name, and an earlier version did not say where it stopped counting.
        same = {"file": source.name, "counted": ""}
        if [{**describe_source(source, progress), **same}] != [
            {**each, **same} for each in facts.get("sources", ())
        ]:
            raise DataError(
                f"{source} is not what {folder} was built from: to replace it, delete that folder and run the"
                " same command again"
            )

    def _require_same(self, config: C, folder: Path, source: Path, fill: Callable[[Path], None]) -> None:
        """Raise DataError naming the first example of `source` that is not the one stored in `folder`."""
        with make_temporary_folder(folder.parent, ".compared-") as scratch:
            fill(scratch)
            new, stored = (
                manifest.load_arrays(each, self._remedy(config, folder)) for each in (scratch, folder)
            )
            if difference := find_difference(*new, *stored):
                raise DataError(
                    f"{source} is not what is in {folder}: {difference}; to replace it, delete that folder"
                    " and run the same command again"
                )

    def _digest(self, config: C, kept: str) -> str:
        """Return the sha256 of the stored data and of the view on them."""
        view = json.dumps(config.model_dump(mode="json", include=set(self.views - self.ways)), sort_keys=True)
        return hashlib.sha256(f"{kept}\n{VIEW_VERSION}\n{view}".encode()).hexdigest()


def _describe_view(
    config: DataConfig, splits: Mapping[str, Split], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the manifest fields of this config, in place of those of the config the arrays were made for."""
    asked = config.model_dump(mode="json")
    if facts["splits"].keys() == splits.keys():
        return {"config": asked}
    counts = {name: manifest.describe_split(split.targets, split.lengths) for name, split in splits.items()}
    return {"config": asked, "kept": facts["splits"], "splits": counts}


def find_difference(
    new: Arrays, new_facts: Mapping[str, Any], stored: Arrays, facts: Mapping[str, Any]
) -> str:
    """Describe the first example, counted from 0, that differs; return "" if all are the same."""
    for split in (name for name in SPLITS if name in stored):
        first, second = new[split], stored[split]
        counts = [len(arrays["labels"]) for arrays in (first, second)]
        if counts[0] != counts[1]:
            return f"{split} has {counts[0]:,} examples, not {counts[1]:,}"
        ragged, differs = {"tokens", "names"} & second.keys(), np.zeros(counts[0], bool)
        for name in second.keys() - ragged - {"offsets"}:
            differs |= (first[name] != second[name]).reshape(counts[0], -1).any(axis=1)
        for name in ragged:
            # One character that is another can renumber all of them.
            flat = [_decode_tokens(first[name], new_facts), _decode_tokens(second[name], facts)]
            for number in range(counts[0]):
                ends = (each["offsets"][number : number + 2] for each in (first, second))
                one, other = (array[slice(*each)] for array, each in zip(flat, ends, strict=True))
                differs[number] |= not np.array_equal(one, other)
        if differs.any():
            return f"example {int(np.argmax(differs)):,} of {split} is another"
    return ""


def _decode_tokens(tokens: NDArray[Any], facts: Mapping[str, Any]) -> NDArray[Any]:
    """Return code points instead of ids, which begin with three that are no characters."""
    vocabulary = facts.get("vocabulary")
    return np.array([-3, -2, -1, *map(ord, vocabulary)])[tokens] if vocabulary else tokens


def compare_counts(
    found: Mapping[str, int], published: Mapping[str, int], unit: str, what: str = "the published file"
) -> list[str]:
    """Return a note for each name of which there are more or fewer than published."""
    return [
        f"{name} has {found[name]:,} {unit}, {what} {count:,}"
        for name, count in published.items()
        if found[name] != count
    ]


def describe_source(source: Path, progress: Progress = ignore_progress) -> dict[str, Any]:
    """Describe a source for the manifest: archives by name, size, sha256; folders by name, files, total size.

    In a folder with more than `MOST_FILES`, only so many are counted, which is said: millions would take
    minutes.
    """
    if source.is_dir():
        sizes = [path.stat().st_size for path in islice(_list_files(source), MOST_FILES + 1)]
        counted = {"counted": "the first files by name"} if len(sizes) > MOST_FILES else {}
        return {
            "folder": source.name,
            "files": len(sizes[:MOST_FILES]),
            "bytes": sum(sizes[:MOST_FILES]),
        } | counted
    return {
        "file": source.name,
        "bytes": source.stat().st_size,
        "sha256": hash_file(source, progress=progress),
    }


def _list_files(folder: Path) -> Iterator[Path]:
    """Yield files in an order that does not depend on the file system, without hidden ones."""
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        shown = (Path(path, name) for name in sorted(names) if not name.startswith("."))
        yield from (each for each in shown if each.is_file())  # a link may lead nowhere


GENERATED = "that of msbench itself, which made these data"
"""The licence of generated data, which have no source."""


@dataclass(frozen=True)
class DatasetDescription:
    """Description of published data for users who have to get them: content, source, and command to run.

    `licence` is written into every manifest too; where none is stated it says so.
    """

    what: str
    licence: str
    where: str

    def __str__(self) -> str:
        """Return three lines, or more where a field has several."""
        named = {"what:": self.what, "licence:": self.licence, "where:": self.where}
        return "\n".join(f"  {name:<8} {text}".replace("\n", "\n" + " " * 11) for name, text in named.items())
