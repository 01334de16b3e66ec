"""This process as one of a group that trains a run together, as defined by the environment."""

import contextlib
import logging
import os
from collections.abc import Iterator

from lightning_fabric import Fabric
from torch import distributed

from msbench.errors import Lost, get_first_line
from msbench.runs.launchers.devices import hold_on_to_lifeline, looked_after, placed
from msbench.training.group import ProcessGroup, Rank, strategy
from msbench.training.shares import ALONE, Processes
from msbench.training.signals import SignalFlag

ONCE = 2.0
"""Seconds within which a signal to all processes and the same one from their parent count as one."""


def signal_flag() -> SignalFlag:
    """Return a flag that suits a single process, or one of several."""
    return SignalFlag(ONCE if placed() or looked_after() else 0.0)


@contextlib.contextmanager
def joined(device: str, signals: SignalFlag) -> Iterator[Processes]:
    """Join the processes that train together on ``cpu`` or ``cuda``; raises Lost if they do not meet."""
    hold_on_to_lifeline(signals)
    if not placed():
        yield ALONE
        return
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    rank = rank_here()
    fabric = Fabric(accelerator=device, **strategy(rank))
    try:
        fabric.launch()
    except RuntimeError as error:
        place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        detail = get_first_line(error)[:200]
        raise Lost(f"the {rank.count} processes of a run did not meet at {place} ({detail})") from error
    try:
        yield ProcessGroup(rank, fabric.device, signals)
    finally:
        distributed.destroy_process_group()


def rank_here() -> Rank:
    """Return the rank of this process, as defined by the environment."""
    count = int(os.environ["WORLD_SIZE"])
    return Rank(int(os.environ["RANK"]), count, int(os.environ.get("LOCAL_WORLD_SIZE", count)))
