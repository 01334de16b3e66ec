"""Runs side by side on this machine: a process each, a few at a time, and one that looks after them.

Processes, not threads: each has its own threads, memory and signals, and leaves nothing behind for the next.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msbench import again, store
from msbench.agenda import Entry
from msbench.console import say
from msbench.environment import cores
from msbench.errors import ExitCode, Interrupted
from msbench.launch.devices import POLL, held, python
from msbench.numerics import THREAD_VARIABLES, THREADS
from msbench.training.signals import CAUGHT

VISIBLE = "CUDA_VISIBLE_DEVICES"
RECORDED = (ExitCode.OK, ExitCode.RUN_FAILED, ExitCode.INTERRUPTED, ExitCode.TERMINATED)
"""How a process ends whose run has a record that says as much."""
Slot = Mapping[str, str]
"""What the environment of a process has beside that of its parent."""


@dataclass(frozen=True)
class Work:
    """What all processes share: the suite's file as it was at the start, overrides and options as typed."""

    suite_file: Path
    sets: Sequence[str]
    options: Sequence[str]
    results: Path

    def command(self, entry: Entry) -> list[str]:
        """The words that train one run."""
        spec = entry.spec
        _, *words = again.words_of(
            "run",
            str(self.suite_file),
            spec.model_name,
            spec.task,
            [spec.seed],
            self.sets,
            self.results.absolute(),
        )
        return [*python(), "-m", "msbench", *words, *self.options]


def slots(count: int, device: str) -> list[Slot]:
    """Places for `count` processes on ``cpu`` or ``cuda``: a share of the cores, and one GPU of several."""
    # A terminal that cannot move its cursor: bars would overwrite each other.
    plain = {"TERM": "dumb"}
    if not any(os.environ.get(name) for name in THREAD_VARIABLES):  # what the user has set stays
        plain[THREADS] = str(max(1, (cores() or 1) // count))
    gpus = _gpus() if device == "cuda" else []
    return [plain | ({VISIBLE: gpus[k % len(gpus)]} if gpus else {}) for k in range(count)]


def _gpus() -> list[str]:
    """The GPUs that this process may use, each by the name that a child knows it by."""
    import torch

    given = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return given or [str(index) for index in range(torch.cuda.device_count())]


def train(entries: Sequence[Entry], work: Work, places: Sequence[Slot], *, quiet: bool) -> ExitCode:
    """Train these runs, as many at a time as there are places; a failed one leaves the others going.

    What failed is told by the records that were written; the exit code is of what no record tells. Raises
    Interrupted, once all have saved and ended, where a signal has arrived: nothing more is started then.
    """
    codes: list[int] = []

    def told(index: int, code: int) -> None:
        codes.append(code)
        spec = entries[index].spec
        name = f"{spec.task} · {spec.model_name} · seed {spec.seed}"
        if code < 0 and not received:  # one that was passed on may come when all is saved
            say(
                f"{name}: ended by {signal.Signals(-code).name}; the same command goes on from its checkpoint"
            )
        elif not quiet:
            say(f"{name}: ended, {len(codes)} of {len(entries)}")

    def busy(index: int) -> bool:
        directory = entries[index].directory
        assert directory is not None, "planned with its data"
        with store.locked(directory, wait=False) as mine:
            return not mine

    commands = [work.command(entry) for entry in entries]
    with noted() as received:
        Crowd(commands, places, busy, told).work(received)
    if received:
        raise Interrupted(received[0])
    return next((ExitCode(code) for code in codes if code > 0 and code not in RECORDED), ExitCode.OK)


class Crowd:
    """Commands that are given in order, as many at a time as there are `places`.

    One that is `busy`, by its index, is left to the end: then it is given all the same, and waits by itself.
    `told` has index and exit code of each that has ended.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        places: Sequence[Slot],
        busy: Callable[[int], bool],
        told: Callable[[int, int], None],
    ) -> None:
        self.commands, self.busy, self.told = commands, busy, told
        self.waiting, self.places = list(range(len(commands))), list(places)
        self.working: dict[int, tuple[subprocess.Popen[bytes], Slot]] = {}

    def work(self, received: Sequence[int]) -> None:
        """Return when all have ended. Signals that are `received` are passed on, and no more are started."""
        passed = 0
        try:
            while self.working or (self.waiting and not received):
                while self.waiting and self.places and not received:
                    self._start()
                # Not from a signal's handler: what is being started just then would miss it.
                for number in received[passed:]:
                    passed += 1
                    for process, _ in self.working.values():
                        process.send_signal(number)
                self._look()
                time.sleep(POLL)
        finally:
            for process, _ in self.working.values():
                process.kill()
                process.communicate()

    def _start(self) -> None:
        index = next((index for index in self.waiting if not self.busy(index)), self.waiting[0])
        self.waiting.remove(index)
        place = self.places.pop(0)
        process = held(self.commands[index], os.environ | place, stdout=subprocess.DEVNULL)
        self.working[index] = process, place

    def _look(self) -> None:
        for index, (process, place) in list(self.working.items()):
            if (code := process.poll()) is not None:
                process.communicate()
                del self.working[index]
                self.places.append(place)
                self.told(index, code)


@contextmanager
def noted() -> Iterator[list[int]]:
    """Inside, the signals that stop a run are only written down."""
    received: list[int] = []
    before = {number: signal.signal(number, lambda which, _: received.append(which)) for number in CAUGHT}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
