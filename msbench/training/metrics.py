"""The per-epoch log: rows are kept in the checkpoint, and the whole CSV is rewritten from them."""

from dataclasses import dataclass, fields
from pathlib import Path

from msbench.results.files import encode_csv, write_atomically


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

    @property
    def score(self) -> float:
        """The score that the best epoch is chosen by: the metric of the task on the validation split."""
        auroc = self.validation_macro_auroc
        return self.validation_accuracy if auroc is None else auroc


def write_metrics(path: Path, rows: list[EpochRow]) -> None:
    """Write ``metrics.csv``: one header, a row per epoch, numbers unrounded; no columns without values."""
    names = [field.name for field in fields(EpochRow)]
    names = [name for name in names if any(getattr(row, name) is not None for row in rows)]
    write_atomically(path, encode_csv(names, ([getattr(row, name) for name in names] for row in rows)))
