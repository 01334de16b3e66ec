"""Predictions of a run on disk, for tests."""

from pathlib import Path

from msbench.results.predictions import write_predictions
from msbench.training.evaluation import Predictions


def write_answers(path: Path, predictions: Predictions, run_id: str) -> None:
    """Write ``predictions.parquet`` of a run."""
    write_predictions(
        path,
        run_id,
        labels=predictions.labels,
        decisions=predictions.decisions,
        logits=predictions.logits,
    )
