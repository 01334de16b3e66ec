"""``predictions.parquet``: the predictions of a run, a row per test example."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msbench.errors import DataError
from msbench.results.files import require_regular, write_atomically

FILE = "predictions.parquet"
MOST_ROWS = 2**24
"""Limit on rows: a few kilobytes of Parquet can encode arbitrarily many."""
OF_ANSWERS = ("example", "label", "predicted", "correct", "logit")
"""Columns, before an underscore, that are no properties of the examples."""
RUN_KEY = b"msbench.run"
"""Metadata key of the run id, so that a file copied to another run's folder is detected."""


def write_predictions(
    path: Path,
    run_id: str,
    *,
    labels: NDArray[np.int64],
    decisions: NDArray[np.int64],
    logits: NDArray[np.float32],
    properties: Mapping[str, NDArray[np.int64]],
) -> None:
    """Write example number, label, predicted class, correctness, all logits (n, classes) and properties (n,).

    `labels` and `decisions` are (n,), or (n, classes) of 0 and 1 where an example may have several labels:
    then they have a column for each class, ``label_0`` and so on. `properties` are columns of these names,
    such as ``length``, that accuracy can be reported by.
    """
    import pandas as pd
    import pyarrow
    from pyarrow import parquet

    columns: dict[str, Any] = {"example": np.arange(len(labels))}
    for name, values in {"label": labels, "predicted": decisions, "correct": decisions == labels}.items():
        columns |= split_classes(name, values) if labels.ndim == 2 else {name: values}
    columns |= split_classes("logit", logits)
    if taken := [name for name in properties if name.partition("_")[0] in OF_ANSWERS]:
        raise ValueError(
            f"property {taken[0]!r} of the examples has the name of another column of predictions"
        )
    columns |= properties
    table = pyarrow.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)
    table = table.replace_schema_metadata({**table.schema.metadata, RUN_KEY: run_id.encode()})
    buffer = io.BytesIO()
    # Without checksums a flipped bit would be read as another prediction.
    parquet.write_table(table, buffer, write_page_checksum=True)
    write_atomically(path, buffer.getvalue())


def split_classes(name: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return columns ``name_0``, ``name_1``, ... of values (n, classes)."""
    return {f"{name}_{index}": column for index, column in enumerate(values.T)}


def read_correct(folder: Path, run_id: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return labels (n,) and correctness (n,) of a run with one label per example.

    Raises DataError, naming the file, where it is absent, cannot be read, belongs to another run or has no
    such columns.
    """
    labels, correct = _read(folder / FILE, run_id, ["label", "correct"])
    return labels.astype(np.int64), correct


def read_examples(folder: Path, run_id: str) -> NDArray[np.int64]:
    """Return the number of each example (n,), in the order of the predictions.

    Raises DataError as `read_correct` does.
    """
    (examples,) = _read(folder / FILE, run_id, ["example"])
    return examples.astype(np.int64)


def read_scores(folder: Path, run_id: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return labels of 0 and 1 and logits, both (n, classes), of a run with several labels per example.

    Raises DataError as `read_correct` does.
    """
    path = folder / FILE
    classes = sum(name.startswith("label_") for name in _opened(path).schema_arrow.names) or 1
    columns = _read(
        path, run_id, [f"{kind}_{index}" for kind in ("label", "logit") for index in range(classes)]
    )
    labels, scores = np.stack(columns[:classes], axis=1), np.stack(columns[classes:], axis=1)
    return labels.astype(np.int64), scores.astype(np.float64)


def read_properties(folder: Path, run_id: str) -> dict[str, NDArray[np.int64]]:
    """Return the properties of the examples by name, each (n,); none in files of earlier versions.

    Raises DataError as `read_correct` does.
    """
    path = folder / FILE
    names = [name for name in _opened(path).schema_arrow.names if name.partition("_")[0] not in OF_ANSWERS]
    columns = zip(names, _read(path, run_id, names), strict=True)
    return {name: values.astype(np.int64) for name, values in columns}


def _read(path: Path, run_id: str, names: Sequence[str]) -> list[NDArray[Any]]:
    import pyarrow

    file = _opened(path)
    # Earlier versions wrote no id.
    written = (file.schema_arrow.metadata or {}).get(RUN_KEY)
    if written is not None and written != run_id.encode():
        raise DataError(
            f"{path}: belongs to run {written.decode(errors='backslashreplace')!r:.40}, not to {run_id};"
            " copy the right file here"
        )
    if (rows := file.metadata.num_rows) > MOST_ROWS:
        raise DataError(f"{path}: has {rows:,} rows, and no test split has more than {MOST_ROWS:,}")
    for name in names:
        if problem := _find_fault(file.schema_arrow, name):
            raise DataError(f"{path}: {problem}; train this run again with --fresh")
    try:
        table = file.read(columns=list(names))
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from None
    for name in names:
        if table.column(name).null_count:
            raise DataError(f"{path}: column {name!r} has gaps; train this run again with --fresh")
    return [table.column(name).to_numpy() for name in names]


def _find_fault(schema: Any, name: str) -> str:
    """Return why the column of this name is not as `write_predictions` writes it; empty if it is."""
    from pyarrow import types

    found = schema.get_all_field_indices(name)
    if len(found) != 1:
        return f"{'several columns' if found else 'no column'} {name!r}"
    kind, given = name.partition("_")[0], schema.field(found[0]).type
    # A conversion would succeed for much else, and make every text a correct prediction.
    is_kind = {"correct": types.is_boolean, "logit": types.is_floating}.get(kind, types.is_signed_integer)
    return "" if is_kind(given) else f"column {name!r} has values of type {given!s:.40}"


def _opened(path: Path) -> Any:
    import pyarrow
    from pyarrow import parquet

    try:
        require_regular(path)
        # Bytes: pyarrow encodes a str as UTF-8, and not every path is valid UTF-8.
        source = pyarrow.OSFile(os.fsencode(path))
        return parquet.ParquetFile(source, page_checksum_verification=True)
    except FileNotFoundError:
        raise DataError(
            f"{path}: missing, so predictions cannot be compared; copy it here, or train again with --fresh"
        ) from None
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    words = (getattr(error, "strerror", None) or str(error)).splitlines()
    first = words[0] if words else type(error).__name__
    # Operating system errors have a number and are not about the file's contents.
    remedy = "make it readable" if getattr(error, "errno", None) else "train this run again with --fresh"
    return DataError(f"{path}: cannot be read: {first}; {remedy}")
