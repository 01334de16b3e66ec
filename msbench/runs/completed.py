"""Whether a run has ended: what another attempt would not change, and what ``--fresh`` sets aside."""

from pathlib import Path

from msbench.errors import DamagedRecord
from msbench.results import store
from msbench.results.store import RunRecord
from msbench.training.shares import ALONE, Processes
from msbench.training.state import Listener


def ended(directory: Path, processes: Processes = ALONE) -> RunRecord | None:
    """The record of a run that another attempt would not change, as the first process finds it."""
    record = store.read_filed(directory) if processes.first else None
    if record is not None and record.status not in ("finished", "diverged"):
        record = None
    if processes.count == 1:
        return record
    data = processes.shared(None if record is None else record.model_dump_json().encode())
    return None if data is None else RunRecord.model_validate_json(data)


def set_ended_aside(directory: Path, listener: Listener) -> None:
    """Move what has ended beside its folder, for ``--fresh``; a damaged record has."""
    try:
        has_ended = ended(directory) is not None
    except DamagedRecord:
        has_ended = True
    # What was stopped goes on instead: so that a --fresh run that is interrupted can be resumed at all.
    if has_ended and (old := store.set_aside(directory)) is not None:
        listener.note(f"the earlier run was moved to {old}")
