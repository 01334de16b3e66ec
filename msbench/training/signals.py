"""Signals to stop as a flag that is looked at between steps, so that state is saved whole."""

import signal
import threading
from types import FrameType

from msbench.errors import Interrupted

# SIGUSR1 is what batch systems send ahead of a time limit, SIGHUP what a closed terminal sends.
CAUGHT = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP") if hasattr(signal, name)
)


class SignalFlag:
    """Context manager: inside it, a first signal only raises the flag; a second one kills as usual."""

    def __init__(self) -> None:
        self.received: int | None = None
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
        self.received = number
        signal.signal(number, signal.SIG_DFL)

    def check(self) -> None:
        """Raise Interrupted where a signal has arrived."""
        if self.received is not None:
            raise Interrupted(self.received)
