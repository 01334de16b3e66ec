"""Where runs execute. So far: one after the other in this process."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msbench.console import say
from msbench.errors import DamagedRecord, DataError, ExitCode
from msbench.execute import Place, execute
from msbench.progress import listener_for
from msbench.specs import RunSpec
from msbench.store import RunRecord


@dataclass
class Outcome:
    """What a command's runs came to."""

    records: list[RunRecord] = field(default_factory=list)
    data_errors: list[str] = field(default_factory=list)
    damaged: int = 0

    @property
    def exit_code(self) -> ExitCode:
        """The most fundamental of what went wrong."""
        if self.data_errors:
            return ExitCode.DATA
        if self.damaged or any(not record.finished for record in self.records):
            return ExitCode.RUN_FAILED
        return ExitCode.OK


def run_here(specs: Sequence[RunSpec], place: Place, *, fresh: bool, quiet: bool) -> Outcome:
    """Execute all specs; a failed one leaves the others going.

    Runs that another process is training are left to the end and then waited for, so that an exit code of 0
    means that all that was asked is done. Interrupted is raised at once, and nothing more is started.
    """
    outcome = Outcome()
    busy = [spec for spec in specs if not _one(spec, place, outcome, fresh=fresh, quiet=quiet, wait=False)]
    for spec in busy:
        say(f"{spec.task} · {spec.model_name} · seed {spec.seed}: waiting for another process that trains it")
        _one(spec, place, outcome, fresh=False, quiet=quiet, wait=True)
    return outcome


def _one(spec: RunSpec, place: Place, outcome: Outcome, *, fresh: bool, quiet: bool, wait: bool) -> bool:
    try:
        with listener_for(spec, quiet=quiet) as listener:
            record = execute(spec, place, listener, fresh=fresh, wait=wait)
    except DataError as error:
        # A signal to the whole process group can end the workers of a set-up before it is noticed here.
        place.signals.check()
        say(f"msbench: {error}")
        outcome.data_errors.append(str(error))
        return True
    except DamagedRecord as error:
        say(f"msbench: {error}")
        outcome.damaged += 1
        return True
    if record is None:
        return False
    outcome.records.append(record)
    place.signals.check()
    return True


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
