"""ListOps (Nangia and Bowman 2018), as in Long Range Arena (Tay et al. 2021): generated here, or imported.

The published files, ``basic_{train,val,test}.tsv``, are read strictly: every physical line is a row,
quotation marks are data, columns are found by the header's names, and every target is recomputed. Round
brackets carry no information beyond that of the closing brackets, and are dropped, as in the public PyTorch
loaders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msbench.datasets import manifest
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription, compare_counts
from msbench.datasets.dataset import SPLITS, Progress, RaggedTokens, TaskInfo
from msbench.datasets.listops.expressions import (
    CLASSES,
    EOS,
    IDS,
    SYMBOLS,
    evaluate_expression,
    measure_expressions,
    score_baselines,
)
from msbench.datasets.listops.generate import VERSION, Grammar, collect_expressions
from msbench.datasets.manifest import Arrays
from msbench.datasets.tables import parse_rows, read_tables
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import ListOpsConfig

PUBLISHED = {"basic_train.tsv": 96_000, "basic_val.tsv": 2_000, "basic_test.tsv": 2_000}
ABOUT = DatasetDescription(
    what="basic_train.tsv, basic_val.tsv, basic_test.tsv: listops-1000 in Long Range Arena's lra_release.gz",
    licence="the code is Apache-2.0; for the data none is stated, so msbench does not pass them on",
    where="there or unpacked, anywhere, then: msbench setup listops --from PATH",
)


FILES = dict(zip(SPLITS, PUBLISHED, strict=True))
FOLDERS = ("", "listops-1000/", "lra_release/listops-1000/", "lra_release/lra_release/listops-1000/")
COLUMNS = {"Source", "Target"}


def fill(config: ListOpsConfig, build: DatasetBuild) -> None:
    """Generate or import the three splits."""
    splits, facts = _import(build) if build.sources else _generate(config, build)
    named = {"dataset": "listops", "config": config.model_dump(mode="json"), "licence": build.licence}
    rules = {"baselines": score_baselines(splits["train"], splits["test"])}
    manifest.write_token_splits(build.folder, splits, {**named, **facts, **rules})


def view(
    _config: ListOpsConfig, arrays: Arrays, facts: Mapping[str, Any]
) -> tuple[TaskInfo, dict[str, RaggedTokens]]:
    """Return the facts of the task and its splits."""
    splits = {name: RaggedTokens(**arrays[name]) for name in SPLITS}
    longest = max(int(split.lengths.max()) for split in splits.values())
    return _describe_task(longest, facts["baselines"]), splits


@dataclass(frozen=True, kw_only=True)
class ListOps(ArchiveDataset["ListOpsConfig"]):
    """The ListOps dataset; the published files are taken as they are."""

    def folder_of(self, config: ListOpsConfig, root: Path) -> Path:
        """Return the folder of this config's data: one for each grammar, one for the published files."""
        if config.source == "release":
            return root / "listops" / "release"
        values = {"generator": VERSION, "config": config.model_dump(mode="json")}
        return root / "listops" / manifest.hash_values(values)

    def _refuse_another(self, config: ListOpsConfig, folder: Path, source: Path, progress: Progress) -> None:
        facts = manifest.read_manifest(folder, self._remedy(config, folder))
        known = {entry.get("file"): entry.get("sha256") for entry in facts.get("sources", ())}
        found = read_tables(source, FOLDERS, FILES, lambda *_: None, progress)
        for split, (file, _) in found.items():
            if known.get(FILES[split]) != file.sha256:
                raise DataError(
                    f"{source}: {file.name} is not the file that {folder} was imported from: delete that"
                    " folder first"
                )

    def _digest(self, config: ListOpsConfig, kept: str) -> str:  # noqa: ARG002 (there are no views)
        return kept


LISTOPS = ListOps(
    name="listops",
    version=VERSION,
    about=ABOUT,
    fill=fill,
    view=view,
    outline=lambda config: _describe_task(config.max_length, {}),
    describe_examples=measure_expressions,
    is_generated=lambda config: config.source == "generated",
)


def _describe_task(longest: int, rules: Mapping[str, float]) -> TaskInfo:
    return TaskInfo(
        kind="tokens",
        vocabulary=len(SYMBOLS),
        classes=CLASSES,
        longest=longest,
        metric="accuracy",
        chance=1 / CLASSES,
        baselines=rules,
    )


def _generate(config: ListOpsConfig, build: DatasetBuild) -> tuple[dict[str, RaggedTokens], dict[str, Any]]:
    grammar = Grammar(config.min_length, config.max_length, config.max_depth, config.max_args, config.seed)
    sizes = {"train": config.train, "validation": config.validation, "test": config.test}
    collected = collect_expressions(
        grammar, sum(sizes.values()), processes=build.processes, progress=build.progress
    )
    drawn = {"draws": collected.draws, "duplicates_dropped": collected.duplicates}
    generator = {"version": VERSION, "numpy": np.__version__, "grammar": asdict(grammar), **drawn}
    return _assign_splits(collected.examples, sizes), {"sources": [], "generator": generator}


def _assign_splits(examples: RaggedTokens, sizes: dict[str, int]) -> dict[str, RaggedTokens]:
    """Assign the first examples to train, the next to validation, the last to test."""
    splits: dict[str, RaggedTokens] = {}
    first = 0
    for name in SPLITS:
        last = first + sizes[name]
        offsets = examples.offsets[first : last + 1]
        tokens = examples.tokens[offsets[0] : offsets[-1]]
        splits[name] = RaggedTokens(tokens, offsets - offsets[0], examples.labels[first:last])
        first = last
    return splits


def _import(build: DatasetBuild) -> tuple[dict[str, RaggedTokens], dict[str, Any]]:
    (source,) = build.sources
    found = read_tables(source, FOLDERS, FILES, read_split, build.progress)
    splits = {name: found[name][1] for name in SPLITS}
    sources = [{**found[name][0].describe(), "file": FILES[name]} for name in SPLITS]
    notes = compare_counts({FILES[name]: len(split) for name, split in splits.items()}, PUBLISHED, "rows")
    kept = manifest.count_duplicates(splits.values())
    return splits, {"sources": sources, "notes": notes, "duplicates_kept": kept}


def read_split(where: str, lines: Iterator[bytes]) -> RaggedTokens:
    """Read all rows of one file, in its order. Raises DataError naming file and line."""
    tokens, ends, labels = bytearray(), [0], bytearray()
    columns = _parse_header(where, next(lines, b""))
    for ids, label in parse_rows(where, lines, partial(_parse_row, columns=columns), first=2):
        tokens += ids
        tokens.append(EOS)
        ends.append(len(tokens))
        labels.append(label)
    return RaggedTokens(
        np.frombuffer(bytes(tokens), np.uint8),
        np.array(ends, np.int64),
        np.frombuffer(bytes(labels), np.uint8),
    )


def _parse_header(where: str, header: bytes) -> tuple[str, ...]:
    # utf-8-sig: spreadsheets may write a byte order mark
    names = tuple(header.decode("utf-8-sig", errors="replace").rstrip("\r\n").split("\t"))
    if set(names) != COLUMNS or len(names) != len(COLUMNS):
        raise DataError(f"{where}, line 1: the header must name the columns Source and Target, not {names}")
    return names


def _parse_row(line: bytes, columns: tuple[str, ...]) -> tuple[bytes, int]:
    """Return token ids and value of an expression. Raises ValueError saying what is wrong."""
    fields = line.decode().removesuffix("\n").removesuffix("\r").split("\t")
    if len(fields) != len(columns):
        raise ValueError(f"{len(fields)} fields instead of {len(columns)}")
    row = dict(zip(columns, fields, strict=True))
    label = _parse_label(row["Target"])
    symbols = _parse_symbols(row["Source"])
    value = evaluate_expression(symbols)
    if value != label:
        raise ValueError(f"the target is {label} but the expression evaluates to {value}")
    return bytes([IDS[symbol] for symbol in symbols]), label


def _parse_label(text: str) -> int:
    if len(text) != 1 or text not in "0123456789":
        raise ValueError(f"the target {text!r} is no digit from 0 to {CLASSES - 1}")
    return int(text)


def _parse_symbols(source: str) -> list[str]:
    if source.count("(") != source.count(")"):
        raise ValueError("round brackets do not balance")
    return source.replace("(", "").replace(")", "").split()
