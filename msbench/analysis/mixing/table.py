"""Documents as a table of plain text within 80 columns, as CSV, and as files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msbench import console
from msbench.analysis.mixing.options import MeasureOptions
from msbench.reporting.command import import_figures
from msbench.results.files import encode_csv, write_files
from msbench.results.mixing_documents import BEYOND, MixingDocument

HEADER = ("layer", "distance", "n", *(f">{limit}" for limit in BEYOND), "future")
RUN_COLUMNS = ("suite", "task", "model", "seed", "run_id", "trained", "options_digest", "default_options")
SEQUENCE_COLUMNS = ("example", "sequence", "length", "mean", "sd", "n", "zero_rows")
CSV_HEADER = (*RUN_COLUMNS, "layer", "kind", *SEQUENCE_COLUMNS, *(f"beyond_{limit}" for limit in BEYOND))


def print_documents(documents: Iterable[MixingDocument]) -> None:
    """Print each document's title, table and notes to stdout."""
    for index, document in enumerate(documents):
        if index:
            console.out("")
        console.out_rows(HEADER, format_rows(document), title=format_title(document))
        for line in list_notes(document):
            console.out(line)


def format_title(document: MixingDocument) -> str:
    """Return task, model, seed, run and state, and the options that differ from the default."""
    state = f"trained, epoch {document['epoch']}" if document["trained"] else "untrained"
    changed = [
        f"{key} {value}"
        for key, value in document["options"].items()
        if value != getattr(MeasureOptions(), key) and key != "examples"
    ]
    names = [document["task"], document["model"], f"seed {document['seed']}", document["run_id"], state]
    return " · ".join([*names, *changed])


def format_rows(document: MixingDocument) -> list[tuple[str, ...]]:
    """Return cells under `HEADER`: distances with standard deviation, shares of |J| beyond each distance."""
    layers = document["layers"]
    rows = [_row(str(layer["layer"] or "network"), layer, layer["future_share"]) for layer in layers]
    if len(rows) > 1:
        future = [layer["future_share"] for layer in layers if layer["future_share"] is not None]
        rows.append(_row("all", document, max(future, default=None)))
    return rows


def _row(name: str, found: Mapping[str, Any], future: float | None) -> tuple[str, ...]:
    distance = "--" if found["mean"] is None else f"{found['mean']:.2f}"
    if found["mean"] is not None and found["sd"] is not None:
        distance += f"±{found['sd']:.2f}"
    shares = (found["beyond"][str(limit)] for limit in BEYOND)
    cells = ("--" if share is None else f"{share:.1%}" for share in shares)
    return (name, distance, str(found["n"]), *cells, "--" if future is None else f"{future:.1g}")


def list_notes(document: MixingDocument) -> list[str]:
    """Return notes on the sample and on limitations of the numbers."""
    sequences, options = document["sequences"], document["options"]
    where = "the last position" if options["position"] is None else f"position {options['position']}"
    lines = [f"mean ± sd over {document['over']}; {sequences} test sequences, at {where}"]
    if document["zero_rows"]:
        lines.append(f"{document['zero_rows']:,} rows are zero everywhere and have no distance")
    if document["sequences_left_out"]:
        lines.append(f"{document['sequences_left_out']} sequences are too short and left out")
    if not document["distribution"]:
        lines.append("printed normaliser: signs cancel in it, so no row is a distribution over distances")
    if not document["causal"]:
        lines.append("not causal: distances are to both sides; only the past is before the last position")
    return lines


def write_outputs(documents: Sequence[MixingDocument], out: Path, *, csv: bool, figure: bool) -> list[Path]:
    """Write ``<suite>-mixing.csv``, and each figure as SVG, PDF and PNG, to `out`; return their paths.

    The documents are of one suite, and either all trained or all untrained; file names mark untrained ones.
    Without documents nothing is written. Raises ConfigError as `write_files` does.
    """
    if not documents:
        return []
    first = documents[0]
    stem = first["suite"] + ("" if first["trained"] else "-untrained")
    files: dict[str, bytes] = {}
    if csv:
        files[f"{stem}-mixing.csv"] = render_csv(documents)
    if figure:
        files |= _render_figures(documents, stem)
    return write_files(files, out)


def render_csv(documents: Sequence[MixingDocument]) -> bytes:
    """Return a row per layer and sequence, over its channels; unrounded, in UTF-8 with LF.

    Missing values are empty, truth values are ``true`` and ``false``.
    """
    rows = [
        (
            *(document[key] for key in RUN_COLUMNS),
            *(layer["layer"], layer["kind"]),
            *(sequence[key] for key in SEQUENCE_COLUMNS),
            *(sequence["beyond"][str(limit)] for limit in BEYOND),
        )
        for document in documents
        for layer in document["layers"]
        for sequence in layer["sequences"]
    ]
    return encode_csv(CSV_HEADER, rows)


def _render_figures(documents: Sequence[MixingDocument], stem: str) -> dict[str, bytes]:
    import_figures()
    from msbench.reporting.figures.mixing import DOCUMENT_FIGURES, render_documents
    from msbench.reporting.figures.style import FORMATS

    return {
        f"{stem}-mixing-{name}.{form}": render_documents(documents, name, form)
        for name in DOCUMENT_FIGURES
        for form in FORMATS
    }
