"""One run on several devices: as many processes of the same command, and a parent that supervises them.

The environment identifies each process (``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``MASTER_ADDR`` and
``MASTER_PORT``), as with ``torchrun``; ``--devices N`` starts N such processes here. Lightning's own launcher
and torch's elastic one either pass on no signals or end the other processes before they have saved.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO, TYPE_CHECKING

from msbench.console import LIFELINE, mute, say
from msbench.environment import count_cores
from msbench.errors import ConfigError, ExitCode, Lost, get_first_line
from msbench.runs.launchers import is_placed, read_number, read_rank
from msbench.training.signals import SignalFlag, handling, is_ignored

if TYPE_CHECKING:
    from msbench.training.processes import Processes

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
"""Gloo's interface for processes of one machine: a host's name may not even resolve."""
ONCE = 2.0
"""Seconds within which a signal to all processes and the same one from their parent count as one."""
GRACE = 90.0
"""Seconds that the other processes have once one has failed: to notice it, to record it, and to end."""
POLL = 0.05
PATIENCE = 60.0
"""Seconds that a process has for saving after its parent died."""


def check_count(count: int, device: str) -> None:
    """Raise ConfigError for fewer CUDA devices, or another number of processes, than requested.

    `device` is ``cpu`` or ``cuda``. Of several processes, all but the first are muted.
    """
    if is_placed():
        rank, started, local = read_rank()
        if rank:
            mute()
        if count not in (1, started):
            raise ConfigError(f"--devices {count}: but {started} processes were started; leave it out")
        count = local
    if device != "cuda" or count == 1:
        return
    import torch

    if count > (found := torch.cuda.device_count()):
        devices = "1 CUDA device" if found == 1 else f"{found} CUDA devices"
        raise ConfigError(f"{count} devices were asked for, but {devices} can be used here; lower --devices")


def build_python_command() -> list[str]:
    """Return the command of this Python, with the module search of this process: here only if this one does.

    ``python -m`` alone would import any ``random.py`` in the folder.
    """
    return [sys.executable, *([] if sys.path[:1] in ([""], [os.getcwd()]) else ["-P"])]


def run_processes(count: int, command: Sequence[str]) -> int:
    """Run a command in one group of `count` processes, and return its exit code.

    Signals are passed on. If one process fails before the others have ended, these have `GRACE` seconds.
    """
    port = _find_free_port()
    processes = [_start_rank(rank, count, port, command) for rank in range(count)]
    try:
        with forward_signals(processes) as passed:
            _watch(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return _choose_exit_code([process.returncode for process in processes], passed)


def is_supervised() -> bool:
    """Return True if a parent, which may have died, passes signals on; valid before `watch_lifeline`."""
    return LIFELINE in os.environ


def watch_lifeline(signals: SignalFlag) -> None:
    """End this process, after saving, if its parent dies."""
    if os.environ.pop(LIFELINE, None):
        threading.Thread(target=_save_when_orphaned, args=(signals,), daemon=True).start()


def _save_when_orphaned(signals: SignalFlag) -> None:
    # The descriptor itself: a buffered reader that waits would hold its lock when Python exits.
    while os.read(0, 1):
        pass
    # A second signal would kill a process that is still in a step or saving.
    if signals.received is None:
        if is_ignored(signal.SIGTERM):
            signals.received = signal.SIGTERM
        else:
            os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(ExitCode.TERMINATED)


def _start_rank(rank: int, count: int, port: int, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    # The user's settings stay: threads, and gloo's interface.
    own = {"OMP_NUM_THREADS": str(max(1, (count_cores() or 1) // count)), **LOOPBACK, **os.environ}
    own |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    own |= {"LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return start_held(command, own)


def start_held(
    command: Sequence[str],
    environment: Mapping[str, str],
    stdout: int | None = None,
    stderr: IO[bytes] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a process that saves and ends if this one dies, once it has called `watch_lifeline`."""
    # A separate session: a terminal's signal to all would arrive a second time from here, and kill.
    return subprocess.Popen(
        command,
        env={**environment, LIFELINE: "1"},
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def _find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def forward_signals(processes: "Sequence[subprocess.Popen[bytes]]") -> Iterator[list[int]]:
    """Pass signals that arrive inside the context on to processes; the list holds their numbers so far.

    Ignored signals stay ignored, here and in the processes, which inherit that.
    """
    passed: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        passed.append(number)
        for process in processes:
            process.send_signal(number)

    with handling(forward):
        yield passed


def _watch(processes: "Sequence[subprocess.Popen[bytes]]") -> None:
    """Return when all processes have ended, or when those left after a failure have used up their time."""
    failed: float | None = None
    while any(process.poll() is None for process in processes):
        # A success sets no deadline for the others: the first process may still be printing to a pager.
        if failed is None and any(process.poll() for process in processes):
            failed = time.monotonic()
        if failed is not None and time.monotonic() - failed > GRACE:
            return
        time.sleep(POLL)


def _choose_exit_code(codes: Sequence[int], passed: Sequence[int]) -> int:
    """Return one code for all; processes killed by a second signal passed on count as interrupted."""
    killed = {rank: -code for rank, code in enumerate(codes) if code < 0}
    asked = {code for code in codes if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED)}
    if asked:
        return asked.pop()
    if not killed:
        return next((code for code in codes if code), ExitCode.OK)
    if passed:
        return ExitCode.INTERRUPTED if signal.SIGINT in passed else ExitCode.TERMINATED
    names = (f"process {rank} of {len(codes)} by {signal.Signals(n).name}" for rank, n in killed.items())
    say(f"msbench: ended: {', '.join(names)}; the same command resumes from the last checkpoint")
    return ExitCode.RUN_FAILED


def create_flag() -> SignalFlag:
    """Return a flag that suits a single process, or one of several."""
    return SignalFlag(ONCE if is_placed() or is_supervised() else 0.0)


@contextmanager
def join_processes(device: str, signals: SignalFlag) -> "Iterator[Processes]":
    """Join the processes that train together on ``cpu`` or ``cuda``; raises Lost if they do not meet."""
    # Imported here: commands that only start processes need no torch.
    from lightning_fabric import Fabric
    from torch import distributed

    from msbench.training.process_group import ProcessGroup, Rank, make_fabric_options
    from msbench.training.processes import SINGLE

    watch_lifeline(signals)
    if not is_placed():
        yield SINGLE
        return
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    rank = Rank(*read_rank())
    read_number("MASTER_PORT", 0, 0, most=2**16 - 1)
    fabric = Fabric(accelerator=device, **make_fabric_options(rank))
    try:
        fabric.launch()
    except RuntimeError as error:
        place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        detail = get_first_line(error)[:200]
        raise Lost(f"the {rank.count} processes of a run did not meet at {place} ({detail})") from error
    group = ProcessGroup(rank, fabric.device, signals)
    try:
        with group.watched():
            yield group
    finally:
        distributed.destroy_process_group()
