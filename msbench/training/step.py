"""Gradients of one batch, computed at once or in pieces if memory is short."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from msbench.config import TrainConfig
from msbench.errors import Diverged, OutOfMemory
from msbench.models.classifier import Classifier
from msbench.training.feed import Fed, split_up
from msbench.training.memory import describe_memory_error, is_out_of_memory
from msbench.training.objective import decided, loss_of
from msbench.training.seeding import restore_torch_generators, torch_generator_states
from msbench.training.shares import Done, Share


class GradientComputer:
    """Computation of gradients of batches, of at most `size` examples at once (all, if it is None).

    With ``micro_batch: auto`` a batch that does not fit into memory is recomputed in pieces of half as many
    examples, and so are all later ones; `tell` is called with it. Gradients are the same up to rounding.
    """

    def __init__(
        self,
        fabric: Fabric,
        model: Callable[[Tensor, Tensor], Tensor],
        module: Classifier,
        config: TrainConfig,
        tell: Callable[[str, int], None],
    ) -> None:
        self.fabric, self.model, self.module, self.config, self.tell = fabric, model, module, config, tell
        self.auto = config.micro_batch == "auto"
        self.size = config.micro_batch if isinstance(config.micro_batch, int) else None
        self.recompute_above: float = math.inf

    def __call__(self, batch: Fed, share: Share) -> Done:
        """Set the parameters' gradients to those of a share's part in its batch's mean loss.

        Raises OutOfMemory if `auto` has nothing left to halve.
        """
        if not self.auto:
            return self._computed(batch, share)
        device = batch.inputs.device
        generators = torch_generator_states(device)
        while (done := self._tried(batch, share)) is None:
            # Outside of the handler, whose traceback keeps all computed tensors.
            self._halve(len(batch.labels))
            if device.type == "cuda":
                torch.cuda.empty_cache()
            restore_torch_generators(generators, device)
        return done

    def _tried(self, batch: Fed, share: Share) -> Done | None:
        try:
            return self._computed(batch, share)
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
        self.tell(
            f"out of memory: batches are computed {self.size} examples at a time from now on;"
            " results are the same but for rounding",
            self.size,
        )

    def _computed(self, batch: Fed, share: Share) -> Done:
        for parameter in self.module.parameters():
            parameter.grad = None
        pieces = (self._piece(piece, share) for piece in split_up(batch, self.size))
        done = next(pieces)
        for more in pieces:
            done = added(done, more)
        return done if share.examples else nothing(done)

    def _piece(self, batch: Fed, share: Share) -> Done:
        labels = batch.labels
        # If one process recomputed a batch norm and another did not, unrelated statistics would be summed: so
        # all decide by the largest share, whatever their own.
        largest = batch.positions // len(labels) * min(share.most, self.size or share.most)
        self.module.recompute_layers(on=largest > self.recompute_above)
        logits = self.model(batch.inputs, batch.lengths).float()
        loss = loss_of(logits, labels, self.config.loss)
        weight = len(labels) / share.whole if share.examples else 0.0
        weighed = loss if weight == 1 else loss * weight
        self.fabric.backward(weighed)
        return Done(
            mean=weighed.detach(),
            loss=loss.detach().double() * len(labels),
            correct=(decided(logits.detach(), labels.ndim == 2) == labels).sum(),
            seen=len(labels),
            tokens=batch.tokens,
            positions=batch.positions,
        )


def added(one: Done, other: Done) -> Done:
    """Return the sum of the results of two pieces of a batch."""
    return Done(
        one.mean + other.mean,
        one.loss + other.loss,
        one.correct + other.correct,
        one.seen + other.seen,
        one.tokens + other.tokens,
        one.positions + other.positions,
    )


def nothing(done: Done) -> Done:
    """Return the result of a stand-in, whose loss had no weight."""
    return replace(done, loss=done.loss * 0, correct=done.correct * 0, seen=0, tokens=0, positions=0)


@torch.no_grad()
def check_finite(model: nn.Module, loss: torch.Tensor, step: int) -> None:
    """Raise Diverged if the loss, a parameter, a buffer or a gradient is not finite.

    Called before the optimiser steps, which would spread one bad number over all parameters: so the name is
    that of the first bad parameter or buffer, else ``loss``, else a gradient. Costs one fused norm and one
    wait for the device; names are looked up only on failure.
    """
    tensors = [*model.parameters(), *(x for x in model.buffers() if x.is_floating_point())]
    gradients = [x.grad for x in model.parameters() if x.grad is not None]
    norms = torch.stack(torch._foreach_norm([*tensors, *gradients], math.inf))
    if bool((loss + norms.sum()).isfinite()):
        return
    named: list[tuple[str, torch.Tensor]] = [
        *model.named_parameters(),
        *model.named_buffers(),
        ("loss", loss),
    ]
    named += [(f"gradient of {name}", x.grad) for name, x in model.named_parameters() if x.grad is not None]
    for name, tensor in named:
        if bool((bad := ~tensor.isfinite()).any()):
            raise Diverged(step, name, float(tensor[bad][0]))
