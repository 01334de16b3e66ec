import re
from dataclasses import replace

import pytest
from report_runs import RULES, PlannedRun, SmallSuite, SuiteReported, as_spec, build, printed, run, suite_runs

from msbench.errors import UnknownName
from msbench.reporting.tables.build import build_table, mark_best
from msbench.reporting.tables.cells import (
    MEASURED_GROUP,
    MODIFIED_GROUP,
    RULES_GROUP,
    Cell,
    Column,
    Row,
    Table,
    count_in_letters,
)
from msbench.reporting.tables.definitions import define_suite_table

MAMBA = [PlannedRun("listops", "mamba", seed) for seed in range(3)]
OURS = [PlannedRun("listops", "msssm-s6", seed) for seed in range(3)]
PAPER = [
    printed("S4", "59.60", model="s4"),
    printed("Mamba", "38.02", model="mamba", note="not its own run"),
    printed("Mamba 2x Param", "49.63"),
    printed("MS-SSM (S6)", "63.04", group="Convolutions + SSMs", model="msssm-s6"),
]


def row(table: Table, name: str) -> Row:
    return next(row for row in table.rows if row.name == name)


def texts(table: Table) -> list[str]:
    return list(table.notes)


def test_rows_are_the_papers_then_the_suites_own_then_the_rules() -> None:
    specs = [*MAMBA, PlannedRun("listops", "lstm")]
    records = [run(spec, 0.5, baselines=RULES) for spec in specs]
    table = build(specs, records, PAPER)
    assert [(row.group, row.name, row.model) for row in table.rows] == [
        ("SSMs", "S4", "s4"),
        ("SSMs", "Mamba", "mamba"),
        ("SSMs", "Mamba 2x Param", ""),
        ("Convolutions + SSMs", "MS-SSM (S6)", "msssm-s6"),
        (MEASURED_GROUP, "lstm", "lstm"),
        (RULES_GROUP, "majority", ""),
        (RULES_GROUP, "root operator only", ""),
    ]


def test_a_row_shows_reported_next_to_measured() -> None:
    table = build(MAMBA, [run(spec, 0.38) for spec in MAMBA], PAPER)
    cell = row(table, "Mamba").cells[0]
    assert (cell.reported, cell.sd, cell.n) == ("38.02", 0.0, 3)
    assert cell.measured == pytest.approx(38.0)
    only = row(table, "S4").cells[0]
    assert (only.reported, only.measured, only.status) == ("59.60", None, "missing")
    assert row(table, "S4").provenance == "gu2023mamba; baselines: somewhere"


def test_the_note_of_a_reported_value_is_a_footnote() -> None:
    table = build(MAMBA, [run(MAMBA[0])], PAPER)
    assert row(table, "Mamba").cells[0].reported_notes == ("reported: not its own run",)
    assert table.footnotes[0] == ("a", "reported: not its own run")


def test_a_row_that_stands_for_a_model_twice_shows_its_measurement_twice() -> None:
    cells = [
        printed("1 MS-SSM (S6)", "63.04", model="msssm-s6"),
        printed("5 (a, b)", "63.04", model="msssm-s6"),
    ]
    table = build(OURS, [run(spec, 0.6) for spec in OURS], cells)
    assert [row.cells[0].measured for row in table.rows] == [pytest.approx(60.0)] * 2


def test_runs_under_overrides_are_counted_and_shown_only_on_request() -> None:
    changed = OURS[0].model_dump(mode="json")
    changed["train"]["max_steps"] = 20
    odd = run(OURS[0], 0.9, spec=changed, spec_digest="another")
    records = [*(run(spec, 0.6) for spec in OURS), odd]
    table = build(OURS, records, PAPER)
    assert row(table, "MS-SSM (S6)").cells[0].measured == pytest.approx(60.0)
    assert any("1 run of suite small with another spec" in text for text in texts(table))
    assert any("'msbench report small --modified'" in text for text in texts(table))
    shown = build(OURS, records, PAPER, modified=True)
    last = shown.rows[-1]
    assert (last.group, last.name) == (MODIFIED_GROUP, "msssm-s6 † modified: train.max_steps 20")
    assert (last.cells[0].measured, last.cells[0].best) == (90.0, False)
    assert not any("another spec" in text for text in texts(shown))


def test_a_modified_run_on_other_data_says_so() -> None:
    odd = run(OURS[0], 0.9, spec_digest="another", data_digest="data-2")
    table = build(OURS, [run(OURS[0], 0.6), odd], modified=True)
    assert table.rows[-1].cells[0].notes == ("measured on other data than the planned runs",)


def test_a_seed_beyond_the_plan_counts_and_is_reported() -> None:
    nine, modified = PlannedRun("listops", "mamba", 9), run(OURS[0], 0.9, spec_digest="another")
    runs = suite_runs([MAMBA[0], OURS[0]], [run(MAMBA[0], 0.6), run(nine, 0.9), run(OURS[0], 0.5), modified])
    table = build_table(
        define_suite_table(runs.suite),
        [replace(runs, more_seeds={("listops", "mamba", nine.digest): as_spec(nine)})],
        [],
        modified=True,
    )
    cell = row(table, "mamba").cells[0]
    assert (cell.measured, cell.n, cell.n_planned) == (75.0, 2, 2)
    assert (row(table, "msssm-s6").cells[0].n, table.rows[-1].group) == (1, MODIFIED_GROUP)
    assert "seeds beyond the plan count too; in all: mamba 2 (listops)" in texts(table)
    assert "measured is one seed, or the mean ± sample standard deviation of those noted" in table.caption


def test_seeds_beyond_the_plan_are_reported_by_task_where_tasks_differ() -> None:
    specs, more = [PlannedRun("a", "mamba"), PlannedRun("b", "mamba")], PlannedRun("b", "mamba", 4)
    runs = suite_runs(specs, [run(each, 0.5) for each in (*specs, more)])
    table = build_table(
        define_suite_table(runs.suite),
        [replace(runs, more_seeds={(more.task, more.model_name, more.digest): as_spec(more)})],
        [],
    )
    assert "seeds beyond the plan count too; in all: mamba 2 (b)" in texts(table)


def test_data_of_another_digest_never_shares_a_column() -> None:
    """The newest data counts for the whole column, also for a model that was not run on it."""
    old = [run(spec, 0.4, ended="2026-01-01T00:00:00+00:00") for spec in MAMBA]
    new = [run(spec, 0.6, ended="2026-01-02T00:00:00+00:00", data_digest="data-2") for spec in OURS]
    table = build([*MAMBA, *OURS], [*old, *new])
    cell = row(table, "mamba").cells[0]
    assert (cell.measured, cell.status) == (None, "missing")
    assert "3 runs on other data or from other source code left out" in cell.notes[0]
    assert row(table, "msssm-s6").cells[0].measured == pytest.approx(60.0)


def test_models_that_the_suite_gives_other_data_keep_it_with_a_note() -> None:
    other = PlannedRun("listops", "msssm-s6", data={"dataset": "listops", "train": 5})
    table = build([MAMBA[0], other], [run(MAMBA[0], 0.4), run(other, 0.6, data_digest="data-2")])
    assert [row.cells[0].measured for row in table.rows] == [40.0, 60.0]
    assert any("not all models have the same data" in text for text in texts(table))


def test_the_best_measured_is_marked_with_all_that_print_the_same() -> None:
    specs = [PlannedRun("listops", name) for name in ("mamba", "s4", "s5", "lstm")]
    values = {"mamba": 0.60001, "s4": 0.60004, "s5": 0.5, "lstm": float("nan")}
    table = build(specs, [run(spec, values[spec.model_name], baselines={"top": 0.99}) for spec in specs])
    assert [row.name for row in table.rows if row.cells[0].best] == ["mamba", "s4"]


def test_reported_values_are_never_best() -> None:
    table = build(MAMBA, [run(MAMBA[0], 0.1)], PAPER)
    assert [row.name for row in table.rows if row.cells[0].best] == ["Mamba"]


def test_no_measurement_has_no_best() -> None:
    table = build(MAMBA, [run(MAMBA[0], None, status="failed")], PAPER)
    assert not any(cell.best for row in table.rows for cell in row.cells)
    assert table.measured == 0


def test_nothing_run_leaves_the_reported_rows_alone() -> None:
    elsewhere = run(MAMBA[0], suite="another")
    for records in ([], [elsewhere]):
        table = build(MAMBA, records, PAPER)
        assert table.measured == 0
        assert [row.cells[0].status for row in table.rows] == ["missing"] * 4


def test_an_unknown_table_or_column_is_named() -> None:
    records = [run(MAMBA[0])]
    with pytest.raises(UnknownName, match="reported table 'listop'; did you mean 'listops'"):
        build(MAMBA, records, PAPER, SmallSuite(reported=SuiteReported("listop", {})))
    suite = SmallSuite(reported=SuiteReported("listops", {"listops": "Accuracy"}))
    with pytest.raises(UnknownName, match=re.escape("did you mean 'Accuracy (%)'")):
        build(MAMBA, records, PAPER, suite)


def test_columns_of_the_paper_that_are_no_task_are_named() -> None:
    table = build(MAMBA, [run(MAMBA[0])], [*PAPER, printed("S4", "1.00", column="AVG.")])
    assert [column.label for column in table.columns] == ["Accuracy (%)"]
    assert "columns of the paper's table that are no task of this suite: AVG." in texts(table)


def test_rows_without_a_value_in_the_columns_shown_are_left_out() -> None:
    table = build(MAMBA, [run(MAMBA[0])], [*PAPER, printed("CKConv", "")])
    assert "CKConv" not in [row.name for row in table.rows]


def test_several_tasks_have_a_column_each_in_the_units_of_the_paper() -> None:
    specs = [PlannedRun(task, "mamba") for task in ("listops", "ptbxl")]
    cells = [
        printed("Mamba", "38.02", model="mamba", column="ListOps"),
        printed("Mamba", "0.915", model="mamba", column="PTB-XL", unit="auroc"),
    ]
    suite = SmallSuite(reported=SuiteReported("listops", {"listops": "ListOps", "ptbxl": "PTB-XL"}))
    records = [run(specs[0], 0.38), run(specs[1], None, metrics={"test_macro_auroc": 0.92})]
    table = build(specs, records, cells, suite)
    assert [(column.label, column.unit) for column in table.columns] == [
        ("ListOps", "percent"),
        ("PTB-XL", "auroc"),
    ]
    assert [cell.measured for cell in table.rows[0].cells] == [38.0, 0.92]


def test_a_column_that_the_paper_lacks_is_in_percent_of_the_metric_of_its_task() -> None:
    specs = [PlannedRun(task, "mamba") for task in ("listops", "rhythm")]
    ranked = {"metrics": {"test_macro_auroc": 0.92, "test_accuracy": 0.99}, "metric": "macro-auroc"}
    table = build(specs, [run(specs[0], 0.38), run(specs[1], None, **ranked)])
    assert [column.unit for column in table.columns] == ["percent", "auroc-percent"]
    assert [cell.measured for cell in table.rows[0].cells] == [38.0, 92.0]
    assert "Unit: accuracy in percent, macro AUROC in percent; measured" in table.caption


def test_rule_rows_have_values_only_where_their_task_has_them() -> None:
    specs = [PlannedRun(task, "mamba") for task in ("listops", "text")]
    table = build(specs, [run(specs[0], 0.6, baselines=RULES), run(specs[1], 0.6)])
    rule = row(table, "majority")
    assert [(cell.measured, cell.status) for cell in rule.cells] == [
        (17.0, "trivial-rule"),
        (None, "missing"),
    ]


def test_the_caption_says_protocol_seeds_and_sizes() -> None:
    table = build(MAMBA, [run(MAMBA[0])], PAPER)
    assert table.caption.startswith("Accuracy on the test split. Protocol: scaled down from the paper's")
    assert "over 3 seeds, fewer where (k/3)" in table.caption
    assert "Test examples: listops 2000." in table.caption
    own = build(MAMBA[:1], [run(MAMBA[0])], suite=SmallSuite(protocol="own"))
    assert "Protocol: its own, not the paper's. Unit" in own.caption
    one = build(MAMBA[:1], [run(MAMBA[0])], suite=SmallSuite(protocol="paper"))
    assert "Protocol: paper. " in one.caption
    assert "measured is one seed" in one.caption


def test_every_row_has_a_cell_for_every_column() -> None:
    """Empty group names and tables of one task must not lose a row or shift a cell."""
    cells = [cell.model_copy(update={"group": ""}) for cell in PAPER]
    table = build([*MAMBA, *OURS], [run(MAMBA[0], 0.4, baselines=RULES)], cells, modified=True)
    assert {len(row.cells) for row in table.rows} == {1}
    assert len(table.rows) == 4 + len(RULES)


def test_ten_thousand_runs_are_each_in_a_mean() -> None:
    specs = [
        PlannedRun(f"task-{t}", f"model-{m}", seed)
        for t in range(10)
        for m in range(20)
        for seed in range(50)
    ]
    table = build(specs, [run(spec, 0.5, baselines=RULES) for spec in specs])
    assert sum(cell.n for row in table.rows for cell in row.cells) == len(specs) == 10_000


def test_marks_go_on_after_z() -> None:
    assert [count_in_letters(number) for number in (1, 26, 27, 28, 53)] == ["a", "z", "aa", "ab", "ba"]


@pytest.mark.parametrize(
    ("other", "marked"), [(93.0, True), (92.6, True), (92.4, False)], ids=["equal", "rounds to it", "below"]
)
def test_a_wide_spread_of_the_best_decides_what_prints_the_same(other: float, marked: bool) -> None:
    """93.4 ± 11 prints as 93, and so does 92.60 to as many decimals."""
    cells = [Cell(measured=93.4, sd=11.0, n=2), Cell(measured=other, sd=0.1, n=2)]
    rows = mark_best([Row(str(at), "", "m", (cell,)) for at, cell in enumerate(cells)], [Column("t", "T")])
    assert [row.cells[0].best for row in rows] == [True, marked]
