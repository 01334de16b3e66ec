"""Completed runs: those that another attempt would not change, and archiving them for ``--fresh``."""

from pathlib import Path

from msbench.errors import DamagedRecord
from msbench.results import store
from msbench.results.record import RunRecord
from msbench.training.shares import ALONE, Processes
from msbench.training.state import Listener


def ended(directory: Path, processes: Processes = ALONE) -> RunRecord | None:
    """Return the record of a completed run, as the first process finds it; None if it is not completed."""
    record = store.read_run(directory) if processes.first else None
    if record is not None and record.status not in ("finished", "diverged"):
        record = None
    if processes.count == 1:
        return record
    data = processes.shared(None if record is None else record.model_dump_json().encode())
    return None if data is None else RunRecord.model_validate_json(data)


def set_ended_aside(directory: Path, listener: Listener) -> None:
    """Archive a completed run, or one with a damaged record, next to its folder, for ``--fresh``."""
    try:
        has_ended = ended(directory) is not None
    except DamagedRecord:
        has_ended = True
    # A stopped run is resumed instead, so that an interrupted --fresh run can be resumed at all.
    if has_ended and (old := store.archive_run(directory)) is not None:
        listener.note(f"the earlier run was moved to {old}")
