"""Documents as CSV: one row per layer and sequence, over its channels; unrounded."""

import csv
import io
from collections.abc import Sequence

from msbench.analysis.mixing.distance import BEYOND
from msbench.analysis.mixing.document import Document

RUN = ("suite", "task", "model", "seed", "run_id", "trained", "options_digest", "default_options")
SEQUENCE = ("example", "sequence", "length", "mean", "sd", "n", "zero_rows")
HEADER = (*RUN, "layer", "kind", *SEQUENCE, *(f"beyond_{limit}" for limit in BEYOND))


def long(documents: Sequence[Document]) -> bytes:
    """Return UTF-8 with LF; missing values are empty, truth values are ``true`` and ``false``."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEADER)
    for document in documents:
        run = [document[key] for key in RUN]
        for layer in document["layers"]:
            for found in layer["sequences"]:
                shares = [found["beyond"][str(limit)] for limit in BEYOND]
                values = [*run, layer["layer"], layer["kind"], *(found[key] for key in SEQUENCE), *shares]
                writer.writerow(map(_field, values))
    return buffer.getvalue().encode()


def _field(value: object) -> str:
    """Return the shortest text that reads back as the same value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)
