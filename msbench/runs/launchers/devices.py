"""One run on several devices: as many processes of the same command, and one that looks after them.

The environment says which process is which (``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``MASTER_ADDR`` and
``MASTER_PORT``), as ``torchrun`` does it; ``--devices N`` starts N such processes here. Lightning's own
launcher and torch's elastic one either pass on no signals or end the others before they have saved.
"""

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

from msbench.console import mute, say
from msbench.environment import cores
from msbench.errors import ConfigError, ExitCode
from msbench.training.signals import SignalFlag, handling, is_ignored

PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
LIFELINE = "MSBENCH_LIFELINE"
"""Set where a process's standard input is held open by the one that started it."""
GRACE = 10.0
"""Seconds that the others have once one has failed: to write down what happened, or to end as well."""
POLL = 0.05
PATIENCE = 60.0
"""Seconds in which a process that lost its starter may save."""


def placed() -> bool:
    """Whether the environment makes this one of several processes."""
    return all(name in os.environ for name in PLACES) and os.environ["WORLD_SIZE"] != "1"


def check_single(option: str) -> None:
    """Raise ConfigError for an option that this process, one of several, would follow once more."""
    if placed():
        raise ConfigError(f"{option}: not within torchrun: there, each process would do it; use --devices")


def prepare(count: int, device: str) -> None:
    """Let only the first of several processes speak.

    Raises ConfigError where there are not as many devices ``cpu`` or ``cuda``, or processes, as asked for.
    """
    if placed():
        if os.environ["RANK"] != "0":
            mute()
        started = int(os.environ["WORLD_SIZE"])
        if count not in (1, started):
            raise ConfigError(f"--devices {count}: but {started} processes were started; leave it out")
        count = int(os.environ.get("LOCAL_WORLD_SIZE", started))
    if device != "cuda" or count == 1:
        return
    import torch

    if count > (there := torch.cuda.device_count()):
        devices = "1 CUDA device" if there == 1 else f"{there} CUDA devices"
        raise ConfigError(f"{count} devices were asked for, but {devices} can be used here; lower --devices")


def python() -> list[str]:
    """This Python, which looks for modules where this process does: here only if this one was told so.

    ``python -m`` alone would import any ``random.py`` that lies in the folder.
    """
    return [sys.executable, *([] if sys.path[:1] in ([""], [os.getcwd()]) else ["-P"])]


def run_on(count: int, command: Sequence[str]) -> int:
    """Run a command in `count` processes that know of each other; its exit code.

    Signals are passed on. Where one process fails before the others have ended, these have `GRACE` seconds.
    """
    port = _free_port()
    processes = [_started(rank, count, port, command) for rank in range(count)]
    try:
        with passing_on(processes) as passed:
            _watch(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return _exit_code([process.returncode for process in processes], passed)


def looked_after() -> bool:
    """Whether another process started this one, passes signals on, and may have died; before it holds on."""
    return LIFELINE in os.environ


def hold_on_to_lifeline(signals: SignalFlag) -> None:
    """End, after saving, where the process that started this one dies."""
    if os.environ.pop(LIFELINE, None):
        threading.Thread(target=_await_end, args=(signals,), daemon=True).start()


def _await_end(signals: SignalFlag) -> None:
    # The descriptor itself: what waits in a buffered reader would hold its lock when Python ends.
    while os.read(0, 1):
        pass
    # A second one would kill what is still in a step or saving.
    if signals.received is None:
        if is_ignored(signal.SIGTERM):
            signals.received = signal.SIGTERM
        else:
            os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(ExitCode.TERMINATED)


def _started(rank: int, count: int, port: int, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    # What the user has set stays: threads, and the interface of gloo.
    own = {"OMP_NUM_THREADS": str(max(1, (cores() or 1) // count)), **_loopback(), **os.environ}
    own |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    own |= {"LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return held(command, own)


def held(
    command: Sequence[str], environment: Mapping[str, str], stdout: int | None = None
) -> "subprocess.Popen[bytes]":
    """A process that saves and ends where this one dies, once it holds on to its lifeline."""
    # A session of its own: what a terminal sends to all would come a second time from here, and kill.
    return subprocess.Popen(
        command,
        env={**environment, LIFELINE: "1"},
        stdin=subprocess.PIPE,
        stdout=stdout,
        start_new_session=True,
    )


def _loopback() -> dict[str, str]:
    """Where gloo connects processes of one machine: a host's name may not even resolve."""
    return {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def passing_on(processes: "Sequence[subprocess.Popen[bytes]]") -> Iterator[list[int]]:
    """Inside, processes get the signals that arrive here; the list is of their numbers, so far.

    Those that are ignored stay so, here and in the processes, which inherit that.
    """
    passed: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        passed.append(number)
        for process in processes:
            process.send_signal(number)

    with handling(forward):
        yield passed


def _watch(processes: "Sequence[subprocess.Popen[bytes]]") -> None:
    """Return when all have ended, or those that are left after a failure have had their time."""
    failed: float | None = None
    while any(process.poll() is None for process in processes):
        # After a success nobody is waited for in vain: the first process may still be printing to a pager.
        if failed is None and any(process.poll() for process in processes):
            failed = time.monotonic()
        if failed is not None and time.monotonic() - failed > GRACE:
            return
        time.sleep(POLL)


def _exit_code(codes: Sequence[int], passed: Sequence[int]) -> int:
    """One code for all; those that died of a signal that was passed on, the second one, were interrupted."""
    killed = {rank: -code for rank, code in enumerate(codes) if code < 0}
    asked = {code for code in codes if code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED)}
    if asked:
        return asked.pop()
    if not killed:
        return next((code for code in codes if code), ExitCode.OK)
    if passed:
        return ExitCode.INTERRUPTED if signal.SIGINT in passed else ExitCode.TERMINATED
    names = (f"process {rank} of {len(codes)} by {signal.Signals(n).name}" for rank, n in killed.items())
    say(f"msbench: ended: {', '.join(names)}; the same command goes on from the last checkpoint")
    return ExitCode.RUN_FAILED
