"""Progress display of a run in training: a live bar at a terminal, a line per epoch elsewhere."""

import os
import sys
from typing import Self

from msbench.config import RunSpec
from msbench.console import muted, printable, say
from msbench.training.metrics import EpochRow
from msbench.training.state import StepReport


def name_of(spec: RunSpec) -> str:
    """Return the name of a run in messages."""
    return f"{spec.task} · {spec.model_name} · seed {spec.seed}"


class Quiet:
    """Listener that prints nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def step(self, report: StepReport) -> None:
        """Do nothing."""

    def epoch(self, row: EpochRow) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


class Lines(Quiet):
    """Listener that prints a line per epoch and a line per note: for logs and pipes."""

    def __init__(self, spec: RunSpec) -> None:
        self.name = name_of(spec)
        self.epochs = spec.train.epochs

    def epoch(self, row: EpochRow) -> None:
        """Print one line."""
        self.note(
            f"epoch {row.epoch + 1}/{self.epochs}, step {row.step}: train loss {row.train_loss:.4f}, "
            f"accuracy {row.train_accuracy:.2%}; validation {_validation(row)}; "
            f"{row.tokens_per_second:,.0f} tokens/s"
        )

    def note(self, text: str) -> None:
        """Print one line."""
        say(f"{self.name}: {text}")


class Bar(Lines):
    """Listener with a live bar (loss, accuracy, tokens/s, time left), and a line per epoch above it."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("{task.fields[name]}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )
        short = f"{spec.model_name} s{spec.seed}"
        self.task = self.bar.add_task("", name=short, figures="", total=None)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def step(self, report: StepReport) -> None:
        """Move the bar."""
        figures = (
            f"loss {report.loss:.3f} acc {report.accuracy:.1%} {report.tokens_per_second / 1e3:.1f}k tok/s"
        )
        self.bar.update(self.task, completed=report.step, total=report.total, figures=figures)

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        self.bar.console.print(printable(f"{self.name}: {text}"), markup=False, highlight=False)


def _validation(row: EpochRow) -> str:
    """Return the score that the best epoch is chosen by; an accuracy is shown without its name."""
    named = "" if row.validation_macro_auroc is None else "macro AUROC "
    return f"{named}{row.score:.2%}"


def listener_for(spec: RunSpec, *, quiet: bool) -> Quiet:
    """Return the listener that suits the destination of stderr."""
    if quiet or muted():
        return Quiet()
    # If the cursor cannot be moved, each update of a bar would be a new line.
    moving = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Bar(spec) if moving else Lines(spec)
