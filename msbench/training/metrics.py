"""The per-epoch log: rows live in the checkpoint, the CSV is rewritten whole from them."""

import csv
import io
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from msbench.store import write_atomically


@dataclass(frozen=True)
class EpochRow:
    """What one epoch gave. Accuracies are fractions; `tokens_per_second` counts real tokens only."""

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


def write_metrics(path: Path, rows: list[EpochRow]) -> None:
    """Write ``metrics.csv``: one header, a row an epoch, numbers unrounded."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [field.name for field in fields(EpochRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_atomically(path, buffer.getvalue().encode())
