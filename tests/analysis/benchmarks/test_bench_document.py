"""The document on disk: whole or not at all, read back, compared with an older one, or refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from bench_cases import document, row, spread

from msbench.analysis.benchmarks.command import (
    SMALLEST_CHANGE,
    build_document,
    compare_documents,
    compare_times,
    list_measured_rows,
    run_benchmark,
)
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.errors import ConfigError
from msbench.results.benchmark_documents import read_document, write_document


def test_a_document_says_what_it_was_found_under() -> None:
    made = build_document(BenchmarkOptions(threads=2, only=("cpp",)), 1.5, {"rows": []})
    assert (made["schema"], made["schema_version"], made["what"]) == ("msbench-bench", 1, "scan")
    assert made["settings"]["only"] == ("cpp",)
    assert made["device"]["type"] == "cpu"
    assert made["environment"]["packages"]["torch"]
    json.dumps(made, allow_nan=False)


def test_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    made = document(row("cpp"))
    write_document(path, made)
    assert read_document(path, "scan") == made
    assert os.listdir(path.parent) == ["a.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_document(path, document(row("old")))
    with pytest.raises(ValueError, match="Out of range"):
        write_document(path, document(row("nan", float("nan"))))

    def full(*_arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(
        ConfigError, match=r"a\.json: cannot be written: No space left .*; make room, or choose another --out"
    ):
        write_document(path, document(row("new")))
    assert read_document(path, "scan")["rows"][0]["name"] == "old"
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
        ("[" * 500 + "]" * 500, "nested too deeply"),
        *(
            (json.dumps({**document(row("cpp")), **wrong}), f"not a benchmark: {words}")
            for wrong, words in (
                ({"rows": None}, "rows: "),
                ({"rows": [{"status": "measured"}]}, "rows.0.name: Field required"),
                ({"rows": [row("cpp", 0.0)]}, "rows.0.forward.median: "),
                (
                    {"rows": [row("cpp", forward={"median": "1", "p20": 1, "p80": 1})]},
                    "rows.0.forward.median: ",
                ),
                ({"rows": [row("cpp", forward={"median": 1})]}, "rows.0.forward.p20: Field required"),
                ({"rows": [row("cpp", shape=3)]}, "rows.0.shape: "),
                ({"rows": [row("cpp", size=[1])]}, "rows.0.size: "),
            )
        ),
        (json.dumps({k: v for k, v in document().items() if k != "rows"}), "rows: Field required"),
    ],
)
def test_what_cannot_be_compared_with_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "old.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"--compare {path}: ") as caught:
        run_benchmark(BenchmarkOptions(compare=path))
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_rows_that_count() -> None:
    rows = [row("a"), {"name": "b", "status": "invalid"}, {"name": "c", "status": "skipped"}]
    assert [x["name"] for x in list_measured_rows({"rows": rows})] == ["a"]


def test_the_published_document_is_read_and_compared_though_its_bound_is_an_older_one() -> None:
    published = read_document(Path(__file__).parents[3] / "results" / "bench" / "scan-cpu.json", "scan")
    rows = list_measured_rows(published)
    compared = compare_documents(published, published)
    assert len(compared["rows"]) == 2 * len(rows) > 0
    assert {line["verdict"] for line in compared["rows"]} == {"same"}


@pytest.mark.parametrize(
    ("now", "then", "verdict"),
    [
        (spread(1.0), spread(1.0), "same"),
        (spread(1.0 + 0.9 * SMALLEST_CHANGE), spread(1.0), "same"),
        (spread(1.1), spread(1.0), "slower"),
        (spread(0.9), spread(1.0), "faster"),
        (spread(1.1, 0.1), spread(1.0), "same"),
        (spread(1.1), spread(1.0, 0.1), "same"),
        (spread(1.1, 0.06), spread(1.0, 0.06), "slower"),
        (spread(2.0, 0.5), spread(1.0, 0.5), "slower"),
    ],
)
def test_a_change_counts_outside_both_spreads(
    now: dict[str, float], then: dict[str, float], verdict: str
) -> None:
    found = compare_times(now, then)
    assert found["verdict"] == verdict
    assert found["ratio"] == pytest.approx(now["median"] / then["median"])
    back = compare_times(then, now)["verdict"]
    assert back == {"slower": "faster", "faster": "slower", "same": "same"}[verdict]


def test_rows_are_matched_by_name_and_size() -> None:
    bigger = row("cpp", 8.0) | {"size": {"b": 8, "l": 8, "m": 2, "d": 4, "n": 3}}
    found = compare_documents(document(row("cpp", 2.0), row("torch")), document(row("cpp", 1.0), bigger))
    lines = {(line["row"], line.get("mode", "")): line for line in found["rows"]}
    name = "cpp 1x8x2x4x3"
    assert lines[(name, "forward")]["ratio"] == 2.0
    assert lines[(name, "both")]["verdict"] == "slower"
    assert lines[("torch 1x8x2x4x3", "")]["verdict"] == "only now"
    assert lines[("cpp 8x8x2x4x3", "")]["verdict"] == "only before"
    assert len(found["rows"]) == 4


def test_rows_that_were_not_measured() -> None:
    bad = {"name": "cpp", "status": "invalid", "reason": "off", "size": row("cpp")["size"]}
    found = compare_documents(document(bad), document(row("cpp")))
    assert [line["verdict"] for line in found["rows"]] == ["invalid, was measured"]
    assert compare_documents(document(bad), document(bad))["rows"] == []
    skipped = {"name": "cpp", "status": "skipped", "reason": "no compiler"}
    found = compare_documents(document(skipped), document(row("cpp")))
    assert [line["verdict"] for line in found["rows"]] == ["only before"]


def test_rows_that_were_not_requested_are_not_compared() -> None:
    partial = document(row("cpp"), settings={"only": ["cpp"]})
    found = compare_documents(partial, document(row("cpp"), row("torch")))
    assert {line["row"] for line in found["rows"]} == {"cpp 1x8x2x4x3"}


def test_steps_are_matched_by_their_shape() -> None:
    one = {
        "shape": "quick",
        "name": "mamba/16",
        "status": "measured",
        "size": {"b": 2, "l": 9},
        "step": spread(1.0),
    }
    other = {**one, "shape": "deep", "step": spread(3.0)}
    found = compare_documents(document(one, other), document(other, one))
    assert [(line["row"], line["mode"], line["verdict"]) for line in found["rows"]] == [
        ("quick mamba/16 2x9", "step", "same"),
        ("deep mamba/16 2x9", "step", "same"),
    ]


def test_other_conditions_are_listed() -> None:
    old = document(row("cpp"), threads=1, device={"type": "cpu", "name": "Another"})
    found = compare_documents(document(row("cpp")), old)
    assert found["differences"] == [
        "name of the device: A processor, was Another",
        "threads: 2, was 1",
    ]
    assert compare_documents(document(), document())["differences"] == []
