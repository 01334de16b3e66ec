"""Documents of measured mean mixing distances, stored in the folder of their run.

::

    results/<suite>/<task>/<model>/<run-id>/mixing/<trained|untrained>-<options>.json

The name is unique for each set of options; on reading, any name counts.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from msbench.config.messages import describe_first_fault
from msbench.console import encodable
from msbench.errors import DamagedRecord
from msbench.results.files import parse_json, read_bytes, write_file

SCHEMA_VERSION = 1
FOLDER = "mixing"

MixingDocument = dict[str, Any]
"""A whole document, as JSON values."""


def document_path(run_folder: Path, options_digest: str, *, trained: bool) -> Path:
    """Return the path of the document of a run with these options of the measure."""
    return run_folder / FOLDER / f"{'trained' if trained else 'untrained'}-{options_digest[:12]}.json"


def write_document(path: Path, document: MixingDocument) -> None:
    """Write the whole document or nothing; sorted keys, two spaces, no NaN, a newline at the end.

    Raises ConfigError if it cannot be written.
    """
    text = json.dumps(encodable(document), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
    write_file(path, (text + "\n").encode(), "--results")


def read_document(path: Path) -> MixingDocument | None:
    """Read a document, or return None if there is none; DamagedRecord, naming the file, if it is invalid."""
    try:
        found = encodable(parse_json(read_bytes(path)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedRecord(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DamagedRecord(f"{path}: not a measure of mixing: {error}; delete it") from None
    if not isinstance(found, dict) or found.get("schema_version") != SCHEMA_VERSION:
        raise DamagedRecord(f"{path}: not a measure of mixing of version {SCHEMA_VERSION}; delete it")
    return found


class LayerDistances(BaseModel):
    """The distances of one layer: their mean, standard deviation and number."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    layer: int
    mean: FiniteFloat | None
    sd: FiniteFloat | None
    n: int


class Distances(BaseModel):
    """The summary of one document; read tolerantly, as records are.

    `mean` and `sd` are over layers, channels and `examples`, in tokens; the mean is None where no output
    depends on any input, and the deviation where there is a single number. `options` are the settings of the
    measurement, empty where the file has none.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1]
    run_id: str
    trained: bool
    default_options: bool
    options_digest: str
    options: Mapping[str, Any] = {}
    mean: FiniteFloat | None
    sd: FiniteFloat | None
    layers: tuple[LayerDistances, ...]
    examples: int
    created: str

    @property
    def is_comparable(self) -> bool:
        """True where it is comparable with the paper's: of a trained model, with the default options."""
        return self.trained and self.default_options


def read_distances(run_folder: Path) -> tuple[list[Distances], list[str]]:
    """Return the measurements of this run, oldest first, and a warning for each unreadable file."""
    found: list[Distances] = []
    warnings: list[str] = []
    for path in sorted((run_folder / FOLDER).glob("[!.]*.json")):
        try:
            measured = Distances.model_validate_json(read_bytes(path))
        except OSError as error:
            warnings.append(f"{path}: cannot be read: {error.strerror}")
        except ValidationError as error:
            fault = describe_first_fault(error)
            warnings.append(f"{path}: no mixing distances: {fault}; delete it, or measure again")
        else:
            if measured.run_id == run_folder.name:
                found.append(measured)
            else:
                warnings.append(f"{path}: belongs to run {measured.run_id}, not to the run of its folder")
    return sorted(found, key=lambda each: each.created), warnings


def find_comparable(found: Sequence[Distances]) -> Distances | None:
    """Return the last comparable measurement, of those of one run, oldest first; None if there is none."""
    return next((each for each in reversed(found) if each.is_comparable), None)
