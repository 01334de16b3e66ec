"""Records as a data frame of pandas: a row for each run, numbers as numbers, settings under dotted names."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from msbench.config.differences import flatten
from msbench.config.run import SECTIONS
from msbench.results import store
from msbench.results.record import RunRecord, get_metric_key

FIELDS = (
    *("run_id", "suite", "task", "model", "seed", "status", "metric", "result", "n_test", "chance"),
    *("parameters", "states_per_channel", "steps", "resumed", "hardware", "kernel"),
    *("data_digest", "source_digest", "started", "ended"),
)
"""Columns that are attributes of a record."""
MEASURES = (
    *("validation", "test_accuracy", "test_loss", "validation_accuracy", "best_epoch"),
    *("train_seconds", "tokens_per_second", "test_seconds"),
)
"""Columns of numbers that a run may lack."""
COLUMNS = (*FIELDS[:8], *MEASURES, *FIELDS[8:], "failure")
"""The first columns of every frame, also of one without runs; further metrics and the settings follow."""


def read_frame(folder: str | Path = "results", suite: str | None = None) -> pd.DataFrame:
    """Return the frame of all runs in a results folder, or of those of one suite.

    A record that cannot be read is left out, with a warning.
    """
    records, problems = store.read_records(Path(folder), suite)
    for text in problems:
        warnings.warn(text, stacklevel=3)
    return build_frame(records)


def build_frame(records: Iterable[RunRecord]) -> pd.DataFrame:
    """Return a row for each record, in their order.

    `result` is the `metric` on the test split and `validation` that of the best epoch; these, and all
    accuracies and AUROCs, are fractions. `train_seconds` and `test_seconds` are in seconds, `started` and
    `ended` are times in UTC. A missing number is NaN. Settings are in columns such as ``train.lr``; a setting
    that a run does not have is missing.
    """
    rows = [_list_values(record) for record in records]
    frame = pd.DataFrame(rows, columns=list(dict.fromkeys((*COLUMNS, *(key for row in rows for key in row)))))
    for name in (*MEASURES, "result", "n_test", "chance", "parameters", "states_per_channel"):
        frame[name] = pd.to_numeric(frame[name])
    for name in ("started", "ended"):
        frame[name] = pd.to_datetime(frame[name], utc=True, errors="coerce", format="ISO8601")
    return frame


def _list_values(record: RunRecord) -> dict[str, Any]:
    measures: dict[str, Any] = {**record.metrics, **record.timing}
    measures["validation"] = record.metrics.get(get_metric_key("validation", record.metric))
    failure = record.failure and f"{record.failure.type}: {record.failure.message}"
    settings = flatten({name: record.spec.get(name) for name in SECTIONS})
    return {**measures, **{name: getattr(record, name) for name in FIELDS}, "failure": failure, **settings}
