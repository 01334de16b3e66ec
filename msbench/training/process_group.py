"""Several processes that train one run together, each with a shard of every batch.

They meet after each step and between other pieces of work, in one all-reduce of a few numbers: what each has
computed, which signals have arrived, and whether one gives up. Data of other sizes (gradients, weights,
predictions) follow right after such a meeting, with nothing in between that could fail in one process alone:
so none waits for another that is not coming. Batch norm sums its statistics in the middle of a step in
all-reduces of the same size; a process that gives up there takes part in them until the others meet.
"""

import json
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, distributed, nn
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from msbench import errors
from msbench.errors import (
    CAUGHT,
    Diverged,
    ExitCode,
    Interrupted,
    Lost,
    MsbenchError,
    OutOfMemory,
    get_first_line,
)
from msbench.models.layers import MaskedBatchNorm
from msbench.training.memory import is_out_of_memory
from msbench.training.peers import SILENCE, PeerWatch
from msbench.training.processes import BatchResult, Processes
from msbench.training.seeding import derive_seed
from msbench.training.signals import SignalFlag

MEETING, LEAVING, WAITING, SIGNALS = 0, 1, 2, 3
HEADER = SIGNALS + len(CAUGHT)
"""Numbers ahead of the figures in a sum: counts of processes that meet, give up or wait, and of signals."""
FIGURES = 7
TIMEOUT = timedelta(minutes=30)
NOTICE = 10.0
"""Seconds that a process has to notice that its sums were aborted."""


class ElsewhereFailed(Exception):
    """An exception of another process that msbench has no class for; its traceback is a note."""


class _AnotherFailed(Exception):
    """Exception raised if another process gives up; `causes` are those of all processes."""

    def __init__(self, causes: Sequence[dict[str, Any] | None]) -> None:
        super().__init__()
        self.causes = causes


@dataclass(frozen=True)
class Rank:
    """Rank of this process; `local` counts the processes on this machine."""

    number: int
    count: int
    local: int


class SummingStrategy(DDPStrategy):
    """DDP without its wrapper, which sums gradients while they are being computed.

    There, a process that runs out of memory in the middle, or has no example, would leave the others waiting;
    `ProcessGroup.combine` sums all gradients at once when every process has its own.
    """

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        """Return the module itself."""
        return module


def make_fabric_options(rank: Rank) -> dict[str, Any]:
    """Return Fabric's options for the process group, which is created the first time."""
    found = SummingStrategy(cluster_environment=TorchElasticEnvironment(), timeout=TIMEOUT)
    return {"devices": rank.local, "num_nodes": rank.count // rank.local, "strategy": found}


class ProcessGroup(Processes):
    """Several processes over torch.distributed."""

    def __init__(self, rank: Rank, device: torch.device, signals: SignalFlag) -> None:
        self._place, self.rank, self.count, self.here = rank, rank.number, rank.count, rank.local
        self.device, self.signals = device, signals
        self.counts = True
        self.received: int | None = None
        """The signal that all processes know of."""
        self._buffer = torch.zeros(HEADER + FIGURES, dtype=torch.float64, device=device)
        self._waited = 0.0
        self._lost: Lost | None = None
        self._noticed = threading.Event()
        self._on_lost: Callable[[Lost], None] = lambda _error: None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """End this process inside the context, if another is gone: by Lost, or else at once."""
        with PeerWatch(self.rank, self.count, _connect_to_store, self._abort):
            yield

    @contextmanager
    def calling(self, on_lost: Callable[[Lost], None]) -> Iterator[None]:
        """See `Processes`."""
        before, self._on_lost = self._on_lost, on_lost
        try:
            yield
        finally:
            self._on_lost = before

    def _abort(self, reason: str) -> None:
        self._lost = Lost(f"{reason}; the same command goes on from the last checkpoint")
        # Before the abort, which may itself wait for ever.
        threading.Thread(target=self._end_unnoticed, args=(self._lost,), daemon=True).start()
        with suppress(RuntimeError):
            if (group := distributed.group.WORLD) is not None:
                group.abort()  # what waits on a GPU then returns; gloo's waiting does not

    def _end_unnoticed(self, lost: Lost) -> None:
        """End this process, after `calling`'s function, unless `check_peers` has raised by then."""
        if not self._noticed.wait(NOTICE):
            self._on_lost(lost)
            os._exit(ExitCode.RUN_FAILED)

    def check_peers(self) -> None:
        """Raise Lost if the group was aborted: the numbers of its last sums are then arbitrary."""
        if self._lost is not None:
            self._noticed.set()
            raise self._lost

    def fabric_options(self) -> dict[str, Any]:
        """Return devices and strategy for Fabric."""
        return make_fabric_options(self._place)

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """Raise in all processes what any one raises inside the context, of the same class if msbench has it.

        Raises Lost, without contacting the others, if the group is broken.
        """
        try:
            yield
            self.pause()
        except Lost:
            raise
        except _AnotherFailed as failure:
            raise rebuild_error(failure.causes) from None
        except Exception as error:
            self._leave(error)
            raise

    def check(self, signals: SignalFlag) -> None:  # noqa: ARG002 (one's own, which others may not know of)
        """Raise Interrupted if a signal has arrived anywhere and all processes know of it."""
        if self.received is not None:
            raise Interrupted(self.received)

    def pause(self) -> None:
        """Meet the other processes."""
        self._meet()

    def wait(self) -> None:
        """Meet the waiting processes, a few times a second at most."""
        if time.monotonic() - self._waited > 0.2:
            self._meet(waiting=True)
            self._waited = time.monotonic()
            self.check(self.signals)

    def broadcast(self, data: bytes | None) -> bytes | None:
        """Return the first process's data once it calls this; until then, meet each of its `wait` calls."""
        while self._meet()[WAITING] > 0:
            self.check(self.signals)
        size = torch.tensor([-1 if data is None else len(data)], device=self.device)
        self._do(distributed.broadcast, size, 0)
        if (length := int(size)) < 0:
            self.check_peers()
            return None
        values = torch.empty(length, dtype=torch.uint8, device=self.device)
        if self.first and data:
            values.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        self._do(distributed.broadcast, values, 0)
        found = values.cpu().numpy().tobytes()
        self.check_peers()
        return found

    def join(self, model: nn.Module) -> None:
        """Give all processes the model of the first; make batch norms use the whole batch."""
        norms = [part for part in model.modules() if isinstance(part, MaskedBatchNorm)]
        widest = max((2 * len(norm.weight) + 1 for norm in norms), default=0)
        self._meet()
        self._buffer = self._buffer.new_zeros(HEADER + max(FIGURES, widest))
        for norm in norms:
            norm.across = self
        for tensor in model.state_dict().values():
            whole = _view_real(tensor).contiguous()
            self._do(distributed.broadcast, whole, 0)
            _view_real(tensor).copy_(whole)

    def seed(self, seed: int, step: int) -> None:
        """Seed a separate stream for each process and step: a resumed run needs no stored state."""
        torch.manual_seed(derive_seed(seed, f"torch of process {self.rank} at step {step}"))

    def combine(self, model: nn.Module, result: BatchResult) -> BatchResult:
        """Return the sums over all processes; gradients become those of the whole batch."""
        gradients = [x.grad for x in model.parameters() if x.grad is not None]
        parts = [_view_real(x) for x in gradients]
        by_kind = {x.dtype: [part for part in parts if part.dtype == x.dtype] for x in parts}
        flat = {kind: torch.cat([x.flatten() for x in same]) for kind, same in by_kind.items()}
        sums: list[Tensor | float] = [result.loss, result.auxiliary, result.correct, result.mean]
        met = self._meet([*sums, result.seen, result.tokens, result.positions])
        for kind, same in by_kind.items():
            self._do(distributed.all_reduce, flat[kind])
            for part, total in zip(same, torch.split(flat[kind], [x.numel() for x in same]), strict=True):
                part.copy_(total.view_as(part))
        loss, auxiliary, correct, mean, *counts = met[HEADER : HEADER + FIGURES]
        return replace(
            result,
            mean=result.mean.new_tensor(mean),
            loss=result.loss.new_tensor(loss),
            auxiliary=result.auxiliary.new_tensor(auxiliary),
            correct=result.correct.new_tensor(int(correct)),
            **dict(zip(("seen", "tokens", "positions"), map(int, counts), strict=True)),
        )

    def merge(self, *arrays: Any) -> None:
        """Fill in the numbers of other processes, for which arrays are 0 here."""
        self._meet()
        for array in arrays:
            whole = torch.from_numpy(array).to(self.device)
            self._do(distributed.all_reduce, whole)
            array[:] = whole.cpu().numpy()
            self.check_peers()

    def total(self, x: Tensor) -> Tensor:
        """Return the sum of vectors (n,) of all processes; gradients are summed too."""
        summed: Tensor = _Total.apply(self, x)
        return summed

    def add(self, x: Tensor) -> Tensor:
        """Return the sum of vectors (n,), without gradients and without a check of the other processes."""
        self._buffer.zero_()
        self._buffer[HEADER : HEADER + len(x)] = x
        self._do(distributed.all_reduce, self._buffer)
        return self._buffer[HEADER : HEADER + len(x)].to(x.dtype)

    def _meet(self, figures: Sequence[Tensor | float] = (), *, waiting: bool = False) -> list[float]:
        found = self._exchange(MEETING, figures, waiting=waiting)
        if found[LEAVING] > 0:
            raise _AnotherFailed(self._causes(None))
        for number, count in zip(CAUGHT, found[SIGNALS:HEADER], strict=True):
            if count > 0 and self.received is None:
                self.received = number
        return found

    def _leave(self, error: Exception) -> None:
        """Notify the others, which may be in the middle of a step's sums; returns when all know."""
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
        self.check_peers()
        return numbers

    def _causes(self, error: Exception | None) -> list[dict[str, Any] | None]:
        """Return the reason why each process gives up, None for those that do not."""
        mine = json.dumps(None if error is None else encode_error(error, self.rank)).encode()
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
            self.check_peers()
            raise Lost(
                f"a process that trains along is gone ({get_first_line(error)[:200]});"
                " the same command goes on from the last checkpoint"
            ) from error


def _connect_to_store() -> Store:
    """Return a connection to the store at which the processes met."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(*place, is_master=False, timeout=timedelta(seconds=SILENCE))


def _view_real(x: Tensor) -> Tensor:
    """Return numbers that every backend can sum: of complex ones a view of both parts."""
    return torch.view_as_real(x) if x.is_complex() else x


class _Total(torch.autograd.Function):
    """A sum over processes: each contribution reaches the results of all, so gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, x: Tensor) -> Tensor:
        ctx.group = group
        return group.add(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, Tensor]:
        return None, ctx.group.add(g)


def encode_error(error: Exception, rank: int) -> dict[str, Any]:
    """Return an exception as plain values, so that nothing has to be unpickled."""
    found: dict[str, Any] = {"process": rank, "type": type(error).__name__, "text": str(error)}
    if isinstance(error, Interrupted):
        found["signal"] = error.number
    elif isinstance(error, Diverged):
        found |= {"step": error.step, "name": error.name, "value": repr(error.value)}
    elif is_out_of_memory(error):
        found["type"] = OutOfMemory.__name__
    elif not isinstance(error, MsbenchError):
        found["trace"] = "".join(traceback.format_exception(error))
    return found


def rebuild_error(causes: Sequence[dict[str, Any] | None]) -> Exception:
    """Return the exception of the first process that gave up."""
    cause = next(cause for cause in causes if cause is not None)
    where = f"process {cause['process']}"
    if "signal" in cause:
        return Interrupted(cause["signal"])
    if "step" in cause:
        return Diverged(cause["step"], cause["name"], float(cause["value"]))
    kind = getattr(errors, cause["type"], None)
    if isinstance(kind, type) and issubclass(kind, MsbenchError):
        # Its own __init__ may require more than the text, which is complete already.
        known = kind.__new__(kind)
        Exception.__init__(known, f"{where}: {cause['text']}")
        return known
    failed = ElsewhereFailed(f"{where}: {cause['type']}: {cause['text']}")
    failed.add_note(cause.get("trace", ""))
    return failed
