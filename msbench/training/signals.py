"""Signals to stop as a flag that is checked between steps, so that state is saved completely."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

from msbench.errors import CAUGHT, Interrupted


def is_ignored(number: int) -> bool:
    """Return True for a signal that this process was started to ignore, as by `nohup`."""
    return signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def handling(
    handler: Callable[[int, FrameType | None], object], numbers: Sequence[int] = CAUGHT
) -> Iterator[None]:
    """Let `handler` get the signals to stop inside the context, except ignored ones.

    `nohup` ignores SIGHUP, and a shell without job control ignores SIGINT for its background processes: such
    a process, and those that it starts, outlive the terminal.
    """
    before: dict[int, signal._HANDLER] = {}
    # Python delivers signals to the main thread only; elsewhere there is nothing to catch.
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            if not is_ignored(number):
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class SignalFlag:
    """Context manager: inside it, a first signal only raises the flag; a second one kills as usual.

    Ignored signals stay ignored.

    A signal within `once` seconds of the first counts as the same one: it may go to a whole group of
    processes, and be passed on by their parents as well.
    """

    def __init__(self, once: float = 0.0) -> None:
        self.once = once
        self.received: int | None = None
        self._when = 0.0
        self._handling = ExitStack()

    def __enter__(self) -> "SignalFlag":
        self._handling.enter_context(handling(self._raise_flag))
        return self

    def __exit__(self, *_: object) -> None:
        self._handling.close()

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
        """Raise Interrupted if a signal has arrived."""
        if self.received is not None:
            raise Interrupted(self.received)


def _ends() -> "signal._HANDLER":
    """Return the handler that lets the next signal end this process.

    To the first process of a container, the kernel delivers no signals that it does not handle itself. A
    notebook or an interactive Python is not ended: it gets KeyboardInterrupt.
    """
    if hasattr(sys, "ps1"):
        return signal.default_int_handler
    return signal.SIG_DFL if os.getpid() != 1 else lambda number, _frame: os._exit(128 + number)
