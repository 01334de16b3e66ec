"""Job states from Slurm: one query for all jobs, with a short timeout."""

import os
import subprocess
from collections.abc import Iterable

SECONDS = 5.0
"""Timeout of a query: without a reachable controller, squeue tries for minutes."""
WAITING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
WORKING = frozenset({"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"})

States = dict[tuple[str, int], str]
"""Slurm's name of a job's state, by name of the submission and element of its array."""


def ask(names: Iterable[str]) -> States | None:
    """Return the states of the jobs of these names that Slurm still knows; None if it cannot be queried.

    Jobs are queried by name, not by number: another cluster may have a job of the same number.
    """
    if not (joined := ",".join(names)):
        return {}
    command = ["squeue", "--noheader", "--array", "--states=all", "--format=%j|%K|%T", f"--name={joined}"]
    # A user's own filters would hide jobs.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SQUEUE_")}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(filter(None, map(_state, done.stdout.splitlines())))


def _state(line: str) -> tuple[tuple[str, int], str] | None:
    """Parse one line of squeue; None if it is not an element of an array."""
    name, _, rest = line.strip().partition("|")
    index, _, state = rest.partition("|")
    return ((name, int(index)), state) if index.isdecimal() and state else None
