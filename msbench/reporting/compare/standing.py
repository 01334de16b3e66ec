"""Comparison of a stored run's settings, data and source with the present ones."""

from dataclasses import dataclass
from pathlib import Path

from msbench import datasets as data
from msbench.config import RunSpec
from msbench.config.differences import Change, compare_data, compare_settings, compare_sources
from msbench.errors import ConfigError, DataError
from msbench.results.record import RunRecord
from msbench.runs import plan as agenda
from msbench.runs.reproduce import record_spec, resolved


@dataclass(frozen=True)
class RunStanding:
    """The run that the same settings would give now.

    `run_id` is its id, None where unknown, for the `reason` given. `changes` are the known differences from
    the stored run.
    """

    run_id: str | None
    reason: str = ""
    changes: tuple[Change, ...] = ()


def standing(record: RunRecord, data_root: Path) -> RunStanding:
    """Compare a run with the present source and, where set up, the present data. Writes nothing."""
    try:
        spec = resolved(record)
    except ConfigError as error:
        return RunStanding(None, f"its settings are not understood now: {error}")
    found: tuple[Change, ...] = ()
    if spec.digest != record.spec_digest:
        found += compare_settings(record.spec, record_spec(spec))
    digest, reason = _data_digest(spec, data_root)
    identity = agenda.identify(spec, digest or record.data_digest)
    found += compare_data(record.data_digest, identity.data_digest)
    digests = (record.source_digest, identity.source_digest)
    found += compare_sources(record.sources, identity.files, digests)
    return RunStanding(None if reason else identity.run_id, reason, found)


def _data_digest(spec: RunSpec, data_root: Path) -> tuple[str, str]:
    """Return the digest of the present data, or the reason why there is none."""
    if not data.is_ready(spec.data, data_root):
        return "", f"its data are not set up here: {data.command(spec.data)}"
    try:
        return data.open_dataset(spec.data, data_root).digest, ""
    except DataError as error:
        return "", str(error)
