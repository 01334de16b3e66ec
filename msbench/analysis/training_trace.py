"""The full state of a training at each step, and the first tensor in which two trainings differ."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from msbench.training.checkpoint import get_optimizer_tensors
from msbench.training.loop import Trainer
from msbench.training.seeding import get_generator_states

Tensors = dict[str, Tensor]
MomentKind = Literal["start", "step", "resume", "end"]
WHEN = {
    "start": "before the first step",
    "step": "at step {}",
    "resume": "right after the resume at step {}",
    "end": "after the last step",
}


@dataclass(frozen=True)
class Moment:
    """Tensors at one moment, by name, in the order in which they are computed.

    `results` are the loss (mean of the epoch so far) and the gradients of a step, or what was evaluated at
    the end; `state` are parameters, buffers, optimiser and generators: all that the next step starts from.
    `step` counts steps from 1, and 0 is before the first.
    """

    step: int
    kind: MomentKind
    results: Tensors = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)


class TraceRecorder:
    """Moments of one training, over all its attempts."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def watch(self, trainer: Trainer, then: Callable[[int], None] = lambda _step: None) -> None:
        """Record a trainer that has not run yet, and call `then` after each step."""

        def record_start(*_: Any) -> None:
            handle.remove()
            step = trainer.progress.step
            self.moments.append(Moment(step, "resume" if step else "start", state=copy_state(trainer)))

        def record_step(step: int) -> None:
            results = _copy(_get_results(trainer))
            self.moments.append(Moment(step, "step", results, copy_state(trainer)))
            then(step)

        # Between a resume and its first step nothing else is called but the model itself.
        handle = trainer.module.register_forward_pre_hook(record_start)
        trainer.after_step = record_step

    def record_evaluation(self, trainer: Trainer) -> None:
        """Record the evaluations of a trainer that has run."""
        rows = trainer.progress.rows
        losses = {f"validation loss of epoch {row['epoch']}": row["validation_loss"] for row in rows}
        results = {name: torch.tensor(value, dtype=torch.float64) for name, value in losses.items()}
        results["test logits"] = torch.as_tensor(trainer.test().logits)
        self.moments.append(Moment(trainer.progress.step, "end", results))


def copy_state(trainer: Trainer) -> Tensors:
    """Copy everything that the next step starts from."""
    module = trainer.module
    named: Tensors = {f"parameter {name}": value for name, value in module.named_parameters()}
    named |= {f"buffer {name}": value for name, value in module.named_buffers()}
    if trainer.average is not None:
        named |= {f"average {name}": value for name, value in trainer.average.state_dict().items()}
    generators, plain = get_generator_states()
    kept = get_optimizer_tensors(module, trainer.optimizer.optimizer)
    named |= {name.replace("/", " ", 1): value for name, value in kept.items()}
    named |= {name.replace("rng/", "generator "): value for name, value in generators.items()}
    _, keys, *numpy = plain["numpy"]
    _, words, gauss = plain["python"]
    for name, values in (("numpy", [*keys, *numpy]), ("python", [*words, gauss or 0.0])):
        named[f"generator {name}"] = torch.tensor(values, dtype=torch.float64)
    return _copy(named)


def _get_results(trainer: Trainer) -> Tensors:
    named = {"loss": trainer.sums.loss / trainer.sums.seen}
    for name, parameter in trainer.module.named_parameters():
        if parameter.grad is not None:
            named[f"gradient of {name}"] = parameter.grad
    return named


def _copy(tensors: Tensors) -> Tensors:
    """Copy to the CPU, so that later steps do not change the values."""
    return {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that differs, and when.

    Parameters
    ----------
    step : counted from 1; 0 before the first
    kind : that of the moment
    name : ``loss``, ``gradient of NAME``, ``parameter NAME``, ``buffer NAME``,
        ``optimizer NAME/KEY``, ``generator NAME``, ``validation loss of epoch N`` or ``test logits``
    largest : largest absolute difference; None if one of the two lacks the tensor, shapes differ, or values
        are not finite
    scale : largest absolute value in the first of the two
    others : number of other tensors that differ at this moment
    """

    step: int
    kind: MomentKind
    name: str
    largest: float | None
    scale: float | None
    others: int = 0

    def __str__(self) -> str:
        much = "" if self.largest is None else f" by {self.largest:.1e} (it reaches {self.scale:.1e})"
        more = f"; {self.others} more differ there" if self.others else ""
        return f"{self.name} {WHEN[self.kind].format(self.step)}{much}{more}"


def find_first_difference(expected: Sequence[Moment], found: Iterable[Moment]) -> TensorDifference | None:
    """Return the first difference of `found` from `expected`; None if all bits are equal.

    The state after a resume is compared with the state after the step that it resumes from.
    """
    known: dict[tuple[int, str], Moment] = {(moment.step, moment.kind): moment for moment in expected}
    for moment in found:
        resumed = moment.kind == "resume"
        reference = known[moment.step, "step" if resumed else moment.kind]
        differing = list(_differing(reference.state, moment.state))
        if not resumed:
            differing = [*_differing(reference.results, moment.results), *differing]
        if differing:
            name, ours, theirs = differing[0]
            return TensorDifference(moment.step, moment.kind, name, *_size(ours, theirs), len(differing) - 1)
    return None


def _differing(ours: Tensors, theirs: Tensors) -> Iterator[tuple[str, Tensor | None, Tensor | None]]:
    for name in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None or not has_same_bits(one, other):
            yield name, one, other


def has_same_bits(one: Tensor, other: Tensor) -> bool:
    """Return True if type, shape and every bit agree: unlike ==, 0 is not -0, and a NaN equals itself."""
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and torch.equal(*(x.reshape(-1).view(torch.uint8) for x in (one, other)))


def _size(ours: Tensor | None, theirs: Tensor | None) -> tuple[float | None, float | None]:
    """Return the largest absolute difference, and the largest absolute value of `ours`."""
    if ours is None or theirs is None or ours.shape != theirs.shape or not ours.numel():
        return None, None
    wide = torch.complex128 if ours.is_complex() else torch.float64
    one, other = ours.to(wide), theirs.to(wide)
    largest, scale = float((one - other).abs().max()), float(one.abs().max())
    return (largest, scale) if math.isfinite(largest + scale) else (None, None)
