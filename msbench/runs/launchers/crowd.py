"""Commands that are given a few at a time, a process each, by one that looks after them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from msbench.environment import THREAD_VARIABLES, THREADS, cores
from msbench.errors import ExitCode
from msbench.runs.launchers.devices import PATIENCE, POLL, held
from msbench.runs.launchers.outcome import BUSY, NO_WAIT
from msbench.training.signals import handling

VISIBLE = "CUDA_VISIBLE_DEVICES"
SEVERE = (ExitCode.INTERNAL, ExitCode.USAGE, ExitCode.DATA)
"""Exit codes that no record tells, the most severe first."""
Slot = Mapping[str, str]
"""What the environment of a process has beside that of its parent."""


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
    count = torch.cuda.device_count()
    return given[:count] or [str(index) for index in range(count)]


def worst(codes: Collection[int]) -> ExitCode:
    """What several processes came to, none of which was asked to stop."""
    known = {code if code in set(ExitCode) else ExitCode.INTERNAL for code in codes if code > 0}
    for code in SEVERE:
        if code in known:
            return code
    return ExitCode.RUN_FAILED if any(codes) else ExitCode.OK


class Crowd:
    """`count` commands that are given in order, as many at a time as there are `places`.

    One that finds its run `BUSY` in another process is given again, as a `later` one, when no other is left:
    then it waits by itself. `told` has index and exit code of each that has ended.
    """

    def __init__(
        self,
        count: int,
        command: Callable[[int, bool], Sequence[str]],
        places: Sequence[Slot],
        told: Callable[[int, int], None],
    ) -> None:
        self.command, self.told, self.places = command, told, list(places)
        self.waiting, self.later = list(range(count)), list[int]()
        self.working: dict[int, tuple[subprocess.Popen[bytes], Slot]] = {}

    def work(self, received: Sequence[int]) -> None:
        """Return when all have ended. Signals that are `received` are passed on, and no more are started."""
        passed = 0
        try:
            while self.working or ((self.waiting or self.later) and not received):
                while (self.waiting or self.later) and self.places and not received:
                    self._start()
                # Not from a signal's handler: what is being started just then would miss it.
                for number in received[passed:]:
                    passed += 1
                    self._send(number)
                self._look()
                time.sleep(POLL)
        finally:
            self._end()

    def _start(self) -> None:
        later = not self.waiting
        index = (self.waiting or self.later).pop(0)
        place = self.places.pop(0)
        environment = {**os.environ, **place, **({} if later else {NO_WAIT: "1"})}
        process = held(self.command(index, later), environment, stdout=subprocess.DEVNULL)
        self.working[index] = process, place

    def _look(self) -> None:
        for index, (process, place) in list(self.working.items()):
            if (code := process.poll()) is not None:
                process.communicate()
                del self.working[index]
                self.places.append(place)
                if code == BUSY:
                    self.later.append(index)
                else:
                    self.told(index, code)

    def _send(self, number: int) -> None:
        for process, _ in self.working.values():
            process.send_signal(number)

    def _end(self) -> None:
        """Let what still works, after an error here, save and end."""
        self._send(signal.SIGTERM)
        end = time.monotonic() + PATIENCE
        for process, _ in self.working.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            process.kill()
            process.communicate()


@contextmanager
def noted() -> Iterator[list[int]]:
    """Inside, the signals that stop a run are only written down; those that are ignored stay so."""
    received: list[int] = []
    with handling(lambda number, _: received.append(number)):
        yield received
