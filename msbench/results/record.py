"""``run.json``: the record of a run, its fields, its reader and its writer.

A record may come from another machine. A bad value refused on reading costs one warning; a bad value let
through would break the whole table that uses it.
"""

import codecs
import hashlib
import json
import math
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from msbench.config.messages import describe_first_fault
from msbench.config.run import SECTIONS, Label, compute_spec_digest
from msbench.console import encodable
from msbench.errors import ConfigError, DamagedRecord
from msbench.results.files import parse_json, read_bytes, write_atomically

RUN_ID = re.compile(r"[0-9a-f]{12}")
RunId = Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]
MAPPINGS = ("git", "packages", "cudnn", "container")
"""Environment entries that are mappings themselves."""
LARGEST = 2**63


def check_plain(values: dict[str, Any], mappings: Iterable[str] = ()) -> dict[str, Any]:
    """Return `values` if all numbers are finite and integers fit in 64 bits.

    Raises ValueError for others, and where an entry named in `mappings` is no mapping.
    """
    for name in mappings:
        if not isinstance(values.get(name) or {}, dict):
            raise ValueError(f"{name} is not a mapping")
    if not _is_plain(values):
        raise ValueError("has a number that is not finite, or too large")
    return values


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, int):
        return abs(value) < LARGEST
    return not isinstance(value, float) or math.isfinite(value)


def check_environment(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` if its entries have the types that msbench writes; raise ValueError if not."""
    gpus = values.get("gpus") or []
    if not isinstance(gpus, list) or not all(isinstance(each, str) for each in gpus):
        raise ValueError("gpus is not a list of names")
    return check_plain(values, MAPPINGS)


Spec = Annotated[dict[str, Any], AfterValidator(partial(check_plain, mappings=SECTIONS))]
Environment = Annotated[dict[str, Any], AfterValidator(check_environment)]
# Strict: pydantic would otherwise convert true and "0.6" to the numbers 1.0 and 0.6.
Number = Annotated[FiniteFloat, Field(ge=-1e100, le=1e100, strict=True)]
"""A number that can be squared and summed without overflow."""
Duration = Annotated[FiniteFloat, Field(ge=0, le=1e15, strict=True)]
"""Seconds, or a rate per second."""
Fraction = Annotated[FiniteFloat, Field(ge=0, le=1, strict=True)]
Count = Annotated[int, Field(ge=0, lt=LARGEST, strict=True)]
Size = Annotated[int, Field(ge=1, lt=LARGEST, strict=True)]
"""The number of examples of a split: at least one, as there is no result on none."""

SCHEMA_VERSION = 1
"""Schema version of records. It is raised when a field changes its meaning, not when one is added."""
RuleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$")]
"""Name of a trivial rule, which tables, notes and CSV files show as it is."""
Status = Literal["finished", "diverged", "out-of-memory", "interrupted", "failed"]
Metric = Literal["accuracy", "macro-auroc"]
"""The metric that is the result of a run, set by its task."""


class StrictPart(BaseModel):
    """A part of a document; values keep their types, and unknown ones are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Failure(BaseModel):
    """The reason why a run has no result: exception name, message and, where known, step and tensor."""

    type: str
    message: str
    step: int | None = None
    name: str | None = None


class RunRecord(BaseModel):
    """The contents of ``run.json``. Accuracies and AUROCs are fractions; only a finished run has any.

    `metric` names the one that is the result, `chance` is its chance level, `baselines` are the results of
    trivial rules on the test split; `classes` are the names of the classes in the order of the predictions,
    where they have names. `data_notes` are differences of the data from the published ones, `data_remarks`
    are what the protocol drops or truncates of these.

    Read tolerantly: fields added by a later version are ignored, and fields missing in an earlier one take
    their default, so that old records stay in the tables. A record of a higher `schema_version` is not read:
    its fields may have another meaning. Names are valid folder names: none leads out of the results folder.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    run_id: RunId
    status: Status
    suite: Label
    task: Label
    model: Label
    seed: Count
    spec: Spec
    spec_digest: str
    data_digest: str
    data_notes: tuple[str, ...] = ()
    data_remarks: tuple[str, ...] = ()
    source_digest: str
    sources: dict[str, str] = {}
    metric: Metric = "accuracy"
    metrics: dict[str, Number] = {}
    n_test: Size | None = None
    chance: Fraction | None = None
    baselines: dict[RuleName, Fraction] = {}
    classes: tuple[str, ...] = ()
    parameters: Count | None = None
    states_per_channel: Count | None = None
    kernel: str | None = None
    kernel_digest: str | None = None
    steps: Count = 0
    timing: dict[str, Duration] = {}
    failure: Failure | None = None
    environment: Environment = {}
    started: str = ""
    ended: str = ""
    resumed: Count = 0
    attempts: list[dict[str, str]] = []

    @property
    def finished(self) -> bool:
        """True where the run has a result."""
        return self.status == "finished"

    @property
    def hardware(self) -> str:
        """The class of device that it ran on: ``cpu``, or the name of the GPU; empty where unknown."""
        device = str(self.environment.get("device", ""))
        gpus = self.environment.get("gpus") or [device]
        return str(gpus[0]) if device == "cuda" else device

    @property
    def seconds(self) -> float:
        """Seconds of training and testing."""
        return self.timing.get("train_seconds", 0.0) + self.timing.get("test_seconds", 0.0)

    @property
    def result(self) -> float | None:
        """The metric on the test split; None where the run has none."""
        return self.metrics.get(get_metric_key("test", self.metric))


def get_metric_key(split: str, metric: Metric) -> str:
    """Return the key of a metric on a split in records and logs, such as ``test_macro_auroc``."""
    return f"{split}_{metric.replace('-', '_')}"


def describe_scored_classes(record: RunRecord) -> str:
    """Return text such as ``over 31 of 71 classes``, of the test split; empty where none was left out."""
    if not (left_out := record.metrics.get("classes_left_out", 0)):
        return ""
    scored = record.metrics.get("classes_scored", 0)
    return f"over {scored:.0f} of {scored + left_out:.0f} classes"


def list_rules(record: RunRecord) -> dict[str, float]:
    """Return the trivial rules that the result must beat, as fractions; without any, chance is the rule."""
    chance = {} if record.chance is None else {"chance": record.chance}
    return record.baselines or chance


def compute_run_id(spec_digest: str, data_digest: str, source_digest: str) -> str:
    """Return the run id: twelve hex digits of a hash of the spec, data and source digests."""
    joined = "\n".join((spec_digest, data_digest, source_digest))
    return hashlib.sha256(joined.encode()).hexdigest()[:12]


def write_record(directory: Path, record: RunRecord) -> None:
    """Write ``run.json``."""
    write_atomically(directory / "run.json", encode_record(record))


def encode_record(record: RunRecord) -> bytes:
    """Return the bytes of ``run.json``: sorted keys, two spaces, no NaN, a newline at the end."""
    values = encodable(record.model_dump(mode="json", exclude_none=True))
    text = json.dumps(values, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
    return (text + "\n").encode()


def read_record(directory: Path) -> RunRecord | None:
    """Return the record of this folder, or None if the run has not ended.

    Raises DamagedRecord, naming the file, where ``run.json`` is no record, has a later schema, or
    contradicts itself: its id does not match its digests, or its digest its settings. Raises ConfigError
    where it cannot be read.
    """
    path = directory / "run.json"
    try:
        data = read_bytes(path).removeprefix(codecs.BOM_UTF8)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; choose another --results") from None
    try:
        record = RunRecord.model_validate_json(data)
    except ValidationError as error:
        raise DamagedRecord(f"{path}: {_explain_fault(data, error)}") from None
    if problem := _find_contradiction(record):
        raise DamagedRecord(f"{path}: contradicts itself: {problem}; train again with --fresh")
    return record


def _explain_fault(data: bytes, error: ValidationError) -> str:
    """Return the reason why this is no valid record, and the remedy."""
    try:
        version = parse_json(data)["schema_version"]
    except (ValueError, KeyError, TypeError):
        version = None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        known = f"has schema version {version!s:.20}, and this msbench reads up to {SCHEMA_VERSION}"
        return f"{known}: use a newer one, or train again with --fresh, which archives it"
    return f"not a run record: {describe_first_fault(error)}; delete it, or train again with --fresh"


def _find_contradiction(record: RunRecord) -> str:
    """Return a message on the first inconsistency within a record; empty if there is none.

    A run id is a hash, so an edit of the settings, the seed or a digest is detected.
    """
    labels = {"suite": record.suite, "task": record.task, "model_name": record.model, "seed": record.seed}
    for key, value in labels.items():
        if (given := record.spec.get(key)) != value or isinstance(given, bool):
            return f"{key} is {value!r}, in its settings {given!r:.80}"
    if (found := compute_spec_digest(record.spec)) != record.spec_digest:
        return f"its settings have the digest {found[:12]}, not {record.spec_digest[:12]}"
    if (
        found := compute_run_id(record.spec_digest, record.data_digest, record.source_digest)
    ) != record.run_id:
        return f"its digests give the run id {found}, not {record.run_id}"
    return ""
