"""CSV and figures of documents as files."""

from collections.abc import Sequence
from pathlib import Path

from msbench.errors import ConfigError
from msbench.mixing import csv as csv_renderer
from msbench.mixing.document import Document
from msbench.store import write_atomically


def write(documents: Sequence[Document], out: Path, stem: str, *, csv: bool, figure: bool) -> list[Path]:
    """Write ``<stem>-mixing.csv``, and each figure as SVG, PDF and PNG, to the folder `out`; their paths.

    The folder is made where absent. ConfigError where it is a file or cannot be written to.
    """
    files: dict[str, bytes] = {}
    if csv:
        files[f"{stem}-mixing.csv"] = csv_renderer.long(documents)
    if figure:
        files |= _figures(documents, stem)
    if out.is_file():
        raise ConfigError(f"--out {out}: is a file, and must be a folder")
    for name, data in files.items():
        try:
            write_atomically(out / name, data)
        except OSError as error:
            raise ConfigError(f"{out / name}: cannot be written: {error.strerror}") from None
    return [out / name for name in files]


def _figures(documents: Sequence[Document], stem: str) -> dict[str, bytes]:
    from msbench.drawing import FORMATS
    from msbench.mixing import figure  # matplotlib takes longer to import than most measures to read

    return {
        f"{stem}-mixing-{name}.{form}": figure.render(documents, name, form)
        for name in figure.FIGURES
        for form in FORMATS
    }
