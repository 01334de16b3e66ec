"""Signals to stop as a flag that is looked at between steps, so that state is saved whole."""

import os
import signal
import threading
import time
from types import FrameType

from msbench.errors import Interrupted

# SIGUSR1 is what batch systems send ahead of a time limit, SIGHUP what a closed terminal sends.
CAUGHT = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP") if hasattr(signal, name)
)


class SignalFlag:
    """Context manager: inside it, a first signal only raises the flag; a second one kills as usual.

    What arrives within `once` seconds of the first is taken for the same one: where it goes to a whole group
    of processes, and those that started others pass it on.
    """

    def __init__(self, once: float = 0.0) -> None:
        self.once = once
        self.received: int | None = None
        self._when = 0.0
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "SignalFlag":
        # Python delivers signals to the main thread only; elsewhere there is nothing to catch.
        if threading.current_thread() is threading.main_thread():
            for number in CAUGHT:
                self._previous[number] = signal.signal(number, self._raise_flag)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()

    def _raise_flag(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.once:
            signal.signal(number, _ends())
        elif self.received is None:
            self._when = now
        elif now - self._when <= self.once:
            return
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.received = number

    def check(self) -> None:
        """Raise Interrupted where a signal has arrived."""
        if self.received is not None:
            raise Interrupted(self.received)


def _ends() -> "signal._HANDLER":
    """What lets the next signal end this process.

    The first process of a container is spared by the kernel from all signals that it does not handle itself.
    """
    return signal.SIG_DFL if os.getpid() != 1 else lambda number, _frame: os._exit(128 + number)
