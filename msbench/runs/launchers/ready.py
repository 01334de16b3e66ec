"""Set-up of data before several processes train, so that they do not each repeat it."""

from collections.abc import Sequence
from pathlib import Path

from msbench.config import RunSpec
from msbench.errors import ExitCode
from msbench.results.files import require_writable
from msbench.runs import setup as provision
from msbench.runs.plan import PlannedRun, agenda


def ready(
    specs: Sequence[RunSpec], results: Path, data_root: Path, *, fresh: bool, quiet: bool
) -> tuple[list[PlannedRun], ExitCode]:
    """Set up missing data; return what is to be done with each run, and the exit code of the set-up.

    Raises ConfigError before the set-up if results cannot be written.
    """
    entries = agenda(specs, results, data_root, fresh=fresh)
    missing = [entry.spec.data for entry in entries if entry.action == "set up"]
    if not missing:
        return entries, ExitCode.OK
    require_writable(results)
    code = provision.provide(missing, quiet=quiet).exit_code
    return agenda(specs, results, data_root, fresh=fresh), code
