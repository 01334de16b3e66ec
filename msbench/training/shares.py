"""Distribution of batches over processes: one computes all of a batch, or each of several a share."""

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
    """Examples of the largest share, the basis of decisions that must be the same in all processes."""
    pad_to: int | None
    """Longest length of the batch, or the length that all batches are padded to: one width for all shares."""


@dataclass
class Done:
    """Results computed on a batch; gradients are in the parameters.

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
    """Number of processes on this machine."""
    counts: bool
    """True if this process's results enter sums, batch norm's too: False for a stand-in."""

    @property
    def first(self) -> bool:
        """True for the process that writes and prints."""

    def agreed(self) -> AbstractContextManager[None]:
        """Raise in all processes what any one raises inside the context."""

    def check(self, signals: SignalFlag) -> None:
        """Raise Interrupted if a signal has arrived, in all processes at the same place."""

    def pause(self) -> None:
        """Synchronise with the other processes between two pieces of work."""

    def wait(self) -> None:
        """Keep the others waiting in `shared`; called now and then by the first process."""

    def shared(self, data: bytes | None) -> bytes | None:
        """Return the data of the first process."""

    def join(self, model: torch.nn.Module) -> None:
        """Give all processes the model of the first, and batch statistics over all processes."""

    def seed(self, seed: int, step: int) -> None:
        """Seed the generators of this process for a step, if it is not the only one."""

    def together(self, model: torch.nn.Module, done: Done) -> Done:
        """Return the results of all processes on a batch, gradients included."""

    def merged(self, *arrays: Any) -> None:
        """Fill in the numbers of other processes, for which arrays are 0 here."""

    def fabric_options(self) -> dict[str, Any]:
        """Return devices and strategy for Fabric."""


class Alone:
    """A single process: nothing to share or synchronise."""

    rank, count, here, counts, first = 0, 1, 1, True, True

    def agreed(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def check(self, signals: SignalFlag) -> None:
        """Raise Interrupted if a signal has arrived."""
        signals.check()

    def pause(self) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Do nothing."""

    def shared(self, data: bytes | None) -> bytes | None:
        """Return it unchanged."""
        return data

    def join(self, model: torch.nn.Module) -> None:
        """Do nothing."""

    def seed(self, seed: int, step: int) -> None:
        """Do nothing: generators continue."""

    def together(self, model: torch.nn.Module, done: Done) -> Done:  # noqa: ARG002 (what a group needs)
        """Return it unchanged."""
        return done

    def merged(self, *arrays: Any) -> None:
        """Do nothing."""

    def fabric_options(self) -> dict[str, Any]:
        """Return the options for one device."""
        # Otherwise Fabric detects it: if Slurm is installed it warns, and in a job it counts Slurm's tasks.
        return {"devices": 1, "plugins": LightningEnvironment()}


ALONE = Alone()


def shares_of(
    batches: Sequence[Indices], lengths: Callable[[], Indices], pad_to: int | None, who: Processes
) -> list[Share]:
    """Return this process's share of each batch; `lengths` returns those of the split, called if needed.

    Examples are dealt out one by one, so that shares differ by one at most, and no share of a batch that is
    sorted by length has all the long ones.
    """
    if who.count == 1:
        return [Share(batch, len(batch), len(batch), len(batch), pad_to) for batch in batches]
    return list(_dealt(batches, lengths(), pad_to, who))


def _dealt(
    batches: Sequence[Indices], lengths: Indices, pad_to: int | None, who: Processes
) -> Iterator[Share]:
    for batch in batches:
        mine = batch[who.rank :: who.count]
        # Results that depend on padding, such as `padding: paper`, must not depend on the shares.
        width = int(lengths[batch].max()) if pad_to is None else pad_to
        most = -(-len(batch) // who.count)
        yield Share(mine if len(mine) else batch[:1], len(mine), len(batch), most, width)
