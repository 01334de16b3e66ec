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

from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from msbench.datasets import texts
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription, compare_counts
from msbench.datasets.dataset import SPLITS, RaggedPairs, Split, TaskInfo, score_majority_rule
from msbench.datasets.manifest import Arrays
from msbench.datasets.tables import parse_rows, read_tables

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import AanConfig

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
FOLDERS = ("", "tsv_data/", "lra_release/tsv_data/", "lra_release/lra_release/tsv_data/")
PUBLISHED = {"train": 147_086, "validation": 18_090, "test": 17_437}
COLUMNS = 5
CHARACTERS = 98
"""Number of token ids of the complete data at the default settings, to build a model without data."""


class AanTable:
    """Contents of one file: labels, pairs of ids, and the texts of all rows, in `spool`."""

    def __init__(self, config: AanConfig, spool: texts.Spool) -> None:
        self.spool = spool
        self.counts = texts.CharacterCounts(config)
        self.labels = array("B")
        self.pairs: list[bytes] = []
        self.empty = self.truncated = 0
        self._config = config

    def add(self, line: bytes) -> None:
        """Add one row. Raises ValueError saying what is wrong with it."""
        label, pair, both = parse_row(line)
        for text in both:
            kept = texts.truncate_text(text, self._config)
            if not kept and not self._config.eos:
                raise ValueError("an empty text has no token; set data.eos to true")
            self.empty += not kept
            self.truncated += len(kept) < len(text)
            self.spool.add(kept)
            self.counts.add(kept)
        self.labels.append(label)
        self.pairs.append(pair)

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


def fill(config: AanConfig, build: DatasetBuild) -> None:
    """Write the three splits. Raises DataError naming the file and the line that is wrong."""
    with ExitStack() as stack:

        def read(where: str, lines: Iterator[bytes]) -> AanTable:
            table = AanTable(config, stack.enter_context(texts.Spool(build.folder, config)))
            for _ in parse_rows(where, lines, table.add):
                pass
            return table

        found = read_tables(build.sources[0], FOLDERS, FILES, read, build.progress)
        tables = {split: found[split][1] for split in SPLITS}
        vocabulary = tables["train"].counts.vocabulary()
        encoder = texts.TokenEncoder(config, vocabulary)
        splits = {split: table.save(build, split, encoder) for split, table in tables.items()}
    train = set(tables["train"].pairs)
    repeated = {split: len(train.intersection(tables[split].pairs)) for split in SPLITS[1:]}
    facts = {
        "tables": {split: file.describe() for split, (file, _) in found.items()},
        "empty texts": {split: table.empty for split, table in tables.items()},
        "pairs in train": repeated,
        **texts.describe_truncated({split: table.truncated for split, table in tables.items()}, config),
    }
    rows = {file.name: len(table.labels) for file, table in found.values()}
    published = {found[split][0].name: count for split, count in PUBLISHED.items()}
    notes = compare_counts(rows, published, "rows")
    build.finish(config, splits, vocabulary=vocabulary, notes=notes, **facts)


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
    name="aan", about=ABOUT, fill=fill, view=view, outline=outline
)
