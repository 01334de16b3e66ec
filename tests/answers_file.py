"""Predictions of a run on disk, for tests."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msbench.results.predictions import write_predictions
from msbench.training.evaluation import Predictions


def write_answers(
    path: Path,
    predictions: Predictions,
    run_id: str,
    properties: Mapping[str, NDArray[np.int64]] | None = None,
) -> None:
    """Write ``predictions.parquet`` of a run."""
    write_predictions(
        path,
        run_id,
        labels=predictions.labels,
        decisions=predictions.decisions,
        logits=predictions.logits,
        properties=properties or {},
    )
