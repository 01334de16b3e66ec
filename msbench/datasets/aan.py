"""Retrieval of Long Range Arena: pairs of papers of the ACL Anthology Network; does one cite the other?

::

    [[lra_release/]lra_release/]tsv_data/new_aan_pairs.{train,eval,test}.tsv

A row is ``label, id, id, text, text`` between tabs, without a header; every physical line is a row, and
quotation marks are data. Labels are written as floats. ``eval`` is the validation split. Nothing in a text is
unescaped: a backslash followed by n stays two characters, as in the public loaders.

The texts of 180,000 pairs are never in memory: they are truncated, wait on disk until the characters of the
training texts are counted, and become token ids there.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msbench.datasets import texts
from msbench.datasets.archive import read_lines
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription, compare_counts
from msbench.datasets.dataset import SPLITS, Progress, RaggedPairs, Split, TaskInfo, score_majority_rule
from msbench.datasets.manifest import Arrays
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import AanConfig

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
FOLDERS = ("", "tsv_data/", "lra_release/tsv_data/", "lra_release/lra_release/tsv_data/")
PATHS = {folder + file: split for folder in FOLDERS for split, file in FILES.items()}
PUBLISHED = {"train": 147_086, "validation": 18_090, "test": 17_437}
COLUMNS = 5
CHARACTERS = 98
"""Number of token ids of the complete data at the default settings, to build a model without data."""


class AanTable:
    """Contents of one file: labels, pairs of ids, and the texts of all rows, in `spool`."""

    def __init__(self, name: str, config: AanConfig, spool: texts.Spool) -> None:
        self.names, self.spool = [name], spool
        self.counts = texts.CharacterCounts(config)
        self.labels = array("B")
        self.pairs: list[bytes] = []
        self.bytes = self.empty = 0
        self._hash = hashlib.sha256()
        self._config = config

    @property
    def name(self) -> str:
        """The first of `names`, all of which are equal copies of the file."""
        return self.names[0]

    @property
    def sha256(self) -> str:
        """SHA-256 of all lines so far."""
        return self._hash.hexdigest()

    def add(self, line: bytes) -> None:
        """Add one row. Raises ValueError saying what is wrong with it."""
        label, pair, both = parse_row(line)
        for text in both:
            kept = texts.truncate_text(text, self._config)
            if not kept and not self._config.eos:
                raise ValueError("an empty text has no token; set data.eos to true")
            self.empty += not kept
            self.spool.add(kept)
            self.counts.add(kept)
        self.labels.append(label)
        self.pairs.append(pair)
        self._hash.update(line)
        self.bytes += len(line)

    def save(self, build: DatasetBuild, split: str, encoder: texts.TokenEncoder) -> dict[str, Any]:
        """Write the split and return its manifest entry."""
        labels, names = np.array(self.labels, np.uint8), b"\n".join(self.pairs)
        return texts.save_texts(build, split, self.spool, self.spool.lengths, encoder, labels, names)


def parse_row(line: bytes) -> tuple[int, bytes, list[bytes]]:
    """Return label, ids and texts of a row. Raises ValueError saying what is wrong with it."""
    fields = line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
    if len(fields) != COLUMNS:
        raise ValueError(f"{len(fields)} fields instead of {COLUMNS}")
    label, *ids = fields[:3]
    try:
        value = float(label)
    except ValueError:
        value = -1.0
    if value not in (0, 1):
        raise ValueError(f"the label {label.decode(errors='replace')!r} is neither 0.0 nor 1.0")
    return int(value), b"\t".join(ids), fields[3:]


def read_tables(config: AanConfig, build: DatasetBuild, stack: ExitStack) -> dict[str, AanTable]:
    """Read the file of each split; `stack` closes them. Raises DataError naming file and line."""
    (source,) = build.sources
    found: dict[str, AanTable] = {}
    for name, rows in read_lines(source, PATHS, build.progress):
        split = PATHS[name]
        if split in found:
            if _hash_rows(rows) != found[split].sha256:
                both = f"{found[split].name} and {name}"
                raise DataError(f"{source}: {both} differ: give --from the folder of the right one")
            found[split].names.append(name)
            continue
        table = found[split] = AanTable(name, config, stack.enter_context(texts.Spool(build.folder, config)))
        _read_rows(source, table, rows, build.progress)
    _refuse_gaps(source, found)
    return found


def _read_rows(source: Path, table: AanTable, rows: Iterator[bytes], progress: Progress) -> None:
    expected = PUBLISHED[PATHS[table.name]]
    for number, line in enumerate(rows, start=1):
        try:
            table.add(line)
        except ValueError as error:
            raise DataError(f"{source}: {table.name}, line {number}: {error}") from None
        if number % texts.REPORT_EVERY == 0:
            progress(f"reading rows of {table.name}", min(number, expected), expected)
    if not table.labels:
        raise DataError(f"{source}: {table.name}: no rows")


def _hash_rows(rows: Iterator[bytes]) -> str:
    total = hashlib.sha256()
    for line in rows:
        total.update(line)
    return total.hexdigest()


def _refuse_gaps(source: Path, found: Mapping[str, AanTable]) -> None:
    """Raise DataError where a file is missing, or is in another folder than the rest."""
    if missing := [file for split, file in FILES.items() if split not in found]:
        raise DataError(f"{source}: holds no {missing[0]}, nor has one in {', '.join(FOLDERS[1:])}")
    folders = [{name.rpartition("/")[0] for name in table.names} for table in found.values()]
    if not set.intersection(*folders):
        names = ", ".join(table.name for table in found.values())
        raise DataError(f"{source}: {names} do not lie in one folder: give --from the right one")


def fill(config: AanConfig, build: DatasetBuild) -> None:
    """Write the three splits. Raises DataError naming the file and the line that is wrong."""
    with ExitStack() as stack:
        found = read_tables(config, build, stack)
        vocabulary = found["train"].counts.vocabulary()
        encoder = texts.TokenEncoder(config, vocabulary)
        splits = {split: found[split].save(build, split, encoder) for split in SPLITS}
    tables = {
        split: {"file": table.name, "bytes": table.bytes, "sha256": table.sha256}
        for split, table in found.items()
    }
    train = set(found["train"].pairs)
    repeated = {split: len(train.intersection(found[split].pairs)) for split in SPLITS[1:]}
    facts = {"empty texts": {split: found[split].empty for split in SPLITS}, "pairs in train": repeated}
    rows = {table.name: len(table.labels) for table in found.values()}
    notes = compare_counts(rows, {found[split].name: count for split, count in PUBLISHED.items()}, "rows")
    build.finish(config, splits, vocabulary=vocabulary, tables=tables, notes=notes, **facts)


def view(config: AanConfig, arrays: Arrays, facts: Mapping[str, Any]) -> tuple[TaskInfo, Mapping[str, Split]]:
    """Return the facts of the task and its splits."""
    splits = {name: RaggedPairs(**arrays[name]) for name in SPLITS}
    longest = max(int(split.lengths.max()) for split in splits.values())
    rules = {"majority": score_majority_rule(splits["train"].labels, splits["test"].labels)}
    return _describe_task(texts.count_token_ids(config, facts["vocabulary"]), longest, rules), splits


def outline(config: AanConfig) -> TaskInfo:
    """Return the facts known without data, with the number of characters of the published data."""
    vocabulary = texts.BYTES if config.tokens == "bytes" else CHARACTERS
    return _describe_task(vocabulary, config.max_length, {})


def _describe_task(vocabulary: int, longest: int, rules: Mapping[str, float]) -> TaskInfo:
    return TaskInfo("pairs", vocabulary, 2, longest, "accuracy", 0.5, rules)


ABOUT = DatasetDescription(
    what="new_aan_pairs.{train,eval,test}.tsv: tsv_data in Long Range Arena's lra_release.gz (7.7 GB)",
    licence="none is stated, and its authors did not wish the texts passed on: msbench does not",
    where="storage.googleapis.com/long-range-arena, often refused; then: msbench setup aan --from PATH",
)

AAN: ArchiveDataset[AanConfig] = ArchiveDataset(
    name="aan", version=1, about=ABOUT, fill=fill, view=view, outline=outline
)
