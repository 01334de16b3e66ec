import json
import math
from pathlib import Path
from typing import Any

import pytest
from report_runs import PlannedRun, run

from msbench.reporting.tables.measure import measure_distances
from msbench.results.mixing_documents import Distances, read_distances

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


def test_files_beside_a_run_are_read_oldest_first(tmp_path: Path) -> None:
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
        ({"run_id": "other"}, "is of run other"),
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
