"""The published ListOps files, ``basic_{train,val,test}.tsv``, read strictly.

Every physical line is a row; quotation marks are data, not quoting; columns are found by the header's names.
Round brackets carry no information beyond that of the closing brackets, and are dropped, as in the public
PyTorch loaders. Every target is recomputed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from msbench.datasets.dataset import Progress, RaggedTokens, ignore_progress
from msbench.datasets.disk import hash_file
from msbench.datasets.listops.evaluate import evaluate
from msbench.datasets.listops.symbols import CLASSES, EOS, IDS
from msbench.errors import DataError

FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}
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


def find(source: Path) -> dict[str, SourceFile]:
    """Find the file of each split in `source`, or in the first of `FOLDERS` below it that has any.

    Raises DataError naming what is missing, or both of two copies that differ.
    """
    if not source.is_dir():
        raise DataError(f"{source}: no such file or folder")
    names = FILES.values()
    folders = [source / name for name in FOLDERS if any((source / name / file).is_file() for file in names)]
    if not folders:
        raise DataError(f"{source / FILES['train']}: no such file, nor below {', '.join(FOLDERS[1:])}")
    found = {split: _source_file(folders[0] / name) for split, name in FILES.items()}
    for other in folders[1:]:
        for split, name in FILES.items():
            if _source_file(other / name).sha256 != found[split].sha256:
                raise DataError(
                    f"{found[split].path} and {other / name} differ: give --from the folder of the right one"
                )
    return found


def _source_file(path: Path) -> SourceFile:
    try:
        return SourceFile(path, hash_file(path))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def read_split(path: Path, progress: Progress = ignore_progress) -> RaggedTokens:
    """Read all rows of one file, in its order. Raises DataError naming file and line."""
    tokens, ends, labels = bytearray(), [0], bytearray()
    for ids, label in _rows(path, progress):
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


def _rows(path: Path, progress: Progress) -> Iterator[tuple[bytes, int]]:
    done, total = 0, path.stat().st_size
    with path.open("rb") as lines:
        columns = _columns(path, next(lines, b""))
        for number, line in enumerate(lines, start=2):
            try:
                yield _row(line, columns)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}") from None
            done += len(line)
            if number % REPORT_EVERY == 0:
                progress(f"reading {path.name}", done, total)
    progress(f"reading {path.name}", total, total)


def _columns(path: Path, header: bytes) -> tuple[str, ...]:
    # utf-8-sig: spreadsheets may write a byte order mark
    names = tuple(header.decode("utf-8-sig", errors="replace").rstrip("\r\n").split("\t"))
    if set(names) != COLUMNS or len(names) != len(COLUMNS):
        raise DataError(f"{path}, line 1: the header must name the columns Source and Target, not {names}")
    return names


def _row(line: bytes, columns: tuple[str, ...]) -> tuple[bytes, int]:
    """Return token ids and value of an expression. Raises ValueError saying what is wrong."""
    fields = line.decode().removesuffix("\n").removesuffix("\r").split("\t")
    if len(fields) != len(columns):
        raise ValueError(f"{len(fields)} fields instead of {len(columns)}")
    row = dict(zip(columns, fields, strict=True))
    label = _label(row["Target"])
    symbols = _symbols(row["Source"])
    value = evaluate(symbols)
    if value != label:
        raise ValueError(f"the target is {label} but the expression evaluates to {value}")
    return bytes([IDS[symbol] for symbol in symbols]), label


def _label(text: str) -> int:
    if len(text) != 1 or text not in "0123456789":
        raise ValueError(f"the target {text!r} is no digit from 0 to {CLASSES - 1}")
    return int(text)


def _symbols(source: str) -> list[str]:
    if source.count("(") != source.count(")"):
        raise ValueError("round brackets do not balance")
    return source.replace("(", "").replace(")", "").split()
