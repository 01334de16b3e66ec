"""Documents of measured mean mixing distances, stored in the folder of their run.

::

    results/<suite>/<task>/<model>/<run-id>/mixing/<trained|untrained>-<options>.json

The name is unique for each set of options; on reading, any name counts.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from msbench.config.messages import describe_first_fault
from msbench.console import encodable
from msbench.errors import DamagedRecord
from msbench.results.files import parse_json, read_bytes, write_file
from msbench.results.record import Count, Number, StrictPart, check_plain

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


BEYOND = (1, 10, 100, 1000)
"""Distances, in positions, beyond which shares are reported."""
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Listed = Annotated[tuple[T, ...], Field(strict=False)]  # a list of JSON, which a strict tuple would refuse


def read_document(path: Path) -> MixingDocument | None:
    """Read a document, or return None if there is none; DamagedRecord, naming the file, if it is invalid."""
    try:
        return _read_values(path, WholeDocument)[0]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedRecord(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DamagedRecord(f"{path}: not a measure of mixing: {_explain(error)}; delete it") from None


def _read_values(path: Path, schema: type[M]) -> tuple[MixingDocument, M]:
    """Return the values of a document, and those of them that `schema` has. Raises OSError or ValueError."""
    found = encodable(parse_json(read_bytes(path)))
    valid = schema.model_validate(found)
    return check_plain(found), valid


def _check_distances(shares: dict[str, Any]) -> dict[str, Any]:
    if absent := [str(limit) for limit in BEYOND if str(limit) not in shares]:
        raise ValueError(f"has no share beyond {absent[0]}")
    return shares


def _explain(error: ValueError) -> str:
    return describe_first_fault(error) if isinstance(error, ValidationError) else str(error)


class _Statistics(StrictPart):
    mean: Number | None
    sd: Number | None
    n: Count


class LayerDistances(_Statistics):
    """The distances of one layer: their mean, standard deviation and number."""

    layer: Count


class Distances(StrictPart):
    """The summary of one document; read tolerantly, as records are.

    `mean` and `sd` are over layers, channels and `examples`, in tokens; the mean is None where no output
    depends on any input, and the deviation where there is a single number. `options` are the settings of the
    measurement, empty where the file has none.
    """

    schema_version: Literal[1]
    run_id: str
    trained: bool
    default_options: bool
    options_digest: str
    options: Mapping[str, Any] = {}
    mean: Number | None
    sd: Number | None
    layers: Listed[LayerDistances]
    examples: Count
    created: str

    @property
    def is_comparable(self) -> bool:
        """True where it is comparable with the paper's: of a trained model, with the default options."""
        return self.trained and self.default_options


class _Shares(StrictPart):
    """Mean shares of |J| beyond each distance of `BEYOND`."""

    beyond: Annotated[dict[str, Number | None], AfterValidator(_check_distances)]


class _Sequence(_Statistics, _Shares):
    example: Count
    sequence: Count
    length: Count
    zero_rows: Count


class _Profile(_Statistics, _Shares):
    """The statistics of a layer, and of all of them."""

    profile: Listed[Number | None]
    zero_rows: Count


class _WholeLayer(LayerDistances, _Profile):
    kind: str
    future_share: Number | None
    sequences: Listed[_Sequence]


class WholeDocument(Distances, _Profile):
    """A document with all that ``msbench mixing`` prints, draws and writes."""

    suite: str
    task: str
    model: str
    seed: Count
    epoch: Count | None
    causal: bool
    distribution: bool
    over: str
    layers: Annotated[Listed[_WholeLayer], Field(min_length=1)]
    profile_edges: Listed[Count]
    sequences: Count
    sequences_left_out: Count

    @model_validator(mode="after")
    def _check_bins(self) -> "WholeDocument":
        if any(len(each.profile) != len(self.profile_edges) for each in (self, *self.layers)):
            raise ValueError("a profile has not one value for each of profile_edges")
        return self


def read_distances(run_folder: Path) -> tuple[list[Distances], list[str]]:
    """Return the measurements of this run, oldest first, and a warning for each unreadable file."""
    found: list[Distances] = []
    warnings: list[str] = []
    for path in sorted((run_folder / FOLDER).glob("[!.]*.json")):
        try:
            _, measured = _read_values(path, Distances)
        except OSError as error:
            warnings.append(f"{path}: cannot be read: {error.strerror}")
        except ValueError as error:
            warnings.append(f"{path}: no mixing distances: {_explain(error)}; delete it, or measure again")
        else:
            if measured.run_id == run_folder.name:
                found.append(measured)
            else:
                warnings.append(f"{path}: belongs to run {measured.run_id}, not to the run of its folder")
    return sorted(found, key=lambda each: each.created), warnings


def find_comparable(found: Sequence[Distances]) -> Distances | None:
    """Return the last comparable measurement, of those of one run, oldest first; None if there is none."""
    return next((each for each in reversed(found) if each.is_comparable), None)
