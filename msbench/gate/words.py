"""Verdicts as text: CI's outcome, a line of counts, a row of a table."""

from collections import Counter
from collections.abc import Sequence

from msbench.errors import ExitCode
from msbench.gate.judged import Judged
from msbench.gate.verdicts import OUTCOMES, WORST_FIRST, Outcome, exit_code

HEADER = ("suite", "task", "model", "verdict", "why")


def outcome(cell: Judged, *, strict: bool = False) -> Outcome:
    """Return the outcome of a cell for CI: an error if one of its runs broke and nothing worse is known."""
    found = OUTCOMES[cell.judgement.verdict]
    if found == "failure":
        return found
    if cell.crashed:
        return "error"
    fails = exit_code([cell.judgement.verdict], stale=cell.stale, strict=strict) is ExitCode.GATE_FAILED
    return "failure" if fails else found


def stale(cell: Judged) -> str:
    """Return a message for a cell whose results are of other source code than the present one."""
    command = f"msbench run {cell.suite} --model {cell.model} --task {cell.task}"
    return (
        f"{cell.task} · {cell.model}: its runs are of other source code than what is here; '{command}' trains"
        " it with this one"
    )


def worst_first(cells: Sequence[Judged]) -> list[Judged]:
    """Sort the cells by severity of their verdict; equal ones keep their order."""
    return sorted(cells, key=lambda cell: WORST_FIRST.index(cell.judgement.verdict))


def counts(cells: Sequence[Judged]) -> str:
    """Format counts as ``1 fail, 2 pass``, the worst first."""
    found = Counter(cell.judgement.verdict for cell in cells)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in WORST_FIRST if found[verdict]) or "no cell"


def row(cell: Judged) -> tuple[str, ...]:
    """Return the cell's row under `HEADER`, on one line: the reason may have several."""
    told = " ".join(cell.judgement.reason.split())
    return (cell.suite, cell.task, cell.model, cell.judgement.verdict, told)
