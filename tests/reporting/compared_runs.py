"""Finished runs on disk with the predictions that they were scored on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from answers_file import write_answers
from numpy.typing import NDArray
from report_runs import PlannedRun, run

from msbench.reporting.outcomes import FoundRun
from msbench.reporting.tables.cells import Report, Table
from msbench.results import store
from msbench.results.mixing_documents import read_distances
from msbench.results.record import RunRecord, write_record
from msbench.training.evaluation import Predictions


def answered(right: NDArray[np.bool_]) -> Predictions:
    """Two classes, labels in turn, and the answers that are right."""
    labels = np.arange(len(right)) % 2
    given = np.where(right, labels, 1 - labels)
    return Predictions(np.eye(2, dtype=np.float32)[given], labels)


def scored(n: int, skill: float, seed: int) -> Predictions:
    """Three classes that an example may have, the same for every seed, and scores that know them so well."""
    labels = (np.random.default_rng(0).random((n, 3)) < 0.3).astype(np.int64)
    noise = np.random.default_rng(seed).standard_normal(labels.shape)
    return Predictions((skill * labels + noise).astype(np.float32), labels)


def kept(
    results: Path,
    model: str,
    predictions: Predictions,
    seed: int = 0,
    properties: Mapping[str, NDArray[np.int64]] | None = None,
    **changes: Any,
) -> FoundRun:
    """Write the run of `model` that gave these predictions, as a run would; by default of an old version."""
    values: dict[str, Any] = {"test_accuracy": predictions.accuracy}
    if predictions.multi_label:
        changes = {"metric": "macro-auroc", **changes}
        values["test_macro_auroc"] = predictions.macro_auroc.value
    fields = {"n_test": len(predictions.labels), "metrics": values, **changes}
    record = run(PlannedRun("listops", model, seed), **fields)
    folder = results / record.suite / record.task / record.model / record.run_id
    write_record(folder, record)
    write_answers(folder / "predictions.parquet", predictions, record.run_id, properties)
    return FoundRun(record, folder)


def report_on(results: Path, *tables: Table) -> Report:
    """A report of these tables, on the runs in `results`."""
    records: dict[str, tuple[RunRecord, ...]] = {}
    for record in store.read_runs(results).records:
        records[record.run_id] = (*records.get(record.run_id, ()), record)
    report = Report(tables, results, records)
    folders = [(each, report.find_folder(of[0])) for each, of in records.items()]
    return replace(report, distances={each: read_distances(folder)[0] for each, folder in folders})


def right(n: int, rate: float, seed: int) -> NDArray[np.bool_]:
    """Which answers are right, at this rate."""
    return np.random.default_rng(seed).random(n) < rate
