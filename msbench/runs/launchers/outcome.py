"""Outcome of the runs of one command."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msbench.errors import ExitCode
from msbench.results.record import RunRecord

NO_WAIT = "MSBENCH_NO_WAIT"
"""Variable that is set if a process must not wait for runs that others train: its parent retries later."""
BUSY = 75
"""Its exit code then; sysexits' EX_TEMPFAIL, which no user's command ends with."""


@dataclass
class RunOutcome:
    """The records and errors of a command's runs."""

    records: list[RunRecord] = field(default_factory=list)
    data_errors: list[str] = field(default_factory=list)
    damaged: int = 0
    code: int = ExitCode.OK
    """Exit code of failures that no record shows."""

    @property
    def exit_code(self) -> int:
        """Exit code of the most fundamental failure."""
        if self.code:
            return self.code
        if self.data_errors:
            return ExitCode.DATA
        if self.damaged or any(not record.finished for record in self.records):
            return ExitCode.RUN_FAILED
        return ExitCode.OK


def summary(records: Sequence[RunRecord]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return header and rows of the requested runs: status, result and run id."""
    header = ("task", "model", "seed", "status", "metric", "test", "run")
    rows = [
        (
            record.task,
            record.model,
            str(record.seed),
            record.status if record.failure is None else f"{record.status}: {record.failure.message}",
            record.metric,
            "--" if record.result is None else f"{record.result:.2%}",
            record.run_id,
        )
        for record in records
    ]
    return header, rows
