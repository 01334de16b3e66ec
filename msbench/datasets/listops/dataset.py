"""ListOps (Nangia and Bowman 2018), as in Long Range Arena (Tay et al. 2021): generated here, or imported.

The published files, ``basic_{train,val,test}.tsv``, are read strictly: every physical line is a row,
quotation marks are data, columns are found by the header's names, and every target is recomputed. Round
brackets carry no information beyond that of the closing brackets, and are dropped, as in the public PyTorch
loaders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from msbench.datasets import manifest
from msbench.datasets.archive import explain_errors, open_folder
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription, compare_counts
from msbench.datasets.dataset import SPLITS, Progress, RaggedTokens, TaskInfo, ignore_progress
from msbench.datasets.disk import hash_file
from msbench.datasets.listops.expressions import (
    CLASSES,
    EOS,
    IDS,
    SYMBOLS,
    evaluate_expression,
    score_baselines,
)
from msbench.datasets.listops.generate import VERSION, ExpressionBlock, Grammar, collect_expressions
from msbench.datasets.manifest import Arrays
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
FOLDERS = (".", "listops-1000", "lra_release/listops-1000", "lra_release/lra_release/listops-1000")
PATHS = frozenset(PurePosixPath(folder, file).as_posix() for folder in FOLDERS for file in FILES.values())
"""Possible paths of the files in a folder or an archive."""
COLUMNS = {"Source", "Target"}
REPORT_EVERY = 500


@dataclass(frozen=True)
class SourceFile:
    """A source file; `sha256` is of its bytes."""

    path: Path
    sha256: str


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
        known = {entry["file"]: entry["sha256"] for entry in facts["sources"]}
        with open_folder(source, PATHS.__contains__, folder.parent, progress) as place:
            for file in find_release(place).values():
                if known.get(file.path.name) != file.sha256:
                    raise DataError(
                        f"{file.path} is not the file that {folder} was imported from: delete that folder"
                        " first"
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


def _assign_splits(examples: ExpressionBlock, sizes: dict[str, int]) -> dict[str, RaggedTokens]:
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
    with open_folder(source, PATHS.__contains__, build.folder.parent, build.progress) as place:
        files = find_release(place)
        splits = {name: read_split(file.path, build.progress) for name, file in files.items()}
        sources = [
            {"file": file.path.name, "bytes": file.path.stat().st_size, "sha256": file.sha256}
            for file in files.values()
        ]
    notes = compare_counts({FILES[name]: len(split) for name, split in splits.items()}, PUBLISHED, "rows")
    kept = manifest.count_duplicates(splits.values())
    return splits, {"sources": sources, "notes": notes, "duplicates_kept": kept}


def find_release(source: Path) -> dict[str, SourceFile]:
    """Find the file of each split in `source`, or in the first of `FOLDERS` below it that has any.

    Raises DataError naming what is missing, or both of two copies that differ.
    """
    if not source.is_dir():
        raise DataError(f"{source}: no such file or folder")
    names = FILES.values()
    folders = [source / name for name in FOLDERS if any((source / name / file).is_file() for file in names)]
    if not folders:
        raise DataError(f"{source / FILES['train']}: no such file, nor below {', '.join(FOLDERS[1:])}")
    found = {split: _hash_source_file(folders[0] / name) for split, name in FILES.items()}
    for other in folders[1:]:
        for split, name in FILES.items():
            if _hash_source_file(other / name).sha256 != found[split].sha256:
                raise DataError(
                    f"{found[split].path} and {other / name} differ: give --from the folder of the right one"
                )
    return found


def _hash_source_file(path: Path) -> SourceFile:
    with explain_errors(path):
        return SourceFile(path, hash_file(path))


def read_split(path: Path, progress: Progress = ignore_progress) -> RaggedTokens:
    """Read all rows of one file, in its order. Raises DataError naming file and line."""
    tokens, ends, labels = bytearray(), [0], bytearray()
    for ids, label in _read_rows(path, progress):
        tokens += ids
        tokens.append(EOS)
        ends.append(len(tokens))
        labels.append(label)
    if not labels:
        raise DataError(f"{path}: no rows after the header")
    return RaggedTokens(
        np.frombuffer(bytes(tokens), np.uint8),
        np.array(ends, np.int64),
        np.frombuffer(bytes(labels), np.uint8),
    )


def _read_rows(path: Path, progress: Progress) -> Iterator[tuple[bytes, int]]:
    done, total = 0, path.stat().st_size
    with path.open("rb") as lines:
        columns = _parse_header(path, next(lines, b""))
        for number, line in enumerate(lines, start=2):
            try:
                yield _parse_row(line, columns)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}") from None
            done += len(line)
            if number % REPORT_EVERY == 0:
                progress(f"reading {path.name}", done, total)
    progress(f"reading {path.name}", total, total)


def _parse_header(path: Path, header: bytes) -> tuple[str, ...]:
    # utf-8-sig: spreadsheets may write a byte order mark
    names = tuple(header.decode("utf-8-sig", errors="replace").rstrip("\r\n").split("\t"))
    if set(names) != COLUMNS or len(names) != len(COLUMNS):
        raise DataError(f"{path}, line 1: the header must name the columns Source and Target, not {names}")
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
