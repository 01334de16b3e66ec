"""Measured mean mixing distances, stored in the folder of their run.

::

    results/<suite>/<task>/<model>/<run-id>/mixing/<any name>.json
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from msbench.results.files import read_bytes


class LayerDistances(BaseModel):
    """The distances of one layer: their mean, standard deviation and number."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    layer: int
    mean: FiniteFloat | None
    sd: FiniteFloat | None
    n: int


class Distances(BaseModel):
    """One measurement as stored in its file; read tolerantly, as records are.

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
    def counts(self) -> bool:
        """True where it is comparable with the paper's: of a trained model, with the default options."""
        return self.trained and self.default_options


def read_distances(run_folder: Path) -> tuple[list[Distances], list[str]]:
    """Return the measurements of this run, oldest first, and a warning for each unreadable file."""
    found: list[Distances] = []
    warnings: list[str] = []
    for path in sorted((run_folder / "mixing").glob("*.json")):
        try:
            measured = Distances.model_validate_json(read_bytes(path))
        except OSError as error:
            warnings.append(f"{path}: cannot be read: {error.strerror}")
        except ValidationError as error:
            detail = error.errors()[0]
            key = ".".join(map(str, detail["loc"])) or "the file"
            warnings.append(
                f"{path}: no mixing distances: {key}: {detail['msg']}; delete it, or measure again"
            )
        else:
            if measured.run_id == run_folder.name:
                found.append(measured)
            else:
                warnings.append(f"{path}: is of run {measured.run_id}, and not of the run beside it")
    return sorted(found, key=lambda each: each.created), warnings


def find_comparable(found: Sequence[Distances]) -> Distances | None:
    """Return the last measurement that counts, of those of one run, oldest first; None if there is none."""
    return next((each for each in reversed(found) if each.counts), None)
