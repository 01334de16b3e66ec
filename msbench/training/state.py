"""The state of a run in training, and its reports to a listener."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from msbench.training.metrics import EpochRow
from msbench.training.shares import Done


@dataclass(frozen=True)
class StepReport:
    """Position of training; `loss` and `accuracy` are running means of the epoch."""

    epoch: int
    epochs: int
    step: int
    total: int
    loss: float
    accuracy: float
    tokens_per_second: float


class Listener(Protocol):
    """Receiver of reports on training."""

    def step(self, report: StepReport) -> None:
        """Receive a report after a step, not necessarily after each."""

    def epoch(self, row: EpochRow) -> None:
        """Receive the row of each epoch, after its validation."""

    def note(self, text: str) -> None:
        """Receive a message of one line."""


@dataclass
class Sums:
    """Running sums of one epoch, on the device."""

    loss: torch.Tensor
    correct: torch.Tensor
    seen: int = 0
    tokens: int = 0
    positions: int = 0
    seconds: float = 0.0

    @classmethod
    def zero(cls, device: torch.device) -> "Sums":
        """Return sums of zero."""
        # MPS and some others lack float64; the sum of at most 1e5 losses is fine in float32 there.
        kind = torch.float64 if device.type in ("cpu", "cuda") else torch.float32
        return cls(
            torch.zeros((), dtype=kind, device=device), torch.zeros((), dtype=torch.int64, device=device)
        )

    def add(self, done: Done) -> None:
        """Add a batch."""
        self.loss += done.loss
        self.correct += done.correct
        self.seen += done.seen
        self.tokens += done.tokens
        self.positions += done.positions


@dataclass
class TrainingProgress:
    """Progress of a run: the part of its state that is plain JSON."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    resumes: int = 0
    attempts: list[dict[str, str]] = field(default_factory=list)
    best_epoch: int | None = None
    best_score: float = -1.0
    """The metric of the task on the validation split, at the best epoch so far."""
    train_seconds: float = 0.0
    train_tokens: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
