"""The first tensor in which two trainings differ, bit by bit."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from msbench.analysis.determinism.trace import Moment, Tensors

Key = tuple[int, str]
WHEN = {
    "start": "before the first step",
    "step": "at step {}",
    "resume": "right after the resume at step {}",
    "end": "after the last step",
}


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
    kind: Literal["start", "step", "resume", "end"]
    name: str
    largest: float | None
    scale: float | None
    others: int = 0

    def __str__(self) -> str:
        much = "" if self.largest is None else f" by {self.largest:.1e} (it reaches {self.scale:.1e})"
        more = f"; {self.others} more differ there" if self.others else ""
        return f"{self.name} {WHEN[self.kind].format(self.step)}{much}{more}"


def first_difference(expected: Sequence[Moment], found: Iterable[Moment]) -> TensorDifference | None:
    """Return the first difference of `found` from `expected`; None if all bits are equal.

    The state after a resume is compared with the state after the step that it resumes from.
    """
    known: dict[Key, Moment] = {(moment.step, moment.kind): moment for moment in expected}
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
        if one is None or other is None or not same_bits(one, other):
            yield name, one, other


def same_bits(one: Tensor, other: Tensor) -> bool:
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
