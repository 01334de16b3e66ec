"""``metrics.csv``, rows within epochs and a row after each: its writer, and its reader.

Reading is tolerant, since a learning curve is no result.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msbench.config.base import LARGEST_COUNT
from msbench.results.files import encode_csv, read_bytes, write_atomically

FILE = "metrics.csv"
OF_EPOCHS = "validation_loss"
"""A column that rows within an epoch leave empty. Logs of earlier versions have no such rows."""
LARGEST_NUMBER = 1e100
"""Beyond it, a mean or the axis of a figure would overflow."""
LogRows = Sequence[Mapping[str, str]]
"""The rows of a ``metrics.csv`` as strings."""
NewRows = Sequence[Mapping[str, Any]]
"""Rows as they are written: numbers, and None where there is none."""
_followers: dict[Path, Callable[[NewRows], None]] = {}
"""What `follow_log` calls, by the folder of the log."""


def write_log(folder: Path, rows: NewRows) -> None:
    """Write the run's ``metrics.csv`` in the order of steps, an epoch's own row after those within it.

    It has one header, numbers unrounded, and no columns without values.
    """
    ordered = sorted(rows, key=lambda row: (row["step"], OF_EPOCHS in row))
    order = dict.fromkeys(name for row in ordered for name in row) | {OF_EPOCHS: None}
    known = {name for row in rows for name, value in row.items() if value is not None}
    names = [name for name in order if name in known or name == OF_EPOCHS]
    write_atomically(folder / FILE, encode_csv(names, ([row.get(name) for name in names] for row in ordered)))
    if (follower := _followers.get(folder)) is not None:
        follower(ordered)


@contextmanager
def follow_log(folder: Path, follower: Callable[[NewRows], None]) -> Iterator[None]:
    """Call `follower` with all rows of the run's log each time that it is written inside the context."""
    _followers[folder] = follower
    try:
        yield
    finally:
        del _followers[folder]


def read_log(folder: Path) -> tuple[LogRows, str]:
    """Return all rows of the run's ``metrics.csv``, and an error message if there are none."""
    path = folder / FILE
    try:
        stream = io.StringIO(read_bytes(path).decode("utf-8-sig"), newline="")
        rows = tuple(row for row in csv.DictReader(stream) if _has_epoch(row))
    except (OSError, ValueError, csv.Error) as error:
        return (), f"{path}: {getattr(error, 'strerror', None) or error}"
    return rows, "" if rows else f"{path}: no epoch in it"


def select_epochs(rows: LogRows) -> LogRows:
    """Return the rows of whole epochs."""
    return tuple(filter(is_whole, rows))


def is_whole(row: Mapping[str, str]) -> bool:
    """Return True for the row of a whole epoch."""
    return row.get(OF_EPOCHS) != ""


def _has_epoch(row: Mapping[str, str]) -> bool:
    epoch = parse_number(row, "epoch")
    return epoch is not None and 0 <= epoch < LARGEST_COUNT and epoch.is_integer()


def parse_number(row: Mapping[str, str], key: str) -> float | None:
    """Return a value of a row; None where it is absent, no number, or too large to be drawn."""
    try:
        value = float(row.get(key) or "nan")
    except ValueError:
        return None
    return value if abs(value) <= LARGEST_NUMBER else None
