"""Distribution of batches over processes: one computes all of a batch, or each of several a shard."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor

from msbench.errors import Lost
from msbench.training.batches import Indices
from msbench.training.signals import SignalFlag


@dataclass(frozen=True)
class BatchShard:
    """The part of a batch that one process computes.

    `indices` are never empty, so that every process does the same work in the same order: if a batch has
    fewer examples than there are processes, its first one is a stand-in, and `examples` and its weight are 0.
    """

    indices: Indices
    examples: int
    """Number of `indices` that count."""
    whole: int
    """Number of examples of the batch."""
    most: int
    """Examples of the largest shard, the basis of decisions that must be the same in all processes."""
    pad_to: int | None
    """Longest length of the batch, or the length that all batches are padded to: one width for all shards."""


@dataclass
class BatchResult:
    """Results computed on a batch; gradients are in the parameters.

    `mean` is the loss over the batch, with its auxiliary term; `loss` (of the labels alone), `auxiliary` and
    `correct` are sums over examples and decisions, on the device.
    """

    mean: Tensor
    loss: Tensor
    auxiliary: Tensor
    correct: Tensor
    seen: int
    tokens: int
    positions: int


class Processes:
    """The processes that train one run together: here a single one, with nothing to share or synchronise.

    `rank` is the number of this one, `count` that of all, `here` that of the processes on this machine.
    """

    rank: int = 0
    count: int = 1
    here: int = 1
    counts: bool = True
    """True if this process's results enter sums, batch norm's too: False for a stand-in."""

    @property
    def first(self) -> bool:
        """True for the process that writes and prints."""
        return self.rank == 0

    def agreed(self) -> AbstractContextManager[None]:
        """Raise in all processes what any one raises inside the context."""
        return nullcontext()

    def check(self, signals: SignalFlag) -> None:
        """Raise Interrupted if a signal has arrived, in all processes at the same place."""
        signals.check()

    @contextmanager
    def calling(self, on_lost: Callable[[Lost], None]) -> Iterator[None]:  # noqa: ARG002 (a group's)
        """Call a function, from another thread, if this process has to end in a sum that never comes."""
        yield

    def check_peers(self) -> None:
        """Raise Lost if another process is known to be gone."""

    def pause(self) -> None:
        """Synchronise with the other processes between two pieces of work."""

    def wait(self) -> None:
        """Keep the others waiting in `broadcast`; called now and then by the first process."""

    def broadcast(self, data: bytes | None) -> bytes | None:
        """Return the data of the first process."""
        return data

    def join(self, model: torch.nn.Module) -> None:
        """Give all processes the model of the first, and batch statistics over all processes."""

    def seed(self, seed: int, step: int) -> None:
        """Seed the generators of this process for a step, unless it is the only one: generators continue."""

    def combine(self, model: torch.nn.Module, result: BatchResult) -> BatchResult:  # noqa: ARG002 (a group's)
        """Return the results of all processes on a batch, gradients included."""
        return result

    def merge(self, *arrays: Any) -> None:
        """Fill in the numbers of other processes, for which arrays are 0 here."""

    def fabric_options(self) -> dict[str, Any]:
        """Return devices and strategy for Fabric."""
        # Otherwise Fabric detects it: if Slurm is installed it warns, and in a job it counts Slurm's tasks.
        return {"devices": 1, "plugins": LightningEnvironment()}


SINGLE = Processes()


def deal_batches(
    batches: Sequence[Indices],
    lengths: Callable[[], Indices],
    pad_to: int | None,
    processes: Processes,
    together: int = 1,
) -> list[BatchShard]:
    """Return this process's shard of each batch; `lengths` returns those of the split, called if needed.

    Examples are dealt out one by one, so that shards differ by one at most, and no shard of a batch that is
    sorted by length has all the long ones; or so many `together`.
    """
    if processes.count == 1:
        return [BatchShard(batch, len(batch), len(batch), len(batch), pad_to) for batch in batches]
    all_lengths, shards = lengths(), []
    for batch in batches:
        owners = np.arange(len(batch)) // together % processes.count
        mine = batch[owners == processes.rank]
        # Results that depend on padding, such as `padding: paper`, must not depend on the shards.
        width = int(all_lengths[batch].max()) if pad_to is None else pad_to
        most = int((owners == 0).sum())  # the first process has as many as any
        indices = mine if len(mine) else batch[:1]
        shards.append(BatchShard(indices, len(mine), len(batch), most, width))
    return shards
