"""The benchmark of lengths: its sequence, its rows, the growth that it computes, and its tables."""

from typing import Any

import pytest
from bench_cases import silent
from test_bench_terminal import LONGEST, at_a_terminal

from msbench import models
from msbench.analysis.benchmarks import length, terminal
from msbench.analysis.benchmarks.command import build_document, row_key
from msbench.analysis.benchmarks.length import (
    TERMS,
    LengthEntry,
    compute_growth,
    measure_lengths,
    start_entry,
)
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.config import MODELS
from msbench.errors import UnknownName

OPTIONS = BenchmarkOptions(what="length", repeats=3, only=("mamba", "transformer"))


def measured(name: str, steps: int, seconds: float, peak: int | None = 1000) -> dict[str, Any]:
    row = {"name": name, "cost": models.find_family(name).cost, "size": {"b": 1, "l": steps}}
    return row | {"step": {"median": seconds}, "peak_bytes": peak}


def test_every_model_is_measured_at_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length, "LENGTHS", (16, 64))
    found = build_document(OPTIONS, 1.0, measure_lengths(OPTIONS, silent))
    rows = found["rows"]
    assert [(row["name"], row["size"]["l"], row["status"]) for row in rows] == [
        (name, steps, "measured") for name in OPTIONS.only for steps in (16, 64)
    ]
    assert len({row_key(row) for row in rows}) == len(rows)
    for row in rows:
        assert row["tokens_per_second"] == pytest.approx(row["size"]["l"] / row["step"]["median"])
    assert [row["name"] for row in found["growth"]] == list(OPTIONS.only)
    for _, header, lines in terminal.list_tables(found):
        assert all(len(line) == len(header) for line in lines)
    tables = [table for table in terminal.list_tables(found) if table[2]]
    assert len(tables) == 2
    assert max(map(at_a_terminal, tables)) <= LONGEST


def test_a_step_has_the_gradients_of_an_auxiliary_loss() -> None:
    entry = LengthEntry(name="r-lstm", length=16, cost="l")
    start_entry(entry, "cpu")
    _, gradients = entry.ready.gradients()
    assert gradients.keys() == dict(entry.ready.model.named_parameters()).keys()
    assert entry.ready.model.take_auxiliary_loss() is None


def test_growth_is_that_of_the_last_two_lengths() -> None:
    rows = [
        *(measured("transformer", steps, 1e-3 * steps) for steps in (256, 1024)),
        measured("transformer", 4096, 8.0, 3000),
    ]
    (found,) = compute_growth(rows)
    assert (found["from"], found["to"], found["cost"]) == (1024, 4096, "l^2")
    assert found["time"] == pytest.approx(8 / 1.024)
    assert found["expected"] == 16
    assert found["memory"] == 3
    assert compute_growth([*rows[:2], measured("transformer", 4096, 8.0, None)])[0]["memory"] is None
    del rows[1]["step"]
    assert compute_growth(rows) == []


def test_terms_are_those_of_their_names() -> None:
    assert {cost: term(1024) for cost, term in TERMS.items()} == {
        "l": 1024,
        "l log l": 10240,
        "l sqrt l": 32768,
        "l^2": 1048576,
    }
    assert {models.find_family(name).cost for name in MODELS} <= TERMS.keys()


def test_a_model_that_cannot_start_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length, "LENGTHS", (8, 16))
    original = models.build

    def build(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "transformer":
            raise MemoryError
        return original(name, *arguments, **options)

    monkeypatch.setattr(models, "build", build)
    found = measure_lengths(OPTIONS, silent)
    assert [row["status"] for row in found["rows"]] == ["measured"] * 2 + ["failed"] * 2
    assert found["rows"][2]["reason"] == "out of memory"
    assert [row["name"] for row in found["growth"]] == ["mamba"]


def test_only_models_are_measured() -> None:
    with pytest.raises(UnknownName, match="did you mean 'mamba'"):
        measure_lengths(BenchmarkOptions(what="length", only=("mambo",)), silent)
