"""Archives in the layouts that Text and Retrieval were published in."""

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from msbench.cli import app

Files = Mapping[str, bytes]

REVIEWS_EACH = 20
SPLITS_OF_PAIRS = ("train", "eval", "test")


def write_archive(path: Path, files: Files, mode: str = "w:gz") -> Path:
    """A tar of these files, in their order."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]  # the mode is no literal
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def write_folder(folder: Path, files: Files) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def reviews(each: int = REVIEWS_EACH) -> dict[str, bytes]:
    """aclImdb in little, ids out of order: a good film is good, a bad one bad."""
    files = {"aclImdb/README": b"no review", "aclImdb/train/unsup/0_0.txt": b"\xff unlabelled"}
    for half in ("test", "train"):
        for label, word, rating in (("pos", "good", 10), ("neg", "bad", 1)):
            for number in reversed(range(each)):
                text = f"A {word} film.<br />{half} {number}"
                files[f"aclImdb/{half}/{label}/{number}_{rating}.txt"] = text.encode()
    return files


def row(label: str, first: str, second: str, ids: str = "P1\tP2") -> bytes:
    return f"{label}\t{ids}\t{first}\t{second}\n".encode()


def pairs(folder: str = "lra_release/lra_release/tsv_data/", **rows: Iterable[bytes]) -> dict[str, bytes]:
    """The three files, each with two rows where `rows` gives no others; the keyword ``eval`` is one."""
    files = {}
    for split in SPLITS_OF_PAIRS:
        default = [
            row("1.0", "aab", "ab", f"{split}1\tP"),
            row("0.0", 'b "a\\n', "cb", f"{split}2\tP"),
        ]
        files[f"{folder}new_aan_pairs.{split}.tsv"] = b"".join(rows.get(split, default))
    return files


def trained(
    suite: str, source: Path, root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], pd.DataFrame]:
    """The record and the predictions of the one run of a suite, from the archive on, by the command line."""
    monkeypatch.setenv("MSBENCH_DATA", str(root))
    path, results = folder / "suite.yaml", folder / "results"
    path.write_text(suite)

    def msbench(verb: str, *options: str) -> str:
        done = CliRunner().invoke(app, [verb, str(path), *options])
        assert done.exit_code == 0, done.stderr
        return done.stdout

    msbench("setup", "--from", str(source))
    printed = msbench("run", "--set", "train.max_steps=3", "--results", str(results), "--json")
    (record,) = json.loads(printed)
    (predictions,) = results.rglob("predictions.parquet")
    return record, pd.read_parquet(predictions)


def accuracy(predictions: pd.DataFrame) -> float:
    """Of the classes with the highest logit."""
    logits = predictions[["logit_0", "logit_1"]].to_numpy()
    return float((logits.argmax(axis=1) == predictions["label"]).mean())
