"""A verdict in the words of whoever reads it: CI's outcome, a line of counts, a row of a table."""

from collections import Counter
from collections.abc import Sequence

from msbench.errors import ExitCode
from msbench.gate.judged import Judged
from msbench.gate.verdicts import OUTCOMES, WORST_FIRST, Outcome, exit_code

HEADER = ("suite", "task", "model", "verdict", "why")


def outcome(cell: Judged, *, strict: bool = False) -> Outcome:
    """What CI is told of a cell: an error where a run of it broke and nothing worse is known."""
    found = OUTCOMES[cell.judgement.verdict]
    if found == "failure":
        return found
    if cell.crashed:
        return "error"
    fails = exit_code([cell.judgement.verdict], stale=cell.stale, strict=strict) is ExitCode.GATE_FAILED
    return "failure" if fails else found


def stale(cell: Judged) -> str:
    """What to do about a cell whose results are of other source code than what is here."""
    command = f"msbench run {cell.suite} --model {cell.model} --task {cell.task}"
    return (
        f"{cell.task} · {cell.model}: its runs are of other source code than what is here; '{command}' trains"
        " it with this one"
    )


def worst_first(cells: Sequence[Judged]) -> list[Judged]:
    """The cells by how much their verdict matters; equals keep their order."""
    return sorted(cells, key=lambda cell: WORST_FIRST.index(cell.judgement.verdict))


def counts(cells: Sequence[Judged]) -> str:
    """``1 fail, 2 pass``, the worst first."""
    found = Counter(cell.judgement.verdict for cell in cells)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in WORST_FIRST if found[verdict]) or "no cell"


def row(cell: Judged) -> tuple[str, ...]:
    """The cell under `HEADER`, on one line: a reason in a suite may have several."""
    told = " ".join(cell.judgement.reason.split())
    return (cell.suite, cell.task, cell.model, cell.judgement.verdict, told)
