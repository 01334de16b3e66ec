"""Verdicts of cells: their meaning for CI, the judged cells of a table, and their text."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from msbench.errors import ExitCode
from msbench.gate.expectations import FindExpectation
from msbench.gate.judge import count_crashes, judge
from msbench.reporting.tables.cells import (
    MODIFIED_GROUP,
    RESULTS,
    UNITS,
    Cell,
    Column,
    Judgement,
    Row,
    Table,
    Verdict,
)

Outcome = Literal["passed", "failure", "skipped", "error"]
"""JUnit's four outcomes."""


class VerdictMeaning(NamedTuple):
    """The outcome of a verdict in JUnit and annotations, and its exit code."""

    outcome: Outcome
    code: ExitCode


MEANINGS: dict[Verdict, VerdictMeaning] = {
    "other-data": VerdictMeaning("failure", ExitCode.DATA),
    "invalid": VerdictMeaning("failure", ExitCode.GATE_FAILED),
    "diverged": VerdictMeaning("failure", ExitCode.GATE_FAILED),
    "chance-level": VerdictMeaning("failure", ExitCode.GATE_FAILED),
    "trivial-rule": VerdictMeaning("failure", ExitCode.GATE_FAILED),
    "fail": VerdictMeaning("failure", ExitCode.GATE_FAILED),
    "missing": VerdictMeaning("skipped", ExitCode.UNDECIDED),
    "inconclusive": VerdictMeaning("skipped", ExitCode.UNDECIDED),
    "improved": VerdictMeaning("passed", ExitCode.OK),
    "xfail": VerdictMeaning("skipped", ExitCode.OK),
    "pass": VerdictMeaning("passed", ExitCode.OK),
}
"""The worst verdict first."""
WORST_FIRST = list(MEANINGS)
PRECEDENCE = (
    *(ExitCode.USAGE, ExitCode.DATA, ExitCode.RUN_FAILED, ExitCode.GATE_FAILED, ExitCode.UNDECIDED),
)
"""The most fundamental first: it must be fixed before the others mean anything."""
HEADER = ("suite", "task", "model", "verdict", "why")


@dataclass(frozen=True)
class JudgedCell:
    """One cell's verdict, with its suite, task and model.

    `crashed` counts the seeds whose run broke; `stale`: the results are of other source code than the present
    one; `seconds` is what its runs took to train and test.
    """

    suite: str
    task: str
    model: str
    judgement: Judgement
    crashed: int = 0
    stale: bool = False
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """Return the verdict without its evidence."""
        return self.judgement.verdict

    @property
    def row(self) -> tuple[str, ...]:
        """Return the row under `HEADER`, on one line: the reason may have several."""
        return (self.suite, self.task, self.model, self.verdict, " ".join(self.judgement.reason.split()))

    @property
    def retraining_hint(self) -> str:
        """Return a message on results of other source code, with the command that replaces them."""
        command = f"msbench run {self.suite} --model {self.model} --task {self.task}"
        return (
            f"{self.task} · {self.model}: its runs used other source code than the present one;"
            f" '{command}' trains it again"
        )

    def find_outcome(self, *, strict: bool = False) -> Outcome:
        """Return the outcome for CI: an error if one of the runs broke and nothing worse is known."""
        outcome = MEANINGS[self.verdict].outcome
        if outcome == "failure":
            return outcome
        if self.crashed:
            return "error"
        fails = find_exit_code([self.verdict], stale=self.stale, strict=strict) is ExitCode.GATE_FAILED
        return "failure" if fails else outcome


def judge_table(table: Table, find_expectation: FindExpectation) -> Table:
    """Fill `Cell.judgement` of `table` wherever a model of the suite has an expectation."""
    rows = tuple(
        replace(
            row,
            cells=tuple(
                _judge_cell(cell, column, row, find_expectation)
                for cell, column in zip(row.cells, table.columns, strict=True)
            ),
        )
        for row in table.rows
    )
    return replace(table, rows=rows)


def _judge_cell(cell: Cell, column: Column, row: Row, find_expectation: FindExpectation) -> Cell:
    # Rows of trivial rules, and of models that nobody ran or planned, have no evidence.
    if cell.evidence is None or not cell.evidence.n_planned:
        return cell
    if UNITS[column.unit].metric not in RESULTS or row.group == MODIFIED_GROUP:
        return cell
    answer = find_expectation(column, row.model, cell)
    if answer is None or isinstance(answer, Judgement):
        return replace(cell, judgement=answer)
    return replace(cell, judgement=judge(cell.evidence, answer))


def list_judged_cells(table: Table) -> Iterator[JudgedCell]:
    """Yield every verdict of a judged table, in the order of its tasks, each once."""
    cells = ((column, row, row.cells[at]) for at, column in enumerate(table.columns) for row in table.rows)
    found = (
        JudgedCell(
            column.suite,
            column.task,
            row.model,
            cell.judgement,
            count_crashes(cell.evidence) if cell.evidence else 0,
            cell.evidence is not None and cell.evidence.stale,
            cell.evidence.seconds if cell.evidence else 0.0,
        )
        for column, row, cell in cells
        if cell.judgement
    )
    yield from dict.fromkeys(found)


def sort_worst_first(cells: Sequence[JudgedCell]) -> list[JudgedCell]:
    """Sort the cells by severity of their verdict; equal ones keep their order."""
    return sorted(cells, key=lambda cell: WORST_FIRST.index(cell.verdict))


def count_verdicts(cells: Sequence[JudgedCell]) -> str:
    """Format counts as ``1 fail, 2 pass``, the worst first."""
    found = Counter(cell.verdict for cell in cells)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in WORST_FIRST if found[verdict]) or "no cell"


def find_exit_code(
    verdicts: Iterable[Verdict], *, crashed: bool = False, stale: bool = False, strict: bool = False
) -> ExitCode:
    """Return the most fundamental exit code of the cells; 5 (undecided) without any cell.

    `crashed`: a run broke; `stale`: results are of other source code than the present one. With `strict` the
    gate also fails for undecided, missing or stale results, and for those better than expected: expectations
    then stay as tight as the results.
    """
    found = list(verdicts)
    codes = {MEANINGS[verdict].code for verdict in found} or {ExitCode.UNDECIDED}
    if strict and (stale or "improved" in found or ExitCode.UNDECIDED in codes):
        codes = codes - {ExitCode.UNDECIDED} | {ExitCode.GATE_FAILED}
    if crashed:
        codes.add(ExitCode.RUN_FAILED)
    return choose_exit_code(codes)


def choose_exit_code(codes: Collection[ExitCode]) -> ExitCode:
    """Return the code that takes precedence."""
    return next((code for code in PRECEDENCE if code in codes), ExitCode.OK)
