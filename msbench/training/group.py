"""Several processes that train one run together, each with a share of every batch.

They meet after each step and between other pieces of work, in one sum of a few numbers: what each has
computed, which signals have arrived, and whether one gives up. All that is of another size (gradients,
weights, predictions) comes right after such a meeting, with nothing in between that could fail in one process
alone: so none waits for another that is not coming. Batch norm adds up its statistics in the middle of
a step in sums of the very same size, which a process that gives up there answers until the others meet.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, distributed, nn

from msbench.errors import CAUGHT, Interrupted, Lost, first_line
from msbench.models.layers import MaskedBatchNorm
from msbench.training.causes import described, first_of
from msbench.training.seeding import derive
from msbench.training.shares import Done
from msbench.training.signals import SignalFlag

MEETING, LEAVING, WAITING, SIGNALS = 0, 1, 2, 3
HEADER = SIGNALS + len(CAUGHT)
"""Numbers ahead of what is added up: how many processes meet, give up or wait, and each signal."""
FIGURES = 6
TIMEOUT = timedelta(minutes=30)


class _Told(Exception):
    """Another process gives up; `causes` are theirs."""

    def __init__(self, causes: Sequence[dict[str, Any] | None]) -> None:
        super().__init__()
        self.causes = causes


@dataclass(frozen=True)
class Rank:
    """Which of the processes this is; `local` counts those on this machine."""

    number: int
    count: int
    local: int


class Strategy(DDPStrategy):
    """DDP without its wrapper, which sums gradients while they are being computed.

    There a process that runs out of memory in the middle, or has no example, would leave the others waiting;
    `ProcessGroup.together` sums all gradients at once when every process has its own.
    """

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        """The module itself."""
        return module


def strategy(rank: Rank) -> dict[str, Any]:
    """Options of Fabric for the process group that is there or, the first time, is made."""
    found = Strategy(cluster_environment=TorchElasticEnvironment(), timeout=TIMEOUT)
    return {"devices": rank.local, "num_nodes": rank.count // rank.local, "strategy": found}


class ProcessGroup:
    """`msbench.training.shares.Processes` over torch.distributed."""

    def __init__(self, rank: Rank, device: torch.device, signals: SignalFlag) -> None:
        self._place, self.rank, self.count, self.here = rank, rank.number, rank.count, rank.local
        self.device, self.signals = device, signals
        self.counts = True
        self.received: int | None = None
        """The signal that all processes know of."""
        self._buffer = torch.zeros(HEADER + FIGURES, dtype=torch.float64, device=device)
        self._waited = 0.0

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and prints."""
        return self.rank == 0

    def fabric_options(self) -> dict[str, Any]:
        """Devices and strategy for Fabric."""
        return strategy(self._place)

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """Inside, what one process raises all of them raise, of the same class where msbench has it.

        Raises Lost, without asking the others, where the group is broken.
        """
        try:
            yield
            self.pause()
        except Lost:
            raise
        except _Told as told:
            raise first_of(told.causes) from None
        except Exception as error:
            self._leave(error)
            raise

    def check(self, signals: SignalFlag) -> None:  # noqa: ARG002 (one's own, which others may not know of)
        """Raise Interrupted where a signal has arrived anywhere and all have been told."""
        if self.received is not None:
            raise Interrupted(self.received)

    def pause(self) -> None:
        """Meet."""
        self._meet()

    def wait(self) -> None:
        """Meet the waiting others, a few times a second at most."""
        if time.monotonic() - self._waited > 0.2:
            self._meet(waiting=True)
            self._waited = time.monotonic()
            self.check(self.signals)

    def shared(self, data: bytes | None) -> bytes | None:
        """What the first process gives, once it comes here; until then, each `wait` of its."""
        while self._meet()[WAITING] > 0:
            self.check(self.signals)
        size = torch.tensor([-1 if data is None else len(data)], device=self.device)
        self._do(distributed.broadcast, size, 0)
        if (length := int(size)) < 0:
            return None
        values = torch.empty(length, dtype=torch.uint8, device=self.device)
        if self.first and data:
            values.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        self._do(distributed.broadcast, values, 0)
        return values.cpu().numpy().tobytes()

    def join(self, model: nn.Module) -> None:
        """Give all processes the model of the first; make batch norms count all of a batch."""
        norms = [part for part in model.modules() if isinstance(part, MaskedBatchNorm)]
        widest = max((2 * len(norm.weight) + 1 for norm in norms), default=0)
        self._meet()
        self._buffer = self._buffer.new_zeros(HEADER + max(FIGURES, widest))
        for norm in norms:
            norm.across = self
        for tensor in model.state_dict().values():
            whole = _real(tensor).contiguous()
            self._do(distributed.broadcast, whole, 0)
            _real(tensor).copy_(whole)

    def seed(self, seed: int, step: int) -> None:
        """A stream of its own for each process and step: nothing to be kept for a resumed run."""
        torch.manual_seed(derive(seed, f"torch of process {self.rank} at step {step}"))

    def together(self, model: nn.Module, done: Done) -> Done:
        """The sums of all processes; gradients become those of the whole batch."""
        gradients = [x.grad for x in model.parameters() if x.grad is not None]
        parts = [_real(x) for x in gradients]
        by_kind = {x.dtype: [part for part in parts if part.dtype == x.dtype] for x in parts}
        flat = {kind: torch.cat([x.flatten() for x in same]) for kind, same in by_kind.items()}
        sums: list[Tensor | float] = [done.loss, done.correct, done.mean]
        met = self._meet([*sums, done.seen, done.tokens, done.positions])
        for kind, same in by_kind.items():
            self._do(distributed.all_reduce, flat[kind])
            for part, total in zip(same, torch.split(flat[kind], [x.numel() for x in same]), strict=True):
                part.copy_(total.view_as(part))
        loss, correct, mean, *counts = met[HEADER : HEADER + FIGURES]
        return replace(
            done,
            mean=done.mean.new_tensor(mean),
            loss=done.loss.new_tensor(loss),
            correct=done.correct.new_tensor(int(correct)),
            **dict(zip(("seen", "tokens", "positions"), map(int, counts), strict=True)),
        )

    def merged(self, *arrays: Any) -> None:
        """Fill arrays, 0 where another process has the numbers."""
        self._meet()
        for array in arrays:
            whole = torch.from_numpy(array).to(self.device)
            self._do(distributed.all_reduce, whole)
            array[:] = whole.cpu().numpy()

    def total(self, x: Tensor) -> Tensor:
        """The sum of vectors (n,) of all processes; gradients are summed too."""
        summed: Tensor = _Total.apply(self, x)
        return summed

    def add(self, x: Tensor) -> Tensor:
        """The sum of vectors (n,), without gradients; nobody is asked how it goes."""
        self._buffer.zero_()
        self._buffer[HEADER : HEADER + len(x)] = x
        self._do(distributed.all_reduce, self._buffer)
        return self._buffer[HEADER : HEADER + len(x)].to(x.dtype)

    def _meet(self, figures: Sequence[Tensor | float] = (), *, waiting: bool = False) -> list[float]:
        found = self._exchange(MEETING, figures, waiting=waiting)
        if found[LEAVING] > 0:
            raise _Told(self._causes(None))
        for number, count in zip(CAUGHT, found[SIGNALS:HEADER], strict=True):
            if count > 0 and self.received is None:
                self.received = number
        return found

    def _leave(self, error: Exception) -> None:
        """Tell the others, who may be in the middle of a step's sums; returns when all know."""
        while True:
            found = self._exchange(LEAVING)
            if found[MEETING] + found[LEAVING] == self.count:
                self._causes(error)
                return

    def _exchange(
        self, kind: int, figures: Sequence[Tensor | float] = (), *, waiting: bool = False
    ) -> list[float]:
        buffer = self._buffer.zero_()
        buffer[kind] = 1
        buffer[WAITING] = float(waiting)
        if self.signals.received is not None:
            buffer[SIGNALS + CAUGHT.index(self.signals.received)] = 1
        for place, figure in enumerate(figures):
            buffer[HEADER + place] = figure
        self._do(distributed.all_reduce, buffer)
        numbers: list[float] = buffer.tolist()
        return numbers

    def _causes(self, error: Exception | None) -> list[dict[str, Any] | None]:
        """Why each process gives up, None where it does not."""
        mine = json.dumps(None if error is None else described(error, self.rank)).encode()
        sizes = torch.zeros(self.count, dtype=torch.int64, device=self.device)
        sizes[self.rank] = len(mine)
        self._do(distributed.all_reduce, sizes)
        texts = torch.zeros(self.count, int(sizes.max()), dtype=torch.uint8, device=self.device)
        texts[self.rank, : len(mine)] = torch.tensor(list(mine), dtype=torch.uint8)
        self._do(distributed.all_reduce, texts)
        rows = zip(texts.cpu().numpy(), sizes.tolist(), strict=True)
        return [json.loads(row[:size].tobytes()) for row, size in rows]

    def _do(self, operation: Any, *arguments: Any) -> None:
        try:
            operation(*arguments)
        except RuntimeError as error:
            raise Lost(
                f"a process that trains along is gone ({first_line(error)[:200]});"
                " the same command goes on from the last checkpoint"
            ) from error


def _real(x: Tensor) -> Tensor:
    """Numbers that every backend can add up: of complex ones both parts, in place."""
    return torch.view_as_real(x) if x.is_complex() else x


class _Total(torch.autograd.Function):
    """A sum over processes: what each adds reaches the results of all, so gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, x: Tensor) -> Tensor:
        ctx.group = group
        return group.add(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, Tensor]:
        return None, ctx.group.add(g)
