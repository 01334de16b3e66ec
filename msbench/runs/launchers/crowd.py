"""Commands that run a few at a time, a process each, supervised by their parent process."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from msbench.environment import THREAD_VARIABLES, THREADS, count_cores
from msbench.errors import ExitCode
from msbench.runs.launchers.devices import PATIENCE, POLL, held
from msbench.runs.launchers.outcome import BUSY, NO_WAIT
from msbench.training.signals import handling

VISIBLE = "CUDA_VISIBLE_DEVICES"
SEVERE = (ExitCode.INTERNAL, ExitCode.USAGE, ExitCode.DATA)
"""Exit codes that no record shows, the most severe first."""
Slot = Mapping[str, str]
"""Environment variables of a process in addition to its parent's."""


def slots(count: int, device: str) -> list[Slot]:
    """Return `count` slots on ``cpu`` or ``cuda``, each with a share of the cores, and one GPU of several."""
    # A terminal without cursor movement: live bars would overwrite each other.
    plain = {"TERM": "dumb"}
    if not any(os.environ.get(name) for name in THREAD_VARIABLES):  # the user's settings stay
        plain[THREADS] = str(max(1, (count_cores() or 1) // count))
    gpus = _gpus() if device == "cuda" else []
    return [plain | ({VISIBLE: gpus[k % len(gpus)]} if gpus else {}) for k in range(count)]


def _gpus() -> list[str]:
    """Return the GPUs that this process may use, each by its name in a child process."""
    import torch

    given = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    count = torch.cuda.device_count()
    return given[:count] or [str(index) for index in range(count)]


def worst(codes: Collection[int]) -> ExitCode:
    """Return one exit code for several processes, none of which was asked to stop."""
    known = {code if code in set(ExitCode) else ExitCode.INTERNAL for code in codes if code > 0}
    for code in SEVERE:
        if code in known:
            return code
    return ExitCode.RUN_FAILED if any(codes) else ExitCode.OK


class Crowd:
    """A pool of `count` commands that start in order, as many at a time as there are `places`.

    A command that finds its run `BUSY` in another process is started again, as a `later` one, when no other
    is left: then it waits by itself. `told` is called with index and exit code of each one that has ended.
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
        """Run all commands to their end; once signals are `received`, pass them on and start no more."""
        passed = 0
        try:
            while self.working or ((self.waiting or self.later) and not received):
                while (self.waiting or self.later) and self.places and not received:
                    self._start()
                # Not from a signal's handler: a process that is just being started would miss it.
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
        """Let processes that are left after an error here save and end."""
        self._send(signal.SIGTERM)
        end = time.monotonic() + PATIENCE
        for process, _ in self.working.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            process.kill()
            process.communicate()


@contextmanager
def noted() -> Iterator[list[int]]:
    """Only record the signals that stop a run, inside the context; ignored signals stay ignored."""
    received: list[int] = []
    with handling(lambda number, _: received.append(number)):
        yield received
