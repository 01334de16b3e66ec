"""One element of an array, as its batch script starts it: ``python -m msbench.cli.array_job FILE``.

It executes the command of its run in this very process, so that signals reach training. SIGUSR1 comes ahead
of the time limit: the run saves, and is requeued here. SIGTERM comes with a pre-emption, which Slurm itself
requeues, or with a cancellation, which must not be requeued.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msbench import cli, console
from msbench.console import say
from msbench.errors import ConfigError, ExitCode, MsbenchError
from msbench.runs.launchers import read_number
from msbench.runs.launchers.slurm_jobs import FILE, Submission, read_submission
from msbench.training.signals import handling

WARNING = signal.SIGUSR1
MOST_RESTARTS = 10**6
SLURM_REMEDY = "Slurm sets it: start the element by its batch script"
ReceivedSignals = Callable[[], set[int]]


def main() -> int:
    """Run the element that the environment names, and return the exit code of its command."""
    console.prepare_streams()
    try:
        if len(sys.argv) != 2:
            raise ConfigError(f"give the path of one {FILE}, as batch scripts of msbench do")
        submission = _read_own_submission(Path(sys.argv[1]))
        most = len(submission.runs) - 1
        index = read_number("SLURM_ARRAY_TASK_ID", 0, most=most, remedy=SLURM_REMEDY)
        words = submission.runs[index].words
        restarts = read_number("SLURM_RESTART_COUNT", 0, 0, MOST_RESTARTS, SLURM_REMEDY)
    except MsbenchError as error:
        say(f"msbench: {error}")
        return error.exit_code
    if restarts > submission.max_requeues:
        say(f"msbench: started {restarts + 1} times: not run again (max_requeues: {submission.max_requeues})")
        return ExitCode.RUN_FAILED
    with _record_signals() as get_received:
        code = _run_command(words)
        limited = code == ExitCode.TERMINATED and WARNING in get_received()
    if limited:
        _requeue(submission, restarts)
    return code


def _read_own_submission(path: Path) -> Submission:
    """Read the submission in this file if it is this user's: no other may choose what their jobs do."""
    submission = read_submission(path)
    # The folder too: in another user's folder, the suite's copy may be anybody's.
    for each in (path.parent, path):
        if each.stat().st_uid != os.geteuid():
            raise ConfigError(f"{each}: belongs to another user; submit it yourself")
    return submission


@contextmanager
def _record_signals() -> Iterator[ReceivedSignals]:
    """Record all signals that Python handles inside the context, whatever their handler."""
    reader, writer = socket.socketpair()
    received: set[int] = set()

    def get_received() -> set[int]:
        with suppress(BlockingIOError):
            received.update(reader.recv(4096))
        return received

    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        # Before training handles it, there is nothing to save: only the requeue is left.
        try:
            with handling(lambda *_: sys.exit(ExitCode.TERMINATED), (WARNING,)):
                yield get_received
        finally:
            signal.set_wakeup_fd(-1)


def _run_command(words: tuple[str, ...]) -> int:
    # With several devices, this command line is given to the process of each.
    sys.argv = ["msbench", *words]
    try:
        cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.INTERNAL
    return ExitCode.OK


def _requeue(submission: Submission, restarts: int) -> None:
    """Requeue this element, unless it has been requeued too often."""
    if restarts >= submission.max_requeues:
        say(f"msbench: not requeued: max_requeues is {submission.max_requeues}; submit again to resume")
        return
    # Not by SLURM_JOB_ID: that of one element is the number of the whole array.
    job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    say(f"msbench: the time limit is near: {job} is requeued")
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"msbench: not requeued: {done.stderr.strip()}; submit again to resume")


if __name__ == "__main__":
    sys.exit(main())
