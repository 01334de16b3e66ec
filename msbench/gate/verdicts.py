"""Mapping of verdicts to exit codes, and to the outcomes of JUnit and annotations."""

from collections.abc import Collection, Iterable
from typing import Literal

from msbench.errors import ExitCode
from msbench.reporting.tables.cells import Verdict

Outcome = Literal["passed", "failure", "skipped", "error"]
"""JUnit's four outcomes."""

OUTCOMES: dict[Verdict, Outcome] = {
    "pass": "passed",
    "improved": "passed",
    "xfail": "skipped",
    "inconclusive": "skipped",
    "missing": "skipped",
    "fail": "failure",
    "chance-level": "failure",
    "trivial-rule": "failure",
    "diverged": "failure",
    "invalid": "failure",
    "other-data": "failure",
}
CODES: dict[Verdict, ExitCode] = {
    "pass": ExitCode.OK,
    "improved": ExitCode.OK,
    "xfail": ExitCode.OK,
    "inconclusive": ExitCode.UNDECIDED,
    "missing": ExitCode.UNDECIDED,
    "fail": ExitCode.GATE_FAILED,
    "chance-level": ExitCode.GATE_FAILED,
    "trivial-rule": ExitCode.GATE_FAILED,
    "diverged": ExitCode.GATE_FAILED,
    "invalid": ExitCode.GATE_FAILED,
    "other-data": ExitCode.DATA,
}
PRECEDENCE = (
    *(ExitCode.USAGE, ExitCode.DATA, ExitCode.RUN_FAILED, ExitCode.GATE_FAILED, ExitCode.UNDECIDED),
)
"""The most fundamental first: it must be fixed before the others mean anything."""
WORST_FIRST: tuple[Verdict, ...] = (
    "other-data",
    "invalid",
    "diverged",
    "chance-level",
    "trivial-rule",
    "fail",
    "missing",
    "inconclusive",
    "improved",
    "xfail",
    "pass",
)


def exit_code(
    verdicts: Iterable[Verdict], *, crashed: bool = False, stale: bool = False, strict: bool = False
) -> ExitCode:
    """Return the most fundamental exit code of the cells; 5 (undecided) without any cell.

    `crashed`: a run broke; `stale`: results are of other source code than the present one. With `strict` the
    gate also fails for undecided, missing or stale results, and for those better than expected: expectations
    then stay as tight as the results.
    """
    found = list(verdicts)
    codes = {_code(verdict, strict) for verdict in found}
    if strict and stale:
        codes.add(ExitCode.GATE_FAILED)
    if not found:
        codes.add(ExitCode.GATE_FAILED if strict else ExitCode.UNDECIDED)
    if crashed:
        codes.add(ExitCode.RUN_FAILED)
    return most_fundamental(codes)


def most_fundamental(codes: Collection[ExitCode]) -> ExitCode:
    """Return the code that takes precedence."""
    return next((code for code in PRECEDENCE if code in codes), ExitCode.OK)


def _code(verdict: Verdict, strict: bool) -> ExitCode:
    code = CODES[verdict]
    tightened = code is ExitCode.UNDECIDED or verdict == "improved"
    return ExitCode.GATE_FAILED if strict and tightened else code
