"""The watch over the processes of a group: none waits for another that no longer runs.

Gloo notices a closed connection. NCCL does not, and neither of them a machine that hangs: the others would
wait on their devices for half an hour. So each process counts up a number of its own in the group's store,
and reads those of the others.
"""

import threading
import time
from collections.abc import Callable
from typing import Self

from torch.distributed import Store  # type: ignore[attr-defined]

BEAT = 5.0
"""Seconds between two counts."""
SILENCE = 40.0
"""Seconds without a count after which a process is given up: more than a kernel takes to compile."""
LEFT = b"left"


class PeerWatch:
    """A thread that finds the first process that is gone, and calls `abort` with the reason, once.

    `connect` returns a connection to the group's store of the thread's own. Inside the context it watches.
    """

    def __init__(
        self, rank: int, count: int, connect: Callable[[], Store], abort: Callable[[str], None]
    ) -> None:
        self._rank, self._others = rank, [other for other in range(count) if other != rank]
        self._connect, self._abort = connect, abort
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(BEAT)

    def _watch(self) -> None:
        store = None
        try:
            store = self._connect()
            self._count(store)
        except RuntimeError as error:  # the store is in the first process
            if not self._ended.is_set():
                self._abort(f"the first process does not answer ({str(error).splitlines()[0][:200]})")
        if store is not None and self._ended.is_set():
            self._leave(store)

    def _count(self, store: Store) -> None:
        """Count, and return when the context ends or another process has stopped counting."""
        last = time.monotonic()
        heard = dict.fromkeys(self._others, (b"", last))
        beat = 0
        while not self._ended.wait(BEAT if beat else 0):
            beat += 1
            now, before = time.monotonic(), last
            last = now
            if now - before > 3 * BEAT:  # stopped for a while, perhaps together with the others
                heard = {other: (value, now) for other, (value, _) in heard.items()}
            store.set(_name_key(self._rank), str(beat))
            for other, (value, since) in heard.items():
                key = _name_key(other)
                found = store.get(key) if store.check([key]) else b""
                if found != value:
                    heard[other] = found, time.monotonic()
                elif found != LEFT and time.monotonic() - since > SILENCE:
                    self._abort(f"process {other} has not been heard of for {SILENCE:.0f} seconds")
                    return

    def _leave(self, store: Store) -> None:
        try:
            store.set(_name_key(self._rank), LEFT.decode())
        except RuntimeError:  # the first process was faster
            return


def _name_key(rank: int) -> str:
    return f"msbench/process/{rank}"
