"""Learning curves: ``metrics.csv`` read back, and thinned to fit on a screen."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msbench.errors import DataError
from msbench.results.files import read_bytes
from msbench.results.record import Metric, get_metric_key

ROWS = 12
"""The most epochs on a page; JSON documents have all."""
BAR = 28
"""Length of the longest bar in characters."""


@dataclass(frozen=True)
class Epoch:
    """The metrics of one epoch; `score` is that of the task on the validation split, a fraction."""

    epoch: int
    train_loss: float
    validation_loss: float
    score: float


def read_curve(folder: Path, metric: Metric) -> list[Epoch]:
    """Return the epochs of a run, none if it had none. Raises DataError if ``metrics.csv`` is invalid."""
    path, score = folder / "metrics.csv", get_metric_key("validation", metric)
    names = ("epoch", "train_loss", "validation_loss", score)
    try:
        stream = io.StringIO(read_bytes(path).decode(), newline="")
        rows = [[float(row[name]) for name in names] for row in csv.DictReader(stream)]
        return [Epoch(int(epoch), *values) for epoch, *values in rows]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, OverflowError, csv.Error) as error:
        raise DataError(f"{path}: not the metrics of a run: {error}") from None


def thinned(count: int, keep: Sequence[int] = (), rows: int = ROWS) -> list[int]:
    """Return indices of at most `rows` of `count` epochs: first, last, `keep`, others evenly between."""
    if count <= rows:
        return list(range(count))
    wanted = {index for index in keep if 0 <= index < count}
    even = rows - len(wanted - {0, count - 1})
    return sorted(wanted | {round(index * (count - 1) / (even - 1)) for index in range(even)})


def bar(value: float, low: float, high: float) -> str:
    """Return a bar of ``#`` for a value from `low` to `high`, of at least one mark to be visible."""
    share = (value - low) / (high - low) if high > low else 1.0
    return "#" * (1 + round(share * (BAR - 1)))
