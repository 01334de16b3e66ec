"""The document on disk: whole or not at all, read back, refused where it is another's."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from bench_cases import document, row

from msbench.analysis.benchmarks.comparison import compare
from msbench.analysis.benchmarks.document import document as make
from msbench.analysis.benchmarks.document import measured_rows, read, write
from msbench.analysis.benchmarks.settings import Settings
from msbench.errors import ConfigError


def test_a_document_says_what_it_was_found_under() -> None:
    made = make("scan", Settings(threads=2, only=("cpp",)), 1.5, {"rows": []})
    assert (made["schema"], made["schema_version"], made["what"]) == ("msbench-bench", 1, "scan")
    assert made["settings"]["only"] == ("cpp",)
    assert made["device"]["type"] == "cpu"
    assert made["environment"]["packages"]["torch"]
    json.dumps(made, allow_nan=False)


def test_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    made = document(row("cpp"))
    write(path, made)
    assert read(path, "scan") == made
    assert os.listdir(path.parent) == ["a.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write(path, document(row("old")))
    with pytest.raises(ValueError, match="Out of range"):
        write(path, document(row("nan", float("nan"))))

    def full(*_arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(
        ConfigError, match=r"a\.json: cannot be written: No space left .*; make room, or choose another --out"
    ):
        write(path, document(row("new")))
    assert read(path, "scan")["rows"][0]["name"] == "old"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("{", "no JSON"),
        ("[]", "not written by `msbench bench --out`"),
        ('{"schema": "other"}', "not written by `msbench bench --out`"),
        ('{"schema": "msbench-bench", "schema_version": 7, "what": "scan"}', "schema version 7, this is 1"),
        (
            '{"schema": "msbench-bench", "schema_version": 1, "what": "step"}',
            "of `bench step`, not of `bench scan`",
        ),
    ],
)
def test_what_cannot_be_compared_with_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "old.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read(path, "scan")
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_rows_that_count() -> None:
    rows = [row("a"), {"name": "b", "status": "invalid"}, {"name": "c", "status": "skipped"}]
    assert [x["name"] for x in measured_rows({"rows": rows})] == ["a"]


def test_the_published_document_is_read_and_compared_though_its_bound_is_an_older_one() -> None:
    published = read(Path(__file__).parents[3] / "results" / "bench" / "scan-cpu.json", "scan")
    rows = measured_rows(published)
    compared = compare(published, published)
    assert len(compared["rows"]) == 2 * len(rows) > 0
    assert {line["verdict"] for line in compared["rows"]} == {"same"}
