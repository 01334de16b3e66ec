"""The loss of a batch and its gradients, computed at once or in pieces if memory is short."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional

from msbench.config import TrainConfig
from msbench.errors import Diverged, OutOfMemory
from msbench.models.classifier import Classifier
from msbench.training.batches import DeviceBatch, split_batch
from msbench.training.memory import describe_memory_error, is_out_of_memory
from msbench.training.processes import BatchResult, BatchShard
from msbench.training.seeding import get_torch_states, restore_torch_states


def compute_loss(logits: Tensor, labels: Tensor, kind: str, smoothing: float = 0.0) -> Tensor:
    """Return the mean loss of a batch: `logits` (b, classes) float32, `labels` (b,), or (b, classes).

    With (b, classes) of integers, several labels each, it is the binary cross entropy of every decision,
    whatever `kind`. Numbers that are no integers are shares of the one label.
    Of one label each, the share `smoothing` is spread evenly over all classes.
    """
    if labels.ndim == 2 and not labels.is_floating_point():
        return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    if kind == "double-softmax":
        logits = logits.softmax(dim=1)
    return functional.cross_entropy(logits, labels, label_smoothing=smoothing)


def decide(logits: Tensor, multi_label: bool) -> Tensor:
    """Decide logits (b, classes): return the class (b,), the first of equal ones, or 0 or 1 per class."""
    return (logits > 0).to(torch.int64) if multi_label else logits.argmax(dim=1)


class GradientComputer:
    """Computation of gradients of batches, of at most `size` examples at once (all, if it is None).

    With ``micro_batch: auto`` a batch that does not fit into memory is recomputed in pieces of half as many
    examples, and so are all later ones; `report` is called with it. Gradients are the same up to rounding.
    """

    def __init__(
        self,
        fabric: Fabric,
        model: Callable[[Tensor, Tensor], Tensor],
        module: Classifier,
        config: TrainConfig,
        report: Callable[[str, int], None],
    ) -> None:
        self.fabric, self.model, self.module, self.config, self.report = fabric, model, module, config, report
        self.auto = config.micro_batch == "auto"
        self.size = config.micro_batch if isinstance(config.micro_batch, int) else None
        self.count_recomputed: Callable[[int], int] = lambda _positions: 0
        """Returns the number of blocks to recompute for a batch of so many positions."""

    def __call__(self, batch: DeviceBatch, shard: BatchShard) -> BatchResult:
        """Set the parameters' gradients to those of a shard's part in its batch's mean loss.

        Raises OutOfMemory if `auto` has nothing left to halve.
        """
        if not self.auto:
            return self._compute(batch, shard)
        device = batch.inputs.device
        generators = get_torch_states(device)
        while (result := self._try(batch, shard)) is None:
            # Outside of the handler, whose traceback keeps all computed tensors.
            self._halve(len(batch.labels))
            if device.type == "cuda":
                torch.cuda.empty_cache()
            restore_torch_states(generators, device)
        return result

    def _try(self, batch: DeviceBatch, shard: BatchShard) -> BatchResult | None:
        try:
            return self._compute(batch, shard)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._check_halving(len(batch.labels), error)
        return None

    def _check_halving(self, examples: int, error: Exception) -> None:
        if self.module.has_batch_norm:
            raise OutOfMemory(
                f"{describe_memory_error(error)}; train.micro_batch cannot help: batch norm takes its"
                " statistics over all of a batch (model.norm layer or rms does not)"
            )
        if min(self.size or examples, examples) == 1:
            raise OutOfMemory(f"not enough memory for a single example: {describe_memory_error(error)}")

    def _halve(self, examples: int) -> None:
        self.size = -(-min(self.size or examples, examples) // 2)
        self.report(
            f"out of memory: batches are computed {self.size} examples at a time from now on;"
            " results are the same but for rounding",
            self.size,
        )

    def _compute(self, batch: DeviceBatch, shard: BatchShard) -> BatchResult:
        for parameter in self.module.parameters():
            parameter.grad = None
        pieces = (self._compute_piece(piece, shard) for piece in split_batch(batch, self.size))
        result = next(pieces)
        for more in pieces:
            result = add_results(result, more)
        return result if shard.examples else make_zero(result)

    def _compute_piece(self, batch: DeviceBatch, shard: BatchShard) -> BatchResult:
        labels = batch.labels
        # If one process recomputed a batch norm and another did not, unrelated statistics would be summed: so
        # all decide by the largest shard, whatever their own.
        largest = batch.positions // len(labels) * min(shard.most, self.size or shard.most)
        self.module.recompute_layers(self.count_recomputed(largest))
        logits = self.model(batch.inputs, batch.lengths).float()
        targets = labels if batch.targets is None else batch.targets
        loss = compute_loss(logits, targets, self.config.loss, self.config.label_smoothing)
        auxiliary = self.module.take_auxiliary_loss()
        total = loss if auxiliary is None else loss + auxiliary
        weight = len(labels) / shard.whole if shard.examples else 0.0
        weighted = total if weight == 1 else total * weight
        self.fabric.backward(weighted)
        return BatchResult(
            mean=weighted.detach(),
            loss=loss.detach().double() * len(labels),
            auxiliary=torch.zeros_like(loss) if auxiliary is None else auxiliary.detach() * len(labels),
            correct=(decide(logits.detach(), labels.ndim == 2) == labels).sum(),
            seen=len(labels),
            tokens=batch.tokens,
            positions=batch.positions,
        )


def add_results(one: BatchResult, other: BatchResult) -> BatchResult:
    """Return the sum of the results of two pieces of a batch."""
    names = [field.name for field in fields(BatchResult)]
    return BatchResult(**{name: getattr(one, name) + getattr(other, name) for name in names})


def make_zero(result: BatchResult) -> BatchResult:
    """Return the result of a stand-in, whose loss had no weight."""
    zeros = {name: getattr(result, name) * 0 for name in ("loss", "auxiliary", "correct")}
    return replace(result, **zeros, seen=0, tokens=0, positions=0)


class FiniteCheck:
    """The check of every step that its loss and all numbers of the model are finite, before the weights move.

    On a CPU it is `check_finite`. On a GPU that would wait for all work of the step; there the optimiser
    leaves the weights as they are if the device finds a bad number, and the host reads which one it was after
    it has launched forward and backward of the next step (`finish`).
    """

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, *, late: bool) -> None:
        """Prepare for a `late` check, as on a GPU, or not. Only a fused optimiser reads ``found_inf``."""
        self.module, self.optimizer, self.late = module, optimizer, late
        self._pending: _PendingCheck | None = None

    def start(self, loss: Tensor, step: int) -> None:
        """Check a step; raise Diverged, if late only in `finish`, which must come before the next check."""
        if not self.late:
            check_finite(self.module, loss, step)
            return
        numbers = list_numbers(self.module, loss)
        norms = compute_norms(numbers)
        self.optimizer.found_inf = norms.isfinite().all().logical_not().float()  # type: ignore[attr-defined]
        copy = norms.to("cpu", non_blocking=True)
        arrived = torch.cuda.Event() if norms.is_cuda else None  # type: ignore[no-untyped-call]
        if arrived is not None:
            arrived.record()
        self._pending = _PendingCheck(step, [name for name, _ in numbers], copy, arrived)

    def finish(self) -> None:
        """Wait for the check that was started last, if any; raise Diverged if it found a bad number."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.finish()


@dataclass(frozen=True)
class _PendingCheck:
    """A step, and the magnitudes of its numbers on their way to the host."""

    step: int
    names: list[str]
    norms: Tensor
    arrived: torch.cuda.Event | None

    def finish(self) -> None:
        if self.arrived is not None:
            self.arrived.synchronize()
        for name, norm in zip(self.names, self.norms.tolist(), strict=True):
            if not math.isfinite(norm):
                raise Diverged(self.step, name, norm)


def check_finite(model: nn.Module, loss: Tensor, step: int) -> None:
    """Raise Diverged if the loss, a parameter, a buffer or a gradient is not finite.

    Called before the optimiser steps, which would spread one bad number over all parameters. Costs one fused
    norm and one wait for the device; names are looked up only on failure.
    """
    numbers = list_numbers(model, loss)
    if bool(compute_norms(numbers).isfinite().all()):
        return
    for name, tensor in numbers:
        if bool((bad := ~tensor.isfinite()).any()):
            raise Diverged(step, name, float(tensor[bad][0]))


def list_numbers(model: nn.Module, loss: Tensor) -> list[tuple[str, Tensor]]:
    """Return what has to be finite, by name: the first bad one is the cause of those after it."""
    parameters = [(name, x.detach()) for name, x in model.named_parameters()]
    buffers = [(name, x) for name, x in model.named_buffers() if x.is_floating_point()]
    gradients = [
        (f"gradient of {name}", x.grad) for name, x in model.named_parameters() if x.grad is not None
    ]
    return [*parameters, *buffers, ("loss", loss), *gradients]


def compute_norms(numbers: list[tuple[str, Tensor]]) -> Tensor:
    """Return the largest magnitude of each tensor, in one operation for all."""
    return torch.stack(torch._foreach_norm([x for _, x in numbers], math.inf))
