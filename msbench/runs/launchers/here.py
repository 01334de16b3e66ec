"""Runs one after another in this process."""

import os
from collections.abc import Sequence

from msbench.config import RunSpec
from msbench.console import say
from msbench.errors import DamagedRecord, DataError
from msbench.runs.execution import RunContext, execute
from msbench.runs.launchers.outcome import BUSY, NO_WAIT, RunOutcome
from msbench.runs.progress import listener_for, name_of


def run_here(specs: Sequence[RunSpec], place: RunContext, *, fresh: bool, quiet: bool) -> RunOutcome:
    """Execute all specs; a failed one does not stop the others.

    Runs that another process is training are left to the end and then waited for, so that an exit code of 0
    means that all requested runs are done. Interrupted is raised at once, and nothing more is started.
    """
    outcome = RunOutcome()
    may_wait = os.environ.pop(NO_WAIT, None) is None
    busy = [spec for spec in specs if not _one(spec, place, outcome, fresh=fresh, quiet=quiet, wait=False)]
    if busy and not may_wait:
        outcome.code = BUSY
        return outcome
    for spec in busy:
        say(f"{name_of(spec)}: waiting for another process that trains it")
        _one(spec, place, outcome, fresh=False, quiet=quiet, wait=True)
    return outcome


def _one(
    spec: RunSpec, place: RunContext, outcome: RunOutcome, *, fresh: bool, quiet: bool, wait: bool
) -> bool:
    try:
        with listener_for(spec, quiet=quiet) as listener:
            record = execute(spec, place, listener, fresh=fresh, wait=wait)
    except DataError as error:
        # A signal to the whole process group can end the workers of a set-up before it is noticed here.
        place.processes.check(place.signals)
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
    place.processes.check(place.signals)
    return True
