"""The full state of a training at each step, for comparison with another training."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from msbench.training.checkpoint import optimizer_tensors
from msbench.training.loop import Trainer
from msbench.training.seeding import generator_states

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Moment:
    """Tensors at one moment, by name, in the order in which they are computed.

    `results` are the loss (mean of the epoch so far) and the gradients of a step, or what was evaluated at
    the end; `state` are parameters, buffers, optimiser and generators: all that the next step starts from.
    `step` counts steps from 1, and 0 is before the first.
    """

    step: int
    kind: Literal["start", "step", "resume", "end"]
    results: Tensors = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)


class Recorder:
    """Moments of one training, over all its attempts."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def watch(self, trainer: Trainer, then: Callable[[int], None] = lambda _step: None) -> None:
        """Record a trainer that has not run yet, and call `then` after each step."""

        def before_the_first(*_: Any) -> None:
            handle.remove()
            step = trainer.progress.step
            self.moments.append(Moment(step, "resume" if step else "start", state=state_of(trainer)))

        def after(step: int) -> None:
            results = dict(copied(_results(trainer)))
            self.moments.append(Moment(step, "step", results, state_of(trainer)))
            then(step)

        # Between a resume and its first step nothing else is called but the model itself.
        handle = trainer.module.register_forward_pre_hook(before_the_first)
        trainer.after_step = after

    def close(self, trainer: Trainer) -> None:
        """Record the evaluations of a trainer that has run."""
        rows = trainer.progress.rows
        losses = {f"validation loss of epoch {row['epoch']}": row["validation_loss"] for row in rows}
        results = {name: torch.tensor(value, dtype=torch.float64) for name, value in losses.items()}
        results["test logits"] = torch.as_tensor(trainer.test().logits)
        self.moments.append(Moment(trainer.progress.step, "end", results))


def state_of(trainer: Trainer) -> Tensors:
    """Copy everything that the next step starts from."""
    module = trainer.module
    named: Tensors = {f"parameter {name}": value for name, value in module.named_parameters()}
    named |= {f"buffer {name}": value for name, value in module.named_buffers()}
    optimizer = optimizer_tensors(module, trainer.optimizer.optimizer)
    named |= {name.replace("/", " ", 1): value for name, value in optimizer.items()}
    return dict(copied(named | _generators()))


def _results(trainer: Trainer) -> Tensors:
    gradients = {
        f"gradient of {name}": parameter.grad
        for name, parameter in trainer.module.named_parameters()
        if parameter.grad is not None
    }
    return {"loss": trainer.sums.loss / trainer.sums.seen, **gradients}


def _generators() -> Tensors:
    tensors, plain = generator_states()
    _, keys, *numpy = plain["numpy"]
    _, words, gauss = plain["python"]
    others = {"numpy": [*keys, *numpy], "python": [*words, gauss or 0.0]}
    named = {name.replace("rng/", "generator "): value for name, value in tensors.items()}
    return named | {
        f"generator {name}": torch.tensor(values, dtype=torch.float64) for name, values in others.items()
    }


def copied(tensors: Tensors) -> Iterator[tuple[str, Tensor]]:
    """Copy to the CPU, so that later steps do not change the values."""
    return ((name, value.detach().to("cpu", copy=True)) for name, value in tensors.items())
