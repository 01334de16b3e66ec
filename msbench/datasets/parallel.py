"""Numbered blocks of work over several processes, returned in the order of their numbers."""

import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TypeVar

from msbench import console
from msbench.environment import count_cores
from msbench.errors import CAUGHT, ConfigError, DataError

T = TypeVar("T")

GUARD = "a script that sets up data has to do so below `if __name__ == '__main__':`, as its workers import it"

AHEAD = 3  # blocks in flight per process: enough to keep it busy, few enough to waste little at the end
MOST_BY_DEFAULT = 16  # a login node has 128 cores; starting 128 interpreters takes longer than the work
PARENTS_OWN = CAUGHT
"""Signals that a terminal or Slurm sends to a process group: the parent decides, workers ignore them."""


def refuse_importing_worker() -> None:
    """Raise ConfigError in a worker that is importing the script that started it.

    It would wait forever for the lock of its parent: Python itself only refuses to start processes there.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(GUARD)


def count_default_processes() -> int:
    """Return the number of cores that this process may use, at most 16."""
    return min(count_cores() or 1, MOST_BY_DEFAULT)


def run_in_order(work: Callable[[int], T], processes: int) -> Generator[T, None, None]:
    """Yield ``work(0), work(1), ...`` without end; close the generator to stop.

    The results do not depend on `processes`; 1 works in this process. `work` must be picklable.
    Signals to stop are left to this process: workers ignore them. Raises DataError where a worker
    process dies.
    """
    if processes <= 1:
        return (work(number) for number in itertools.count())
    return _run_over_processes(work, processes)


class _Worker(SpawnProcess):
    """A process that a pool can end although it ignores SIGTERM."""

    def terminate(self) -> None:
        self.kill()


class _Context(SpawnContext):  # fork would copy the locks of torch's threads
    Process = _Worker


def _run_over_processes(work: Callable[[int], T], processes: int) -> Generator[T, None, None]:
    pool = ProcessPoolExecutor(processes, mp_context=_Context(), initializer=_start_worker)
    try:
        pending: deque[Future[T]] = deque()
        for number in itertools.count():
            with _hold_signals():
                pending.append(pool.submit(work, number))
            if len(pending) >= AHEAD * processes:
                yield pending.popleft().result()
    except BrokenProcessPool:
        raise DataError(
            "a worker process died. If it was killed, perhaps for memory, run the same command again;"
            f" {GUARD}"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _hold_signals() -> Iterator[None]:
    """Block the signals for a moment, so that a worker started meanwhile ignores them from its first line.

    A worker inherits the mask; without it, a signal that comes while the worker still imports would end it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_OWN)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    """Leave signals to the parent, and exit when it dies: a killed parent closes no queue."""
    console.prepare_streams()
    for number in PARENTS_OWN:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
