import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from report_runs import RULES, PlannedRun, run

from msbench.reporting.tables.cells import Cell, CellStatus, Column
from msbench.reporting.tables.measure import average_cells, measure_distances, measure_results
from msbench.reporting.tables.selection import select_runs
from msbench.results.mixing_documents import Distances, read_distances
from msbench.results.record import RunRecord, Status
from msbench.stats.summary import compute_sd

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
    assert compute_sd([0.8]) is None


def test_what_is_not_as_published_about_the_data_is_reported() -> None:
    notes_of_data = ("test_batch has 10 images, the published file 10,000", "data_batch_1 is missing")
    _, notes = cell_of([run(PlannedRun("listops", "mamba"), 0.4, data_notes=notes_of_data)])
    assert notes == [f"data of listops: {text}" for text in notes_of_data]
    _, remarks = cell_of([run(PlannedRun("listops", "mamba"), 0.4, data_remarks=("5 texts truncated",))])
    assert remarks == ["data of listops: 5 texts truncated"]
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


def test_divergence_is_reported_before_other_failures() -> None:
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


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (0.05, "'majority' (17.00%): below it"),
        (0.25, "'root operator only' (36.30%): below it"),
        (0.38, "'root operator only' (36.30%): within two standard errors of it"),
    ],
)
def test_a_mean_below_a_rule_is_marked_as_one_at_it(result: float, words: str) -> None:
    cell, _ = cell_of([run(PlannedRun("listops", "mamba"), result, baselines=RULES)])
    assert cell.notes == (f"learned no more than the trivial rule {words}",)


def test_an_auroc_at_or_below_chance_is_marked() -> None:
    column, here = Column("all", "All", "auroc"), {"metric": "macro-auroc", "chance": 0.5, "baselines": {}}
    for value, marked in ((0.4, True), (0.5, True), (0.9, False)):
        record = run(PlannedRun("all", "mamba"), None, metrics={"test_macro_auroc": value}, **here)
        assert bool(cell_of([record], column=column)[0].notes) is marked


def test_an_old_record_without_n_test_is_shown_but_not_judged() -> None:
    cell, notes = cell_of([run(PlannedRun("listops", "mamba"), 0.37, baselines=RULES, n_test=None)])
    assert (cell.measured, cell.notes) == (37.0, ())
    assert "without n_test" in notes[0]


def test_the_unit_says_which_metric_and_how_it_is_scaled() -> None:
    record = run(PlannedRun("all", "mamba"), None, metrics={"test_macro_auroc": 0.939, "test_accuracy": 0.1})
    cell, _ = cell_of([record], column=Column("all", "All", "auroc"))
    assert cell.measured == 0.939


@pytest.mark.parametrize(
    ("left_out", "notes"),
    [(0, ()), (40, ("over 31 of 71 classes: the others cannot be scored on the test split",))],
)
def test_classes_that_were_not_scored_are_a_note(left_out: int, notes: tuple[str, ...]) -> None:
    metrics = {"test_macro_auroc": 0.93, "classes_scored": 31, "classes_left_out": left_out}
    records = [run(PlannedRun("all", "mamba"), None, metric="macro-auroc", metrics=metrics)]
    assert cell_of(records, column=Column("all", "All", "auroc"))[0].notes == notes


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


def measured(value: float, sd: float | None = None, n: int = 1, planned: int = 1, run: str = "r") -> Cell:
    return Cell(measured=value, sd=sd, n=n, n_planned=planned, status="measured", run_ids=(run,))


def test_a_mean_over_tasks_with_the_runs_of_all() -> None:
    cell = average_cells("AVG.", [("Text", measured(80.0, run="a")), ("Image", measured(90.0, run="b"))])
    assert (cell.measured, cell.sd, cell.n, cell.status) == (85.0, None, 1, "measured")
    assert cell.run_ids == ("a", "b")


def test_the_spread_is_that_of_an_average_of_one_run_a_task() -> None:
    cell = average_cells("AVG.", [("Text", measured(80.0, 3.0, 3, 3)), ("Image", measured(90.0, 4.0, 3, 3))])
    assert cell.sd == pytest.approx(2.5)
    assert cell.sd == pytest.approx(math.sqrt((3.0**2 + 4.0**2) / 2**2))


def test_the_spread_agrees_with_averages_of_all_pairings_of_seeds() -> None:
    """Seeds of two tasks have no business with each other: over all pairings, the variances add up."""
    text, image = [80.0, 82.0, 87.0], [60.0, 66.0, 69.0]
    pairs = [(a + b) / 2 for a in text for b in image]
    parts = [("t", measured(80.0, statistics.pstdev(text))), ("i", measured(90.0, statistics.pstdev(image)))]
    assert average_cells("AVG.", parts).sd == pytest.approx(statistics.pstdev(pairs))


def test_one_task_without_a_spread_leaves_none() -> None:
    parts = [("Text", measured(80.0, 3.0, 3, 3)), ("Image", measured(90.0, None, 1, 3))]
    cell = average_cells("AVG.", parts)
    assert (cell.sd, cell.n, cell.n_planned) == (None, 1, 3)


@pytest.mark.parametrize("status", ["missing", "diverged", "out-of-memory"])
def test_a_task_that_lacks_leaves_a_hole_that_says_which(status: CellStatus) -> None:
    parts = [("Text", measured(80.0)), ("Path-X", Cell(n_planned=1, status=status))]
    cell = average_cells("AVG.", parts)
    assert (cell.measured, cell.status, cell.n, cell.run_ids) == (None, "missing", 0, ())
    assert cell.notes == (f"AVG. is not computed: Path-X {status}",)


def test_nothing_measured_needs_no_word() -> None:
    assert average_cells("AVG.", [("Text", Cell()), ("Image", Cell())]) == Cell()
    assert average_cells("AVG.", []) == Cell()


OPTIONS_CHANGED = {"default_options": False, "options_digest": "b"}


def written(run_folder: Path, name: str = "a", /, **changes: Any) -> Path:
    """A file of mixing distances as the measurement writes it."""
    values = {
        "schema_version": 1,
        "run_id": run_folder.name,
        "trained": True,
        "options": {"examples": 8},
        "options_digest": "a",
        "default_options": True,
        "mean": 40.0,
        "sd": 3.0,
        "layers": [{"layer": 0, "mean": 40.0, "sd": 3.0, "n": 64}],
        "examples": 8,
        "created": "2026-01-01T00:00:00+00:00",
        "something new": 1,
    }
    path = run_folder / "mixing" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**values, **changes}), encoding="utf-8")
    return path


def test_files_next_to_a_run_are_read_oldest_first(tmp_path: Path) -> None:
    folder = tmp_path / "0123456789ab"
    written(folder, "z", mean=1.0, created="2026-01-01T00:00:00+00:00")
    written(folder, "a", mean=2.0, created="2026-01-02T00:00:00+00:00")
    found, warnings = read_distances(folder)
    assert [each.mean for each in found] == [1.0, 2.0]
    assert warnings == []
    assert read_distances(tmp_path / "elsewhere") == ([], [])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mean": "far"}, "mean"),
        ({"mean": math.inf}, "mean"),
        ({"run_id": "other"}, "belongs to run other"),
        ({"schema_version": 2}, "schema_version"),
        ({"layers": [1]}, "layers.0"),
    ],
)
def test_a_file_that_cannot_be_meant_is_named(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = tmp_path / "0123456789ab"
    path = written(folder, "bad", **changes)
    written(folder, "good")
    found, [warning] = read_distances(folder)
    assert len(found) == 1
    assert warning.startswith(str(path))
    assert words in warning


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_a_file_that_is_no_measurement_is_named(content: str, tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(content)
    assert str(path) in read_distances(tmp_path)[1][0]


def of(identity: str, folder: Path, *changes: dict[str, Any]) -> list[Distances]:
    for number, each in enumerate(changes):
        written(folder / identity, str(number), **each)
    return read_distances(folder / identity)[0]


def test_the_newest_that_counts_fills_the_cell(tmp_path: Path) -> None:
    [record] = [run(PlannedRun("listops", "mamba"))]
    changes = (
        {"mean": 40.0, "sd": 3.0, "created": "2026-01-01"},
        {"mean": 41.0, "sd": 2.0, "created": "2026-01-02"},
        {"mean": 9.0, "trained": False, "created": "2026-01-03"},
        {"mean": 8.0, **OPTIONS_CHANGED, "created": "2026-01-04"},
    )
    notes: list[str] = []
    cell = measure_distances([record], 1, {record.run_id: of(record.run_id, tmp_path, *changes)}, notes)
    assert (cell.measured, cell.sd, cell.n, cell.status) == (41.0, 2.0, 1, "measured")
    assert cell.run_ids == (record.run_id,)
    assert notes == ["mixing distances with other options, or before training, are not shown: 2 measurements"]


def test_several_seeds_give_the_mean_of_means_and_the_root_mean_square_of_spreads(tmp_path: Path) -> None:
    runs = [run(PlannedRun("listops", "mamba", seed)) for seed in range(3)]
    values = [(40.0, 3.0), (44.0, 5.0)]
    measured = {
        record.run_id: of(record.run_id, tmp_path, {"mean": mean, "sd": sd})
        for record, (mean, sd) in zip(runs, values, strict=False)
    }
    cell = measure_distances(runs, 3, measured, [])
    assert cell.measured == 42.0
    assert cell.sd == pytest.approx(math.sqrt((9 + 25) / 2))
    assert (cell.n, cell.n_planned) == (2, 3)


def test_without_a_measurement_that_counts_the_cell_is_missing(tmp_path: Path) -> None:
    record = run(PlannedRun("listops", "mamba"))
    for changes in ({"trained": False}, OPTIONS_CHANGED):
        cell = measure_distances([record], 1, {record.run_id: of(record.run_id, tmp_path, changes)}, [])
        assert (cell.status, cell.measured, cell.n, cell.n_planned) == ("missing", None, 0, 1)


def test_a_measurement_without_any_number_is_read_and_has_no_part_in_the_mean(tmp_path: Path) -> None:
    runs = [run(PlannedRun("listops", "mamba", seed)) for seed in range(2)]
    none = {"mean": None, "sd": None, "layers": [{"layer": 1, "mean": None, "sd": None, "n": 0}]}
    folders = [tmp_path / record.run_id for record in runs]
    written(folders[0], "none", **none)
    written(folders[1], "one", mean=40.0, sd=None)
    read = [read_distances(folder) for folder in folders]
    assert [warnings for _, warnings in read] == [[], []]
    cell = measure_distances(
        runs, 2, {run.run_id: found for run, (found, _) in zip(runs, read, strict=True)}, []
    )
    assert (cell.measured, cell.sd, cell.n, cell.n_planned) == (40.0, None, 1, 2)
