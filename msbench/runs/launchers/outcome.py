"""What the runs of one command came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msbench.errors import ExitCode
from msbench.results.store import RunRecord

NO_WAIT = "MSBENCH_NO_WAIT"
"""Set where a process is not to wait for runs that others train: whoever started it asks again later."""
BUSY = 75
"""How it ends then; sysexits' EX_TEMPFAIL, which no user's command ends with."""


@dataclass
class RunOutcome:
    """What a command's runs came to."""

    records: list[RunRecord] = field(default_factory=list)
    data_errors: list[str] = field(default_factory=list)
    damaged: int = 0
    code: int = ExitCode.OK
    """Of what no record tells."""

    @property
    def exit_code(self) -> int:
        """The most fundamental of what went wrong."""
        if self.code:
            return self.code
        if self.data_errors:
            return ExitCode.DATA
        if self.damaged or any(not record.finished for record in self.records):
            return ExitCode.RUN_FAILED
        return ExitCode.OK


def summary(records: Sequence[RunRecord]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Header and rows of what was asked for: status, result, and where it is filed."""
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
