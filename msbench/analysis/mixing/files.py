"""CSV and figures of documents as files."""

from collections.abc import Sequence
from pathlib import Path

from msbench.analysis.mixing import csv as csv_renderer
from msbench.analysis.mixing.document import Document
from msbench.results.files import write_files


def write(documents: Sequence[Document], out: Path, *, csv: bool, figure: bool) -> list[Path]:
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
        files[f"{stem}-mixing.csv"] = csv_renderer.long(documents)
    if figure:
        files |= _figures(documents, stem)
    return write_files(files, out)


def _figures(documents: Sequence[Document], stem: str) -> dict[str, bytes]:
    from msbench.analysis.mixing import figure  # matplotlib takes longer to import than most measures to read
    from msbench.reporting.figures.style import FORMATS

    return {
        f"{stem}-mixing-{name}.{form}": figure.render(documents, name, form)
        for name in figure.FIGURES
        for form in FORMATS
    }
