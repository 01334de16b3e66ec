import pytest
from gate_cases import evidence, listing

from msbench.gate.baseline_file import Baseline
from msbench.gate.expectations import Answer, Expectation, expect_baseline, expect_paper
from msbench.reporting.tables.cells import Cell, Column, Evidence, Judgement
from msbench.runs.suite_file import DEFAULT_MARGIN, DEFAULT_REASON, GateSettings
from msbench.stats.summary import Pooled

Asked = tuple[Column, str, Cell]


def asked(
    reported: str = "62.75",
    *,
    unit: str = "percent",
    task: str = "t",
    model: str = "m",
    found: Evidence | None = None,
) -> Asked:
    """Model ``m`` on task ``t``, one seed on a CPU."""
    cell = Cell(reported=reported, n_planned=1, evidence=found or evidence(0.6))
    return Column(task, "T", unit, "s"), model, cell


def entry(*values: float, **changes: object) -> dict[str, object]:
    """An entry of a baseline."""
    seen = {
        "metric": "accuracy",
        "values": values,
        "seeds": tuple(range(len(values))),
        "n": len(values),
        "mean": sum(values) / len(values),
        "n_test": 2000,
        "data": "a" * 12,
        "source": "b" * 12,
        "margin": 0.03,
        "reason": "as written",
        "date": "2026-01-31",
        "msbench": "0.1.0",
    }
    if len(values) > 1:
        mean = sum(values) / len(values)
        seen["sd"] = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return {**seen, **changes}


def baseline(**classes: dict[str, object]) -> Baseline:
    """The baseline of model ``m``, and of ``other`` on a CPU, on task ``t``."""
    cells = {"t": {"m": {name.replace("_", " "): seen for name, seen in classes.items()}}}
    cells["t"]["other"] = {"cpu": entry(0.3, 0.32)}
    return Baseline.model_validate({"suite": "s", "cells": cells})


def of_baseline(
    given: Baseline | None, cell: Asked, *models: str, gate: GateSettings | None = None
) -> Answer:
    return expect_baseline(given, "b.yaml", listing(*models, gate=gate), *cell)


def of_entries(
    gate: GateSettings | None = None, hardware: str = "cpu", **classes: dict[str, object]
) -> Answer:
    cell = asked(found=evidence(0.6, hardware=hardware))
    return of_baseline(baseline(**classes), cell, "m", "other", gate=gate)


class TestBaseline:
    def test_its_numbers_are_expected(self) -> None:
        found = of_entries(cpu=entry(0.6, 0.62))
        assert isinstance(found, Expectation)
        assert (found.n, found.n_test, found.data_digest) == (2, 2000, "a" * 12)
        assert (found.margin, found.reason) == (0.03, "as written")
        assert found.groups == ((0.6, 0.62), (0.3, 0.32))

    def test_the_suites_margin_wins(self) -> None:
        gate = GateSettings.model_validate({"tasks": {"t": {"margin": 0.05, "reason": "measured again"}}})
        found = of_entries(gate, cpu=entry(0.6))
        assert isinstance(found, Expectation)
        assert (found.margin, found.reason) == (0.05, "measured again")

    @pytest.mark.parametrize(
        ("hardware", "words"),
        [
            ("NVIDIA H100", "measured on NVIDIA H100; b.yaml has cpu, and no 'any'"),
            ("CPU", "measured on CPU"),
            ("", "several kinds of hardware together"),
        ],
    )
    def test_other_hardware_is_not_held_against_it(self, hardware: str, words: str) -> None:
        found = of_entries(hardware=hardware, cpu=entry(0.6))
        assert isinstance(found, Judgement)
        assert found.verdict == "missing"
        assert words in found.reason
        assert "msbench baseline s" in found.reason

    @pytest.mark.parametrize("hardware", ["NVIDIA H100", ""])
    def test_any_speaks_for_what_has_no_entry(self, hardware: str) -> None:
        found = of_entries(hardware=hardware, cpu=entry(0.6), any=entry(0.7))
        assert isinstance(found, Expectation)
        assert found.mean == 0.7

    def test_the_own_class_wins_over_any(self) -> None:
        found = of_entries(cpu=entry(0.6), any=entry(0.7))
        assert isinstance(found, Expectation)
        assert found.mean == 0.6

    def test_a_cell_that_it_lacks_is_missing(self) -> None:
        for cell in (asked(model="new"), asked(task="new")):
            found = of_baseline(baseline(cpu=entry(0.6)), cell, "m", "other", "new")
            assert isinstance(found, Judgement)
            assert found.verdict == "missing"
            assert "b.yaml has no expectation for it" in found.reason

    def test_of_a_model_that_the_suite_does_not_list_nothing_is_asked(self) -> None:
        assert of_baseline(baseline(cpu=entry(0.6)), asked(model="stranger"), "m") is None


class TestPaper:
    def test_of_what_the_suite_does_not_list_nothing_is_expected(self) -> None:
        assert isinstance(expect_paper(listing("m"), *asked()), Expectation)
        assert expect_paper(listing("other"), *asked()) is None

    def test_a_printed_number_is_exact(self) -> None:
        found = expect_paper(listing("m"), *asked())
        assert isinstance(found, Expectation)
        assert found.mean == pytest.approx(0.6275)
        assert (found.n, found.n_test, found.data_digest) == (0, None, "")
        assert (found.margin, found.reason) == (DEFAULT_MARGIN, DEFAULT_REASON)

    def test_a_stated_spread_is_known(self) -> None:
        gate = GateSettings(sd=0.004, degrees=18, margin=0.015, reason="18 degrees")
        found = expect_paper(listing("m", gate=gate), *asked("0.831", unit="auroc"))
        assert isinstance(found, Expectation)
        assert found.metric == "test_macro_auroc"
        assert (found.mean, found.known, found.margin) == (0.831, Pooled(0.004, 18), 0.015)

    def test_where_it_prints_nothing_nothing_is_asked(self) -> None:
        assert expect_paper(listing("m"), *asked("")) is None


def test_without_a_baseline_every_cell_is_missing() -> None:
    found = of_baseline(None, asked(), "m")
    assert isinstance(found, Judgement)
    assert found.verdict == "missing"
    assert "msbench baseline s" in found.reason
