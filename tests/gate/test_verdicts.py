"""Verdicts: their exit codes, and how they come into the cells of a table."""

from dataclasses import replace
from functools import partial
from typing import get_args

import pytest
from gate_cases import listing
from report_runs import PlannedRun, build, printed, run

from msbench.errors import ExitCode
from msbench.gate.expectations import Answer, Expectation, expect_paper
from msbench.gate.verdicts import MEANINGS, PRECEDENCE, find_exit_code, judge_table, list_judged_cells
from msbench.reporting.tables.cells import (
    MODIFIED_GROUP,
    Cell,
    Column,
    Evidence,
    Judgement,
    Row,
    Table,
    Verdict,
)

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


def test_every_verdict_has_its_place_everywhere() -> None:
    assert set(MEANINGS) == set(VERDICTS)
    assert {code for _, code in MEANINGS.values() if code} <= set(PRECEDENCE)


def test_only_what_holds_or_is_excused_ends_in_0() -> None:
    assert {verdict for verdict in VERDICTS if not find_exit_code([verdict])} == {"pass", "improved", "xfail"}
    assert {verdict for verdict in VERDICTS if not find_exit_code([verdict], strict=True)} == {
        "pass",
        "xfail",
    }


@pytest.mark.parametrize(
    ("verdicts", "options", "code"),
    [
        (("pass", "improved", "xfail"), {}, ExitCode.OK),
        (("pass", "fail"), {}, ExitCode.GATE_FAILED),
        (("pass", "chance-level"), {}, ExitCode.GATE_FAILED),
        (("trivial-rule",), {}, ExitCode.GATE_FAILED),
        (("diverged",), {}, ExitCode.GATE_FAILED),
        (("invalid",), {}, ExitCode.GATE_FAILED),
        (("pass", "inconclusive"), {}, ExitCode.UNDECIDED),
        (("pass", "missing"), {}, ExitCode.UNDECIDED),
        ((), {}, ExitCode.UNDECIDED),
        (("missing",), {"crashed": True}, ExitCode.RUN_FAILED),
        (("other-data",), {}, ExitCode.DATA),
        (("fail", "inconclusive"), {}, ExitCode.GATE_FAILED),
        (("fail", "missing"), {"crashed": True}, ExitCode.RUN_FAILED),
        (("other-data", "fail", "missing"), {"crashed": True}, ExitCode.DATA),
        (("pass", "inconclusive"), {"strict": True}, ExitCode.GATE_FAILED),
        (("missing",), {"strict": True}, ExitCode.GATE_FAILED),
        (("pass", "improved"), {"strict": True}, ExitCode.GATE_FAILED),
        ((), {"strict": True}, ExitCode.GATE_FAILED),
        (("pass", "xfail"), {"strict": True}, ExitCode.OK),
        (("other-data",), {"strict": True}, ExitCode.DATA),
    ],
)
def test_the_most_fundamental_decides(
    verdicts: tuple[Verdict, ...], options: dict[str, bool], code: ExitCode
) -> None:
    assert find_exit_code(verdicts, **options) is code
    assert find_exit_code(reversed(verdicts), **options) is code


SPECS = [PlannedRun("listops", model, seed) for model in ("mamba", "hawk") for seed in (0, 1, 2)]
RUNS = [run(spec, 0.60 + 0.001 * spec.seed, chance=0.1) for spec in SPECS]
REPORTED = [printed("Mamba", "60.10", model="mamba"), printed("RWKV", "59.00")]
PAPER = partial(expect_paper, listing("mamba", "hawk"))


def by_row(table: Table) -> dict[str, Judgement | None]:
    return {row.name: row.cells[0].judgement for row in table.rows}


def test_only_measured_models_with_a_printed_number_are_judged() -> None:
    found = by_row(judge_table(build(SPECS, RUNS, REPORTED), PAPER))
    assert set(found) == {"Mamba", "RWKV", "hawk"}
    assert found["Mamba"] is not None
    assert found["Mamba"].verdict == "pass"
    assert found["RWKV"] is None
    assert found["hawk"] is None


def test_nothing_else_of_the_table_changes() -> None:
    table = build(SPECS, RUNS, REPORTED)
    after = judge_table(table, PAPER)
    rows = [
        replace(row, cells=tuple(replace(cell, judgement=None) for cell in row.cells)) for row in after.rows
    ]
    assert replace(after, rows=tuple(rows)) == table


class Expectations:
    """Expectations that remember the cells they were asked for."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, list[tuple[Column, str, Cell]]()

    def find(self, column: Column, model: str, cell: Cell) -> Answer:
        self.asked.append((column, model, cell))
        return self.answer


def one_cell(unit: str, **changes: object) -> Table:
    evidence = Evidence("test_accuracy", (0.6,), (0,), 1)
    cell = replace(Cell(reported="60.10", n_planned=1, evidence=evidence), **changes)  # type: ignore[arg-type]
    return Table("table", "S", "", (Column("t", "T", unit, "s"),), (Row("M", "", "m", (cell,)),))


@pytest.mark.parametrize(
    ("unit", "scale", "metric"),
    [
        ("percent", 100.0, "test_accuracy"),
        ("auroc", 1.0, "test_macro_auroc"),
        ("auroc-percent", 100.0, "test_macro_auroc"),
    ],
)
def test_a_printed_number_goes_with_its_unit(unit: str, scale: float, metric: str) -> None:
    asked = Expectations(None)
    judge_table(one_cell(unit), asked.find)
    ((column, model, cell),) = asked.asked
    assert (column.suite, column.task, model, cell.reported) == ("s", "t", "m", "60.10")
    expected = expect_paper(listing("m"), column, model, cell)
    assert isinstance(expected, Expectation)
    assert expected.mean == pytest.approx(60.10 / scale)
    assert expected.metric == metric


def test_distances_are_not_judged() -> None:
    asked = Expectations(Judgement("fail", "never asked for"))
    assert by_row(judge_table(one_cell("tokens"), asked.find)) == {"M": None}
    assert asked.asked == []


def test_cells_that_no_run_is_planned_for_are_not_judged() -> None:
    asked = Expectations(Judgement("fail", "never asked for"))
    assert by_row(judge_table(one_cell("percent", evidence=None), asked.find)) == {"M": None}
    unplanned = Evidence("test_accuracy", (), (), 0)
    assert by_row(judge_table(one_cell("percent", evidence=unplanned), asked.find)) == {"M": None}
    assert asked.asked == []


def test_runs_under_overrides_are_not_judged() -> None:
    asked = Expectations(Judgement("fail", "never asked for"))
    table = one_cell("percent")
    rows = tuple(replace(row, group=MODIFIED_GROUP) for row in table.rows)
    assert by_row(judge_table(replace(table, rows=rows), asked.find)) == {"M": None}


def test_verdicts_come_once_each_with_what_broke() -> None:
    missing = Judgement("missing", "no expectation")
    broken = Evidence("test_accuracy", (), (), 3, unfinished={"failed": 2, "interrupted": 1})
    table = judge_table(one_cell("percent", evidence=broken), Expectations(missing).find)
    doubled = replace(table, rows=table.rows * 2)
    (found,) = list_judged_cells(doubled)
    assert (found.suite, found.task, found.model, found.judgement) == ("s", "t", "m", missing)
    assert found.crashed == 2
