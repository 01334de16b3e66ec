"""Metrics of a run in training: running sums, rows within and after epochs, and the reports to a callback.

Rows are kept in the checkpoint, and the whole log is rewritten from them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from msbench.console import say

if TYPE_CHECKING:
    import torch

    from msbench.training.processes import BatchResult


@dataclass(frozen=True)
class EpochRow:
    """Metrics of one epoch. Accuracies and AUROCs are fractions; tokens per second exclude padding."""

    epoch: int
    step: int
    lr: float
    train_loss: float
    train_accuracy: float
    validation_loss: float
    validation_accuracy: float
    seconds: float
    tokens_per_second: float
    padding: float
    """Share of padded positions among all positions of the epoch's batches."""
    validation_macro_auroc: float | None = None
    """Set only if it is the metric of the task."""
    auxiliary_loss: float | None = None
    """The weighted auxiliary loss in training, not part of `train_loss`; set only if the model has one."""

    @property
    def score(self) -> float:
        """The score that the best epoch is chosen by: the metric of the task on the validation split."""
        auroc = self.validation_macro_auroc
        return self.validation_accuracy if auroc is None else auroc


@dataclass(frozen=True)
class StepRow:
    """Means over the steps of an epoch since its previous row, or since it began."""

    epoch: int
    step: int
    lr: float
    train_loss: float
    train_accuracy: float


@dataclass
class EpochSums:
    """Running sums of one epoch, on the device."""

    loss: "torch.Tensor"
    auxiliary: "torch.Tensor"
    correct: "torch.Tensor"
    seen: int = 0
    tokens: int = 0
    positions: int = 0
    seconds: float = 0.0

    @classmethod
    def make_zero(cls, device: "torch.device") -> "EpochSums":
        """Return sums of zero."""
        import torch

        # MPS and some others lack float64; the sum of at most 1e5 losses is fine in float32 there.
        kind = torch.float64 if device.type in ("cpu", "cuda") else torch.float32
        loss, auxiliary = (torch.zeros((), dtype=kind, device=device) for _ in range(2))
        return cls(loss, auxiliary, torch.zeros((), dtype=torch.int64, device=device))

    def add(self, result: "BatchResult") -> None:
        """Add a batch."""
        self.loss += result.loss
        self.auxiliary += result.auxiliary
        self.correct += result.correct
        self.seen += result.seen
        self.tokens += result.tokens
        self.positions += result.positions

    @property
    def tokens_per_second(self) -> float:
        """Tokens without padding per second."""
        return self.tokens / max(self.seconds, 1e-9)

    def compute_loss(self) -> float:
        """Return the mean loss of the examples so far."""
        return float(self.loss) / self.seen

    def compute_accuracy(self, decisions: int) -> float:
        """Return the share of correct decisions, of which an example has so many."""
        return int(self.correct) / (self.seen * decisions)


class StepLog:
    """The sums of an epoch after every `every`-th step.

    They stay on the device until `collect`, which is called where the device is waited for anyway.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self._pending: list[tuple[dict[str, Any], torch.Tensor]] = []

    def add(self, epoch: int, step: int, lr: float, sums: EpochSums) -> None:
        """Copy the sums after a step, if it has a row."""
        import torch

        if step % self.every == 0:
            copied = torch.stack((sums.loss, sums.correct.to(sums.loss.dtype)))
            self._pending.append(({"epoch": epoch, "step": step, "lr": lr, "seen": sums.seen}, copied))

    def collect(self) -> list[dict[str, Any]]:
        """Return what was added since the last call, as plain values that `list_step_rows` takes."""
        pending, self._pending = self._pending, []
        plain = [(values, copied.tolist()) for values, copied in pending]
        return [values | {"loss": loss, "correct": correct} for values, (loss, correct) in plain]


def list_step_rows(sums: Iterable[Mapping[str, Any]], decisions: int) -> Iterator[StepRow]:
    """Yield the rows of these sums, each over the whole epoch so far; an example has so many decisions."""
    before: Mapping[str, Any] = {}
    for now in sums:
        start = before if before.get("epoch") == now["epoch"] else dict.fromkeys(now, 0)
        loss, correct, seen = (now[name] - start[name] for name in ("loss", "correct", "seen"))
        yield StepRow(now["epoch"], now["step"], now["lr"], loss / seen, correct / (seen * decisions))
        before = now


@dataclass(frozen=True)
class StepReport:
    """Position of training; `loss` and `accuracy` are running means of the epoch.

    They are read from the device, which waits for its work, when a callback asks for them.
    """

    epoch: int
    epochs: int
    step: int
    total: int
    sums: EpochSums
    decisions: int

    @property
    def loss(self) -> float:
        """The mean loss."""
        return self.sums.compute_loss()

    @property
    def accuracy(self) -> float:
        """The share of correct decisions."""
        return self.sums.compute_accuracy(self.decisions)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of training."""
        return self.sums.tokens_per_second


class ProgressCallback:
    """Receiver of reports on the training of a run, and a context around it; this one prints nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def step(self, report: StepReport) -> None:
        """Receive a report after a step, not necessarily after each."""

    def epoch(self, row: EpochRow) -> None:
        """Receive the row of each epoch, after its validation."""

    def note(self, text: str) -> None:
        """Receive a message of one line."""

    def warn(self, text: str) -> None:
        """Receive a warning of one line, which is printed whether progress is shown or not."""
        say(f"msbench: {text}")


def describe_epoch(row: EpochRow, epochs: int) -> str:
    """Return an epoch's row as a line of progress, out of so many epochs."""
    # The score that the best epoch is chosen by; an accuracy is shown without its name.
    named = "" if row.validation_macro_auroc is None else "macro AUROC "
    return (
        f"epoch {row.epoch}/{epochs}, step {row.step}: train loss {row.train_loss:.4f}, "
        f"accuracy {row.train_accuracy:.2%}; validation {named}{row.score:.2%}; "
        f"{row.tokens_per_second:,.0f} tokens/s"
    )


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
    steps: list[dict[str, Any]] = field(default_factory=list)
    """The sums of a `StepLog`."""
