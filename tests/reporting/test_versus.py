from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compared_runs import answered, kept, report_on, right
from report_runs import PlannedRun, SmallSuite, build, printed, run

from msbench.errors import UnknownName
from msbench.reporting.tables.cells import Table
from msbench.reporting.tables.versus import add_comparisons, compare_table, compare_tables, find_leaders

pytestmark = pytest.mark.usefixtures("handmade_records")

MODELS = {"mamba": [0.60, 0.61, 0.62], "msssm-s6": [0.70, 0.71, 0.69], "lstm": [0.50], "s4": [0.61, 0.60]}
N = 500


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Four models, one with a single seed, and a planned one without runs."""
    return made(tmp_path)


def made(results: Path, *reported: tuple[str, str]) -> Table:
    runs = [
        kept(results, model, answered(np.arange(N) < round(rate * N)), seed)
        for model, rates in MODELS.items()
        for seed, rate in enumerate(rates)
    ]
    plan = [PlannedRun("listops", model, seed) for model in (*MODELS, "griffin") for seed in range(3)]
    cells = [printed(row, "58.00", model=model) for row, model in reported]
    return build(plan, [run.record for run in runs], cells)


def test_every_measured_cell_is_compared_but_that_of_the_reference(table: Table, tmp_path: Path) -> None:
    found = compare_table(report_on(tmp_path), table, "mamba")
    assert [(table.rows[row].name, column) for row, column in found.comparisons] == [
        ("msssm-s6", 0),
        ("lstm", 0),
        ("s4", 0),
    ]
    assert {table.rows[row].name: each.over_seeds for (row, _), each in found.comparisons.items()} == {
        "msssm-s6": True,
        "lstm": False,
        "s4": True,
    }
    assert [each.reference for each in found.comparisons.values()] == ["mamba"] * 3


def test_p_values_are_adjusted_for_all_of_the_table(table: Table, tmp_path: Path) -> None:
    found = sorted(
        compare_table(report_on(tmp_path), table, "mamba").comparisons.values(), key=lambda each: each.test.p
    )
    assert found[0].p_holm == pytest.approx(3 * found[0].test.p)
    assert found[1].p_holm == pytest.approx(max(3 * found[0].test.p, 2 * found[1].test.p))


def test_rows_that_show_the_same_runs_count_once(tmp_path: Path) -> None:
    table = made(
        tmp_path,
        ("MS-SSM (S6)", "msssm-s6"),
        ("MS-SSM, again", "msssm-s6"),
        ("Mamba", "mamba"),
        ("Mamba, too", "mamba"),
    )
    found = compare_table(report_on(tmp_path), table, "Mamba")
    assert len(found.comparisons) == 4
    smallest = min(found.comparisons.values(), key=lambda each: each.test.p)
    assert smallest.p_holm == pytest.approx(3 * smallest.test.p)
    assert "Holm over 3 comparisons" in found.notes[0]


def test_cells_are_marked_and_earlier_marks_stay(tmp_path: Path) -> None:
    table = made(tmp_path, ("Mamba", "mamba"), ("Linear", ""))
    after = add_comparisons(table, compare_table(report_on(tmp_path), table, "mamba"))
    marked = {row.name: row.cells[0].notes for row in after.rows}
    assert {text for _, text in table.footnotes} < {text for _, text in after.footnotes}
    assert marked["Mamba"] == ()
    assert "griffin" not in marked  # without a run, and no row of the paper's table
    [mark] = marked["msssm-s6"]
    assert mark.startswith("better than mamba, p ")
    assert "Welch over seeds, n = 3 and 3" in mark
    assert any(text.startswith("worse than mamba") for text in marked["lstm"])
    assert any("another seed may reverse them" in note for note in after.notes)
    assert [row.cells[0].measured for row in after.rows] == [row.cells[0].measured for row in table.rows]


def test_what_cannot_be_compared_is_noted_and_the_rest_is(table: Table, tmp_path: Path) -> None:
    for file in tmp_path.glob("small/listops/lstm/*/predictions.parquet"):
        file.unlink()
    found = compare_table(report_on(tmp_path), table, "mamba")
    assert {table.rows[row].name for row, _ in found.comparisons} == {"msssm-s6", "s4"}
    assert any(note.startswith("lstm on listops is not compared with mamba: ") for note in found.notes)
    assert "Holm over 2 comparisons" in found.notes[0]


def test_results_elsewhere_are_not_taken_for_these(table: Table, tmp_path: Path) -> None:
    found = compare_table(report_on(tmp_path / "elsewhere"), table, "mamba")
    assert not found.comparisons
    (note,) = found.notes  # one reason for all three
    assert "are not compared with mamba: " in note
    assert "needs finished runs on both sides" in note


def test_a_table_without_the_reference_says_so(table: Table, tmp_path: Path) -> None:
    other = tmp_path / "other"
    alone = build([PlannedRun("listops", "lstm")], [kept(other, "lstm", answered(right(N, 0.5, 0))).record])
    both = compare_tables(report_on(tmp_path, table, alone), "mamba").tables
    assert "no measured mamba in this table" in both[1].notes[-1]
    assert any("better than mamba" in note for note in both[0].letters)


def test_a_model_that_no_table_has_results_of(table: Table, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"--versus: unknown model 'mambo'; did you mean 'mamba'\?"):
        compare_tables(report_on(tmp_path, table), "mambo")
    with pytest.raises(UnknownName, match="known: lstm, mamba, msssm-s6, s4"):
        compare_tables(report_on(tmp_path, table), "griffin")


def test_the_same_table_twice_is_the_same(table: Table, tmp_path: Path) -> None:
    assert compare_tables(report_on(tmp_path, table), "lstm") == compare_tables(
        report_on(tmp_path, table), "lstm"
    )


def test_distances_are_not_compared(tmp_path: Path) -> None:
    given = answered(np.ones(N, dtype=bool))
    metrics = {"test_accuracy": 1.0, "mean_mixing_distance": 3.0}
    runs = [kept(tmp_path, model, given, metrics=metrics).record for model in ("mamba", "s4")]
    plan = [PlannedRun("listops", model) for model in ("mamba", "s4")]
    table = build(plan, runs, [printed("Mamba", "3.5", model="mamba", unit="tokens")])
    assert table.columns[0].unit == "tokens"
    assert not compare_table(report_on(tmp_path), table, "mamba").comparisons


def leaders_of(*same: str, unlisted: str = "", **values: tuple[float, ...]) -> dict[str, bool]:
    """The leading group by name, of models with these results; those of `same` have two rows."""
    plan = [PlannedRun("listops", name, seed) for name, found in values.items() for seed in range(len(found))]
    listed = frozenset(("listops", name) for name in values if name != unlisted)
    suite = SmallSuite(cells=listed, models=tuple(values), tasks=("listops",))
    table = build(plan, [run(spec, values[spec.model_name][spec.seed]) for spec in plan], (), suite)
    table = replace(table, rows=(*table.rows, *(row for row in table.rows if row.name in same)))
    return {table.rows[row].name: alone for (row, _), alone in find_leaders(table).items()}


NEAR, FAR = (0.60, 0.61, 0.62), (0.30, 0.31, 0.32)


def test_the_best_is_alone_only_where_all_others_are_distinguishable() -> None:
    assert leaders_of(a=(0.9, 0.91, 0.92), b=NEAR, c=FAR) == {"a": True}
    assert leaders_of(a=(0.62, 0.63, 0.64), b=NEAR, c=FAR) == {"a": False, "b": False}
    assert leaders_of("a", a=(0.9, 0.91, 0.92), b=NEAR) == {"a": True}  # twice, and not compared with itself


def test_a_single_seed_leads_no_group_and_keeps_others_from_being_alone() -> None:
    assert leaders_of(a=(0.9,), b=NEAR, c=FAR) == {}
    assert leaders_of(a=(0.9, 0.91, 0.92), b=(0.2,), c=FAR) == {}
    assert leaders_of(a=NEAR) == {}


def test_a_model_that_the_suite_does_not_list_leads_nothing() -> None:
    assert leaders_of(a=(0.9, 0.91, 0.92), b=NEAR, c=FAR, unlisted="a") == {"b": True}
