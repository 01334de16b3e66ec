"""Accuracy by a property of the test examples: bins, means and intervals by hand, and every renderer."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from compared_runs import answered, kept, report_on, scored
from numpy.typing import NDArray
from report_runs import PlannedRun, build
from typer.testing import CliRunner

from msbench.cli import app
from msbench.errors import ConfigError, Undecided, UnknownName
from msbench.reporting.command import write_tables
from msbench.reporting.outcomes import FoundRun
from msbench.reporting.render.html.page import render_page
from msbench.reporting.render.html.runs import gather_runs
from msbench.reporting.render.terminal import render_table
from msbench.reporting.tables.breakdown import add_breakdowns, choose_bins, list_breakdowns
from msbench.reporting.tables.cells import Report, Table

pytestmark = pytest.mark.usefixtures("handmade_records")

SHORT = np.isin(np.arange(16), [0, 2, 4, 6, 8, 10, 1, 3])
"""Of 16 examples with labels 0 and 1 in turn: six short ones have label 0, and six long ones label 1."""
LENGTHS = np.where(SHORT, 3, 9)
SEEDS = {"mamba": [(4, 2), (5, 2), (3, 2)], "lstm": [(6, 0)]}
"""Of each seed of a model: the short and the long examples that it has right, of eight each."""
HALF = 100 * 4.302653 * 0.125 / 3**0.5
"""Student's t of two degrees of freedom, times the standard error of shares of 4, 5 and 3 in 8."""


def answer(short: int, long: int) -> NDArray[np.bool_]:
    right = np.zeros(16, bool)
    right[np.flatnonzero(SHORT)[:short]] = True
    right[np.flatnonzero(~SHORT)[:long]] = True
    return right


def make_report(
    results: Path, properties: Mapping[str, NDArray[np.int64]] | None = None, more: Sequence[FoundRun] = ()
) -> Report:
    properties = {"length": LENGTHS} if properties is None else properties
    runs = [
        kept(results, model, answered(answer(*counts)), seed, properties)
        for model, of_model in SEEDS.items()
        for seed, counts in enumerate(of_model)
    ]
    records = [run.record for run in (*runs, *more)]
    plan = [PlannedRun("listops", model, seed) for model in (*SEEDS, "s4") for seed in range(3)]
    return report_on(results, build(plan, records))


def break_down(results: Path) -> Table:
    return add_breakdowns(make_report(results), "length", pytest.fail).tables[-1]


def test_means_and_intervals_of_each_bin_are_those_by_hand(tmp_path: Path) -> None:
    table = break_down(tmp_path)
    assert (table.id, table.by) == ("small-by-length", "length")
    assert table.title == "Small ListOps: accuracy by length"
    assert "8 with length 3, 8 with length 9" in table.caption
    assert [column.label for column in table.columns] == ["3", "9", "last - first"]
    mamba, lstm, majority = table.rows
    assert [row.name for row in table.rows] == ["mamba", "lstm", "majority of the bin"]
    assert [cell.measured for cell in mamba.cells] == pytest.approx([50.0, 25.0, -25.0])
    assert mamba.cells[0].interval == pytest.approx((50 - HALF, 50 + HALF))
    assert mamba.cells[1].interval == pytest.approx((25, 25))
    # Paired within a seed: -2, -3 and -1 of 8.
    assert mamba.cells[2].interval == pytest.approx((-25 - HALF, -25 + HALF))
    assert [(cell.n, cell.n_planned) for cell in mamba.cells] == [(3, 3)] * 3
    evidence = mamba.cells[0].evidence
    assert evidence is not None
    assert (evidence.values, evidence.seeds, evidence.n_test) == ((0.5, 0.625, 0.375), (0, 1, 2), 8)
    assert (evidence.rules, evidence.chance) == ({}, None)
    # Wilson's interval of 6 in 8, with z = 1.96: 0.6689 ± 0.2596.
    assert lstm.cells[0].interval == pytest.approx((40.93, 92.85), abs=0.01)
    assert [cell.measured for cell in lstm.cells] == pytest.approx([75.0, 0.0, -75.0])
    assert lstm.cells[2].interval is None
    assert [cell.measured for cell in majority.cells] == [75.0, 75.0, None]
    assert [cell.best for cell in lstm.cells] == [True, False, False]
    assert [cell.best for cell in mamba.cells] == [False, True, False]


def test_an_interval_is_cut_at_what_is_possible(tmp_path: Path) -> None:
    counts = [(8, 0), (4, 0)]
    runs = [
        kept(tmp_path, "s4", answered(answer(*each)), seed, {"length": LENGTHS})
        for seed, each in enumerate(counts)
    ]
    report = make_report(tmp_path, more=runs)
    row = next(
        row for row in add_breakdowns(report, "length", pytest.fail).tables[-1].rows if row.model == "s4"
    )
    # Of 1 and 0.5 the half is 12.706 * 0.25.
    assert [cell.interval for cell in row.cells] == [(0.0, 100.0), (0.0, 0.0), (-100.0, 100.0)]
    assert (row.cells[0].n, row.cells[0].n_planned) == (2, 3)


def test_few_values_are_bins_and_many_are_in_quarters() -> None:
    assert [(each.low, each.high, each.n) for each in choose_bins(np.array([5, 2, 5, 9]))] == [
        (2, 2, 1),
        (5, 5, 2),
        (9, 9, 1),
    ]
    quarters = choose_bins(np.arange(1, 17) * 10)
    assert [each.label for each in quarters] == ["10-40", "50-80", "90-120", "130-160"]
    assert [(each.n, each.mean) for each in quarters] == [(4, 25.0), (4, 65.0), (4, 105.0), (4, 145.0)]
    assert len(choose_bins(np.arange(12))) == 12
    assert [each.label for each in choose_bins(np.arange(13))] == ["0-3", "4-6", "7-9", "10-12"]


def test_equal_values_stay_in_one_bin() -> None:
    most_at_the_end = np.array([*range(12), *[50] * 88])
    assert [(each.label, each.n) for each in choose_bins(most_at_the_end)] == [("0-11", 12), ("50", 88)]
    most_at_the_start = np.array([*[0] * 88, *range(1, 13)])
    assert [(each.label, each.n) for each in choose_bins(most_at_the_start)] == [("0", 88), ("1-12", 12)]


def test_runs_of_earlier_versions_are_left_out_with_what_to_do(tmp_path: Path) -> None:
    old = kept(tmp_path, "s4", answered(answer(1, 1)), 0)
    table = add_breakdowns(make_report(tmp_path, more=[old]), "length", pytest.fail).tables[-1]
    assert "s4" not in [row.model for row in table.rows]
    assert table.notes[0] == (
        "1 run of an earlier version, without length of the test examples, left out: train again with"
        " 'msbench run small --fresh'"
    )
    with pytest.raises(Undecided, match=r"4 runs of an earlier version.*msbench run small --fresh"):
        add_breakdowns(make_report(tmp_path / "old", {}), "length", pytest.fail)


def test_runs_on_other_examples_and_lost_files_are_left_out(tmp_path: Path) -> None:
    other = answered(answer(8, 8))
    other = replace(other, labels=1 - other.labels)
    runs = [kept(tmp_path, "s4", other, 0, {"length": LENGTHS}), kept(tmp_path, "s4", other, 1)]
    (runs[1].folder / "predictions.parquet").unlink()
    table = add_breakdowns(make_report(tmp_path, more=runs), "length", pytest.fail).tables[-1]
    assert [row.model for row in table.rows] == ["mamba", "lstm", ""]
    assert table.notes[0].startswith("2 runs left out; the first: ")


def test_examples_with_the_same_labels_and_another_property_are_others(tmp_path: Path) -> None:
    other = kept(tmp_path, "s4", answered(answer(8, 8)), 0, {"length": 2 * LENGTHS})
    table = add_breakdowns(make_report(tmp_path, more=[other]), "length", pytest.fail).tables[-1]
    assert [row.name for row in table.rows] == ["mamba", "lstm", "majority of the bin"]
    assert "another length" in table.notes[0]
    assert other.record.run_id in table.notes[0]


def test_notes_on_the_accuracy_are_notes_on_its_parts(tmp_path: Path) -> None:
    report = make_report(tmp_path)
    (whole,) = report.tables
    first, *rest = whole.rows
    cells = tuple(replace(cell, notes=("measured on other data",)) for cell in first.cells)
    noted = replace(report, tables=(replace(whole, rows=(replace(first, cells=cells), *rest)),))
    table = add_breakdowns(noted, "length", pytest.fail).tables[-1]
    assert table.notes[0] == f"{first.name}: measured on other data"


def test_an_unknown_property_names_the_known_ones(tmp_path: Path) -> None:
    report = make_report(tmp_path, {"length": LENGTHS, "reach": LENGTHS})
    with pytest.raises(
        UnknownName, match=r"--by: unknown property .*'lenght'.*'length'.*known: length, reach"
    ):
        add_breakdowns(report, "lenght", pytest.fail)


def test_a_property_with_one_value_divides_nothing(tmp_path: Path) -> None:
    report = make_report(tmp_path, {"length": np.full(16, 1024)})
    with pytest.raises(ConfigError, match="small: listops: all test examples have length 1024"):
        add_breakdowns(report, "length", pytest.fail)
    assert list(list_breakdowns(report, ["length"])) == []


def test_examples_with_several_labels_are_refused(tmp_path: Path) -> None:
    run = kept(tmp_path, "mamba", scored(60, 1.0, 0), 0, {"length": np.arange(60)})
    labelled = report_on(tmp_path, build([PlannedRun("listops", "mamba", 0)], [run.record]))
    with pytest.raises(Undecided, match="several labels is not right or wrong"):
        add_breakdowns(labelled, "length", pytest.fail)
    plain = make_report(tmp_path / "plain")
    both = Report((*labelled.tables, *plain.tables), plain.results, {**labelled.records, **plain.records})
    warnings: list[str] = []
    assert len(add_breakdowns(both, "length", warnings.append).tables) == 3
    assert len(warnings) == 1
    assert warnings[0].startswith("no table by length of small: listops: an example with several labels")


def test_of_the_properties_that_divide_the_examples_each_has_a_table(tmp_path: Path) -> None:
    report = make_report(tmp_path, {"length": np.full(16, 7), "reach": LENGTHS, "depth": LENGTHS})
    found = list(list_breakdowns(report, ("length", "reach", "distance")))
    assert [(whole.id, part.id) for whole, part in found] == [("small", "small-by-reach")]


def test_every_renderer_shows_the_intervals(tmp_path: Path) -> None:
    report = add_breakdowns(make_report(tmp_path), "length", pytest.fail)
    table = report.tables[-1]
    text = render_table(table, 80)
    assert "50 (19–81)" in " ".join(text.split())
    assert "-25 (-56 to +6)" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    write_tables([table], tmp_path / "out", csv=True, latex=True)
    with (tmp_path / "out" / "small-by-length.csv").open(newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    assert (first["source"], first["bin_low"], first["bin_high"], first["bin_examples"]) == (
        "bin",
        "3",
        "3",
        "8",
    )
    assert float(first["interval_low"]) == pytest.approx(50 - HALF)
    wide = (tmp_path / "out" / "small-by-length-wide.csv").read_text(encoding="utf-8").splitlines()[0]
    assert "3 measured" in wide
    assert "9 measured" in wide
    latex = (tmp_path / "out" / "small-by-length.tex").read_text(encoding="utf-8")
    assert r"50 &  & (19\textendash{}81)" in latex
    assert "$-$25 &  & ($-$56 to +6)" in latex
    page = render_page(report, gather_runs(report), made=datetime(2026, 1, 1, tzinfo=UTC)).decode()
    assert '<span class="sd"> (19–81)</span>' in page
    # Of a seed it has the share in the bin, not that of the whole split.
    cell = page.partition('id="table-small-by-length.cell-1-1"')[2].partition("</tr>")[0]
    assert all(f": {value}" in cell for value in ("50.00", "62.50", "37.50"))
    plain = table.as_dict()
    assert plain["by"] == "length"
    assert plain["columns"][0]["bin"] == {"low": 3, "high": 3, "mean": 3.0, "n": 8}
    assert plain["columns"][2]["bin"] is None


def test_it_is_a_result_and_not_for_validation_scores(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["report", "quick", "--by", "length", "--validation", "--results", str(tmp_path)]
    )
    assert done.exit_code == 2
    assert "--by: shows test results" in done.stderr
