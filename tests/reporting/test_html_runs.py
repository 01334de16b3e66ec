import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from html_pages import file, listops, report
from report_runs import PlannedRun, build, run

from msbench.reporting.render.html.runs import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    draw_chart,
    gather_runs,
    get_run_key,
)
from msbench.reporting.tables.cells import Report
from msbench.runs.suite import load_suite, resolve_specs


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_runs_behind_cells_have_a_section_and_the_others_are_counted(results: Path) -> None:
    table, records = listops()
    aside = [run(PlannedRun("listops", "mamba"), 0.1, data_digest="data-0", ended="2025-01-01")]
    file(results, [*records, *aside])
    found = gather_runs(report([table], results, [*records, *aside]))
    behind = [identity for row in table.rows for identity in row.run_ids]
    assert [identity for *_, identity in found.runs] == behind
    assert found.others == len(records) + 1 - len(behind) == 2
    assert found.beyond == 0
    first = found.runs[get_run_key(records[0])]
    assert first.anchor == f"run-{behind[0]}"
    assert first.log[0]["validation_loss"] == "1.9"


def test_no_more_runs_than_asked_for_have_one(results: Path) -> None:
    table, records = listops()
    file(results, records)
    found = gather_runs(report([table], results, records), most=3)
    assert (len(found.runs), found.beyond) == (3, 5)


def test_an_id_that_is_none_has_no_section(results: Path) -> None:
    spec = PlannedRun("listops", "mamba")
    record = run(spec, run_id='"><b>')
    assert not gather_runs(report([build([spec], [record])], results, [record])).runs


def test_two_suites_with_one_run_id_have_a_section_each(results: Path) -> None:
    spec = PlannedRun("listops", "mamba")
    here = run(spec, 0.5)
    there = here.model_copy(update={"suite": "other", "metrics": {"test_accuracy": 0.7}})
    table = build([spec], [here])
    (column,) = table.columns
    twin = replace(table, columns=(replace(column, suite="other"),))
    found = gather_runs(report([table, twin], results, [here, there]))
    assert [each.anchor for each in found.runs.values()] == [f"run-{here.run_id}", f"run-{here.run_id}.2"]
    assert [each.record.suite for each in found.runs.values()] == ["small", "other"]


def test_curves_are_over_steps_within_epochs_where_they_are_logged(results: Path) -> None:
    spec = PlannedRun("listops", "mamba")
    head, record = "epoch,step,train_loss,validation_loss\n", run(spec, 0.5)
    logs = {
        "0,4,2,1.9\n1,8,1,0.9\n": "step 4 to 8: train from 2 to 1; validation from 1.9 to 0.9",
        "0,2,3,\n0,4,2,1.9\n1,8,0.5,\n": "step 2 to 8: train from 3 to 0.5; validation from 1.9 to 1.9",
    }
    for log, expected in logs.items():
        file(results, [record], head + log)
        [section] = gather_runs(report([build([spec], [record])], results, [record])).runs.values()
        assert section.charts[0].description == f"Loss, {expected}"


def test_epochs_are_numbered_from_1(results: Path) -> None:
    spec = PlannedRun("listops", "mamba")
    record = run(spec, None, metrics={"test_accuracy": 0.5, "best_epoch": 2})
    file(results, [record])
    [section] = gather_runs(report([build([spec], [record])], results, [record])).runs.values()
    assert dict(section.sections[0][1])["best_epoch"] == "2"


@pytest.mark.parametrize("log", ["", "epoch\n", "epoch,loss\n1\n", "\x00\xff", 'a,b\n"x'])
def test_a_log_that_is_none_costs_the_chart_alone(results: Path, log: str) -> None:
    table, records = listops()
    file(results, records, log)
    assert len(gather_runs(report([table], results, records)).runs) == 8


def behind_a_cell(
    results: Path, planned: PlannedRun, suite: str, spec: dict[str, Any], digest: str
) -> Report:
    """The report of one cell, behind which is a run of this suite with these settings."""
    record = run(planned)
    table = build([planned], [record])
    (column,) = table.columns
    table = replace(table, columns=(replace(column, suite=suite),))
    changes = {"suite": suite, "spec": spec, "spec_digest": digest}
    return report([table], results, [record.model_copy(update=changes)])


def test_commands_name_the_suite_as_it_was_typed_and_say_what_was_overridden(
    results: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    text = Path(load_suite("quick").source.name).read_text(encoding="utf-8")
    path.write_text(text.replace("name: quick", "name: mine"), encoding="utf-8")
    spec = resolve_specs(load_suite(path), ["mamba"], overrides=["train.max_steps=7"])[0]
    planned = PlannedRun(spec.task, "mamba")
    found = behind_a_cell(results, planned, "mine", spec.model_dump(mode="json"), spec.digest)
    (shown,) = gather_runs(found, [str(path), "table-2"]).runs.values()
    start = f"--model mamba --task {spec.task} --seed 0"
    assert shown.again.line == f"msbench run {path} {start} --set train.max_steps=7"
    (without,) = gather_runs(found).runs.values()
    assert without.again.line == ""
    assert "unknown suite 'mine'" in without.again.reason


def test_a_run_that_no_command_makes_now_has_none(results: Path) -> None:
    spec = resolve_specs(load_suite("quick"), ["mamba"])[0]
    planned = PlannedRun(spec.task, "mamba")
    older = spec.model_dump(mode="json")
    del older["train"]["clip"]
    found = behind_a_cell(results, planned, "quick", older, "of an older version")
    (shown,) = gather_runs(found).runs.values()
    assert shown.again.line == ""
    assert "train.clip absent → null" in shown.again.reason


def points(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def test_a_line_spans_the_box_from_low_to_high() -> None:
    drawn = draw_chart("Loss", {"train": [(1, 2.0), (2, 1.5), (3, 1.0)]})
    assert drawn is not None
    ((name, path),) = drawn.lines
    assert name == "train"
    middle = ((LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2)
    assert points(path) == [(LEFT, TOP), middle, (WIDTH - RIGHT, HEIGHT - BOTTOM)]
    assert [text for _, text in drawn.x_ticks] == ["1", "3"]
    assert drawn.y_ticks == ((HEIGHT - BOTTOM, "1"), (TOP, "2"))
    assert drawn.description == "Loss, step 1 to 3: train from 2 to 1"


def test_two_lines_share_their_axes() -> None:
    lines = {"train": [(0, 0.0), (9, 10.0)], "validation": [(0, 5.0)]}
    drawn = draw_chart("Accuracy", lines)
    assert drawn is not None
    assert points(drawn.lines[1][1]) == [(LEFT, (TOP + HEIGHT - BOTTOM) / 2)]
    assert drawn.dots[1][1:] == (LEFT, (TOP + HEIGHT - BOTTOM) / 2)


@pytest.mark.parametrize("value", [0.0, -2.0, 1e-30, 1e30])
def test_one_epoch_is_a_dot_within_the_box(value: float) -> None:
    drawn = draw_chart("Loss", {"train": [(0, value)]})
    assert drawn is not None
    ((_, x, y),) = drawn.dots
    assert LEFT < x < WIDTH - RIGHT
    assert TOP < y < HEIGHT - BOTTOM
    assert len(drawn.x_ticks) == 1


def test_what_is_not_finite_is_no_point() -> None:
    drawn = draw_chart("Loss", {"train": [(0, math.nan), (1, 3.0), (2, math.inf), (math.nan, 1.0)]})
    assert drawn is not None
    assert len(points(drawn.lines[0][1])) == 1
    assert draw_chart("Loss", {"train": [(0, math.nan)]}) is None
    assert draw_chart("Loss", {}) is None


def test_long_logs_are_thinned_and_keep_both_ends() -> None:
    drawn = draw_chart("Loss", {"train": [(epoch, 1 / (epoch + 1)) for epoch in range(10_001)]})
    assert drawn is not None
    path = points(drawn.lines[0][1])
    assert len(path) <= MOST_POINTS + 1
    assert path[0] == (LEFT, TOP)
    assert path[-1] == (WIDTH - RIGHT, HEIGHT - BOTTOM)
