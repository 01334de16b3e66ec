"""Records with curves and predictions, made by hand."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from answers_file import write_answers
from least_record import LEAST

from msbench.reporting.outcomes import FoundRun
from msbench.results.metrics_log import write_log
from msbench.results.record import RunRecord, write_record
from msbench.training.evaluation import Predictions
from msbench.training.metrics import EpochRow

LABELS = np.arange(200) % 10


def keep(results: Path, run_id: str, **values: Any) -> FoundRun:
    """Write a finished record of suite ``s``, task ``t``, model ``m``, seed 0; `values` are fields of it."""
    record = RunRecord.model_validate(LEAST | {"run_id": run_id} | values)
    folder = results / record.suite / record.task / record.model / run_id
    write_record(folder, record)
    return FoundRun(record, folder)


def answered(results: Path, run_id: str, wrong: Sequence[int], **values: Any) -> FoundRun:
    """The same with predictions, of which those of the examples `wrong` are wrong, and their accuracy."""
    given = LABELS.copy()
    given[list(wrong)] = (given[list(wrong)] + 1) % 10
    right = 1 - len(wrong) / len(LABELS)
    found = keep(results, run_id, metrics={"test_accuracy": right}, n_test=len(LABELS), **values)
    logits = np.eye(10, dtype=np.float32)[given]
    write_answers(found.folder / "predictions.parquet", Predictions(logits, LABELS), run_id)
    return found


def ranked(results: Path, run_id: str, seed: int, noise: float, **values: Any) -> FoundRun:
    """A run of three labels an example, whose scores are the labels with noise, and its macro AUROC."""
    labels = (np.random.default_rng(0).random((150, 3)) < [0.5, 0.3, 0.1]).astype(np.int64)
    scores = labels + noise * np.random.default_rng(seed).normal(size=labels.shape)
    answers = Predictions(scores.astype(np.float32), labels)
    metrics = {"test_accuracy": answers.accuracy, "test_macro_auroc": answers.macro_auroc.value}
    found = keep(results, run_id, metrics=metrics, n_test=150, metric="macro-auroc", **values)
    write_answers(found.folder / "predictions.parquet", answers, run_id)
    return found


def write_curve(found: FoundRun, scores: Sequence[float]) -> None:
    """A ``metrics.csv`` with these validation scores."""
    auroc = found.record.metric == "macro-auroc"
    rows = [
        EpochRow(
            epoch, epoch, 0.1, 2 - score, score, 3 - score, score, 1.0, 1.0, 0.0, score if auroc else None
        )
        for epoch, score in enumerate(scores, 1)
    ]
    write_log(found.folder, [asdict(row) for row in rows])
