"""Documents of ``msbench bench --out``: measured times and the conditions of the measurement, as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, ValidationError

from msbench.config.messages import describe_first_fault
from msbench.console import encodable
from msbench.results.files import parse_json, read_bytes, write_file
from msbench.results.record import Count, Size, StrictPart, check_plain

SCHEMA = "msbench-bench"
VERSION = 1
TIMED = ("forward", "forward_backward", "step", "open", "epoch")
"""Keys of the times of a row, in any benchmark."""

BenchmarkDocument = dict[str, Any]
"""A whole document, as JSON values."""
Seconds = Annotated[FiniteFloat, Field(gt=0, le=1e15)]


class _Times(StrictPart):
    median: Seconds
    p20: Seconds
    p80: Seconds


class _TimedRow(StrictPart):
    size: Mapping[str, Size] = {}
    peak_bytes: Count | None = None
    forward: _Times | None = None
    forward_backward: _Times | None = None
    step: _Times | None = None
    open: _Times | None = None
    epoch: _Times | None = None


class _Row(_TimedRow):
    name: str
    status: str
    label: str = ""
    reason: str | None = None
    shape: str = ""


class _Table(StrictPart):
    engine: str
    varied: str
    rows: list[_TimedRow]


class _Device(StrictPart):
    type: str
    name: str


class _Document(StrictPart):
    """The fields of a document that a comparison and a figure read."""

    device: _Device | None = None
    threads: Count | None = None
    ended: str = ""
    size: dict[str, Size] | None = None
    rows: list[_Row]
    scaling: list[_Table] | None = None


def write_document(path: Path, found: Mapping[str, Any]) -> None:
    """Write the whole document or nothing; ConfigError if it cannot be written."""
    text = json.dumps(encodable(found), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_file(path, (text + "\n").encode(), "--out")


def read_document(path: Path, what: str) -> BenchmarkDocument:
    """Read a document of the benchmark `what`. Raises OSError or ValueError if the file is not one."""
    try:
        found = encodable(parse_json(read_bytes(path)))
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise ValueError("not written by `msbench bench --out`")
    if (version := found.get("schema_version")) != VERSION:
        raise ValueError(
            f"schema version {version!s:.40}, this is {VERSION}; measure again with this msbench"
        )
    if found.get("what") != what:
        raise ValueError(f"of `bench {found.get('what')!s:.40}`, not of `bench {what}`")
    try:
        _Document.model_validate(found)
    except ValidationError as error:
        raise ValueError(f"not a benchmark: {describe_first_fault(error)}") from None
    return check_plain(found)
