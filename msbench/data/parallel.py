"""Numbered blocks of work over several processes, handed back in the order of their numbers."""

import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from msbench.errors import DataError

T = TypeVar("T")

AHEAD = 3  # blocks in flight per process: enough to keep it busy, few enough to waste little at the end
MOST_BY_DEFAULT = 16  # a login node has 128 cores; starting 128 interpreters takes longer than the work


def default_processes() -> int:
    """The cores that this process may use, at most 16."""
    if hasattr(os, "sched_getaffinity"):  # what Slurm allots is less than what the node has
        return min(len(os.sched_getaffinity(0)), MOST_BY_DEFAULT)
    return min(os.cpu_count() or 1, MOST_BY_DEFAULT)


def ordered(work: Callable[[int], T], processes: int) -> Generator[T, None, None]:
    """``work(0), work(1), ...`` without end; close the generator to stop.

    What comes out does not depend on `processes`; 1 works in this process. `work` must be picklable.
    Raises DataError where a worker process dies.
    """
    if processes <= 1:
        return (work(number) for number in itertools.count())
    return _over_processes(work, processes)


def _over_processes(work: Callable[[int], T], processes: int) -> Generator[T, None, None]:
    context = multiprocessing.get_context("spawn")  # fork would copy the locks of torch's threads
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker)
    try:
        pending: deque[Future[T]] = deque()
        for number in itertools.count():
            pending.append(pool.submit(work, number))
            if len(pending) >= AHEAD * processes:
                yield pending.popleft().result()
    except BrokenProcessPool:
        raise DataError(
            "a worker process died (killed, perhaps for memory); run the same command again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and do not outlive it: a killed parent closes no queue."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
