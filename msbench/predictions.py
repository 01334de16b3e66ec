"""``predictions.parquet``: what a run predicted, a row per test example."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from msbench import store
from msbench.training.evaluate import Predictions


def write_predictions(path: Path, predictions: Predictions) -> None:
    """``predictions.parquet``: example number, label, predicted class, whether right, and all logits.

    With several labels an example, the first three stand for each class: ``label_0`` and so on.
    """
    given, decided = predictions.labels, predictions.decisions
    columns: dict[str, Any] = {"example": np.arange(len(given))}
    for name, values in {"label": given, "predicted": decided, "correct": decided == given}.items():
        columns |= by_class(name, values) if predictions.multi_label else {name: values}
    columns |= by_class("logit", predictions.logits)
    buffer = io.BytesIO()
    # Without checksums a flipped bit would be read as another answer.
    pd.DataFrame(columns).to_parquet(buffer, index=False, write_page_checksum=True)
    store.write_atomically(path, buffer.getvalue())


def by_class(name: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Columns ``name_0``, ``name_1``, ... of values (n, classes)."""
    return {f"{name}_{index}": column for index, column in enumerate(values.T)}
