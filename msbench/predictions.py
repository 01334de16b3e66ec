"""``predictions.parquet``: what a run predicted, a row per test example."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from msbench import store

if TYPE_CHECKING:  # whoever reads such a file must not wait for torch
    from msbench.training.evaluate import Predictions

RUN_KEY = b"msbench.run"
"""Metadata of the file with the id of its run: copied to another folder, it is not read as that run's."""


def write_predictions(path: Path, predictions: "Predictions", run_id: str) -> None:
    """``predictions.parquet``: example number, label, predicted class, whether right, and all logits.

    With several labels an example, the first three stand for each class: ``label_0`` and so on.
    """
    import pandas as pd
    import pyarrow
    from pyarrow import parquet

    given, decided = predictions.labels, predictions.decisions
    columns: dict[str, Any] = {"example": np.arange(len(given))}
    for name, values in {"label": given, "predicted": decided, "correct": decided == given}.items():
        columns |= by_class(name, values) if predictions.multi_label else {name: values}
    columns |= by_class("logit", predictions.logits)
    table = pyarrow.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)
    table = table.replace_schema_metadata({**table.schema.metadata, RUN_KEY: run_id.encode()})
    buffer = io.BytesIO()
    # Without checksums a flipped bit would be read as another answer.
    parquet.write_table(table, buffer, write_page_checksum=True)
    store.write_atomically(path, buffer.getvalue())


def by_class(name: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Columns ``name_0``, ``name_1``, ... of values (n, classes)."""
    return {f"{name}_{index}": column for index, column in enumerate(values.T)}
