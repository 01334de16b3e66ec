import statistics

import pytest
from report_runs import RULES, PlannedRun, run

from msbench.reporting.tables.cells import Cell, Column
from msbench.reporting.tables.measure import measure_results
from msbench.reporting.tables.selection import select_runs
from msbench.results.record import RunRecord, Status
from msbench.stats import spread

COLUMN = Column("listops", "Accuracy (%)")


def cell_of(records: list[RunRecord], n_planned: int = 3, column: Column = COLUMN) -> tuple[Cell, list[str]]:
    notes: list[str] = []
    return measure_results(column, select_runs(records, "data-1"), n_planned, notes), notes


def seeds(*values: float | None) -> list[RunRecord]:
    return [run(PlannedRun("listops", "mamba", seed), value) for seed, value in enumerate(values)]


def test_three_seeds_give_mean_and_sample_deviation_in_percent() -> None:
    cell, _ = cell_of(seeds(0.10, 0.12, 0.30))
    assert cell.measured == pytest.approx(100 * 0.52 / 3)
    assert cell.sd == pytest.approx(100 * statistics.stdev([0.10, 0.12, 0.30]))
    assert f"{cell.sd / 100:.3f}" == "0.110"  # type: ignore[operator]
    assert (cell.n, cell.n_planned, len(cell.run_ids)) == (3, 3, 3)


def test_one_seed_has_no_deviation() -> None:
    cell, _ = cell_of(seeds(0.8))
    assert (cell.measured, cell.sd, cell.n, cell.n_planned) == (80.0, None, 1, 3)
    assert spread([0.8]) is None


def test_what_is_not_as_published_about_the_data_is_told() -> None:
    told = ("test_batch has 10 images, the published file 10,000", "data_batch_1 is missing")
    _, notes = cell_of([run(PlannedRun("listops", "mamba"), 0.4, data_notes=told)])
    assert notes == [f"data of listops: {text}" for text in told]
    assert cell_of(seeds(0.4))[1] == []


@pytest.mark.parametrize("status", ["diverged", "out-of-memory", "interrupted", "failed"])
def test_a_failed_run_has_its_own_status_and_no_mean(status: Status) -> None:
    cell, _ = cell_of([run(PlannedRun("listops", "mamba"), None, status=status)])
    assert (cell.status, cell.measured, cell.sd, cell.n) == (status, None, None, 0)
    assert cell.run_ids


def test_failed_seeds_leave_the_mean_and_are_named() -> None:
    last = [run(PlannedRun("listops", "mamba", 2), None, status="diverged")]
    cell, _ = cell_of([*seeds(0.4, 0.6), *last])
    assert cell.measured == pytest.approx(50.0)
    assert cell.n == 2
    assert cell.notes == ("seeds without a result, not in the mean: 1 diverged",)


def test_divergence_is_told_before_other_failures() -> None:
    records = [
        run(PlannedRun("listops", "mamba", seed), None, status=status)
        for seed, status in enumerate(["interrupted", "out-of-memory", "diverged"])
    ]
    assert cell_of(records)[0].status == "diverged"


def test_no_runs_at_all_are_missing() -> None:
    cell, notes = cell_of([])
    assert (cell.status, cell.measured, notes) == ("missing", None, [])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_result_that_is_no_number_is_a_divergence(value: float) -> None:
    cell, notes = cell_of(seeds(value))
    assert (cell.status, cell.measured) == ("diverged", None)
    assert "shown as diverged" in notes[0]
    mean, _ = cell_of(seeds(0.5, value, 0.5))
    assert (mean.measured, mean.n) == (50.0, 2)


def test_a_record_without_the_metric_is_named_and_the_others_count() -> None:
    cell, notes = cell_of(seeds(None, 0.5))
    assert (cell.measured, cell.n) == (50.0, 1)
    assert "has no test_accuracy" in notes[0]


def test_a_mean_at_a_trivial_rule_is_marked() -> None:
    records = [run(PlannedRun("listops", "mamba"), 0.37, baselines=RULES)]
    cell, _ = cell_of(records)
    [mark] = cell.notes
    assert mark.startswith("learned no more than the trivial rule 'root operator only' (36.30%)")
    assert cell_of([run(PlannedRun("listops", "mamba"), 0.63, baselines=RULES)])[0].notes == ()


def test_an_old_record_without_n_test_is_shown_but_not_judged() -> None:
    cell, notes = cell_of([run(PlannedRun("listops", "mamba"), 0.37, baselines=RULES, n_test=None)])
    assert (cell.measured, cell.notes) == (37.0, ())
    assert "without n_test" in notes[0]


def test_the_unit_says_which_metric_and_how_it_is_scaled() -> None:
    record = run(PlannedRun("all", "mamba"), None, metrics={"test_macro_auroc": 0.939, "test_accuracy": 0.1})
    cell, _ = cell_of([record], column=Column("all", "All", "auroc"))
    assert cell.measured == 0.939


def test_what_a_verdict_is_made_from_stands_with_the_mean() -> None:
    here = {"environment": {"device": "cuda", "gpus": ["NVIDIA H100"]}, "baselines": RULES, "chance": 0.1}
    records = [run(PlannedRun("listops", "mamba", seed), 0.4 + seed / 10, **here) for seed in range(2)]
    failed = run(PlannedRun("listops", "mamba", 2), None, status="out-of-memory")
    evidence = cell_of([*records, failed])[0].evidence
    assert evidence is not None
    assert (evidence.values, evidence.seeds, evidence.n_planned) == ((0.4, 0.5), (0, 1), 3)
    assert (evidence.n_test, evidence.rules, evidence.chance) == (2000, RULES, 0.1)
    assert (evidence.data_digest, evidence.hardware) == ("data-1", "NVIDIA H100")
    assert evidence.unfinished == {"out-of-memory": 1}


def test_runs_on_several_kinds_of_hardware_have_none_in_common() -> None:
    places = [{"device": "cpu", "gpus": ["NVIDIA H100"]}, {"device": "cuda", "gpus": ["NVIDIA H100"]}]
    records = [
        run(PlannedRun("listops", "mamba", seed), 0.5, environment=each) for seed, each in enumerate(places)
    ]
    assert [record.hardware for record in records] == ["cpu", "NVIDIA H100"]
    evidence = cell_of(records)[0].evidence
    assert evidence is not None
    assert evidence.hardware == ""


def test_a_cell_without_a_result_still_says_what_became_of_its_seeds() -> None:
    evidence = cell_of([run(PlannedRun("listops", "mamba"), None, status="diverged")])[0].evidence
    assert evidence is not None
    assert (evidence.values, evidence.n_planned, evidence.unfinished) == ((), 3, {"diverged": 1})
