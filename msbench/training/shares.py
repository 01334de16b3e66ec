"""Who computes a batch: one process all of it, or each of several processes a share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor

from msbench.training.order import Indices
from msbench.training.signals import SignalFlag


@dataclass(frozen=True)
class Share:
    """What one process computes of a batch.

    `indices` are never none, so that every process does the same work in the same order: where a batch has
    fewer examples than there are processes, its first one stands in and `examples` is 0, its weight too.
    """

    indices: Indices
    examples: int
    """Those of `indices` that count."""
    whole: int
    """Examples of the batch."""
    most: int
    """Examples of the largest share: what all have to decide alike is decided by it."""
    pad_to: int | None
    """The longest of the batch, or what all batches are padded to: one width for all shares."""


@dataclass
class Done:
    """What has been computed of a batch; gradients are in the parameters.

    `mean` is the loss over the batch; `loss` and `correct` are sums over examples and decisions, on the
    device.
    """

    mean: Tensor
    loss: Tensor
    correct: Tensor
    seen: int
    tokens: int
    positions: int


class Processes(Protocol):
    """The processes that train one run together; `rank` is this one's number."""

    rank: int
    count: int
    here: int
    """How many of them are on this machine."""
    counts: bool
    """Whether what this process computes now enters sums, batch norm's too: off for a stand-in."""

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and prints."""

    def agreed(self) -> AbstractContextManager[None]:
        """Inside, what one process raises all of them raise."""

    def check(self, signals: SignalFlag) -> None:
        """Raise Interrupted where a signal has arrived, in all processes at the same place."""

    def pause(self) -> None:
        """Between two pieces of work: learn how the others are."""

    def wait(self) -> None:
        """To be called now and then by the first process while the others wait in `shared`."""

    def shared(self, data: bytes | None) -> bytes | None:
        """What the first process gives."""

    def join(self, model: torch.nn.Module) -> None:
        """Make the models of all processes that of the first, and their batch statistics those of all."""

    def seed(self, seed: int, step: int) -> None:
        """Start the generators of this process for a step, where it is not the only one."""

    def together(self, model: torch.nn.Module, done: Done) -> Done:
        """What all processes have computed of a batch, gradients included."""

    def merged(self, *arrays: Any) -> None:
        """Fill arrays, 0 where another process has the numbers."""

    def fabric_options(self) -> dict[str, Any]:
        """Devices and strategy for Fabric."""


class Alone:
    """One process: nothing to share, nobody to ask."""

    rank, count, here, counts, first = 0, 1, 1, True, True

    def agreed(self) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()

    def check(self, signals: SignalFlag) -> None:
        """Raise Interrupted where a signal has arrived."""
        signals.check()

    def pause(self) -> None:
        """Nothing."""

    def wait(self) -> None:
        """Nothing."""

    def shared(self, data: bytes | None) -> bytes | None:
        """The same."""
        return data

    def join(self, model: torch.nn.Module) -> None:
        """Nothing."""

    def seed(self, seed: int, step: int) -> None:
        """Nothing: generators run on."""

    def together(self, model: torch.nn.Module, done: Done) -> Done:  # noqa: ARG002 (what a group needs)
        """The same."""
        return done

    def merged(self, *arrays: Any) -> None:
        """Nothing."""

    def fabric_options(self) -> dict[str, Any]:
        """One device."""
        # Else Fabric finds out: where Slurm is installed it warns of it, and in a job counts Slurm's tasks.
        return {"devices": 1, "plugins": LightningEnvironment()}


ALONE = Alone()


def shares_of(
    batches: Sequence[Indices], lengths: Callable[[], Indices], pad_to: int | None, who: Processes
) -> list[Share]:
    """This process's share of each batch; `lengths` are those of the split, asked for where they matter.

    Examples are dealt out one by one, so that shares differ by one at most, and in a batch that is sorted by
    length none has all the long ones.
    """
    if who.count == 1:
        return [Share(batch, len(batch), len(batch), len(batch), pad_to) for batch in batches]
    return list(_dealt(batches, lengths(), pad_to, who))


def _dealt(
    batches: Sequence[Indices], lengths: Indices, pad_to: int | None, who: Processes
) -> Iterator[Share]:
    for batch in batches:
        mine = batch[who.rank :: who.count]
        # What padding has a part in, such as `padding: paper`, must not depend on who computes what.
        width = int(lengths[batch].max()) if pad_to is None else pad_to
        most = -(-len(batch) // who.count)
        yield Share(mine if len(mine) else batch[:1], len(mine), len(batch), most, width)
