"""``results/baseline/<suite>.yaml``: recorded results that later runs must reproduce.

::

    suite: quick
    cells:
      listops-short:            # task
        mamba:                  # model
          cpu:                  # class of hardware; `any` stands for those without an entry
            metric: accuracy
            values: [0.527, 0.52, 0.531]    # fractions, one per seed
            ...
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from msbench.config.base import Config, Seed
from msbench.config.differences import format_yaml
from msbench.config.layers import LocatedValues, load_yaml, validate
from msbench.config.run import Label
from msbench.console import printable
from msbench.errors import suggest_name
from msbench.results.files import list_shared_folders
from msbench.results.record import Metric
from msbench.runs.suite import Suite
from msbench.runs.suite_file import Margin, Reason

ANY = "any"
"""The class of hardware that stands for all classes without an entry."""
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
HEAD = """\
# The results that `msbench check {suite}` expects, as fractions, one per seed. Only
# `msbench baseline {suite}` writes this file; edits by hand are detected.
"""


def explain_rate(value: float) -> str:
    """Return why a number is not a valid fraction; empty if it is."""
    if not math.isfinite(value):
        return "not a number"
    if 1 < value <= 100:
        return f"not a fraction from 0 to 1; is it a percentage? then it is {value / 100:.6g}"
    return "" if 0 <= value <= 1 else "not a fraction from 0 to 1"


def _check_rate(value: float) -> float:
    if problem := explain_rate(value):
        raise ValueError(f"{value:g} is {problem}")
    return value


Rate = Annotated[float, AfterValidator(_check_rate)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{12,64}$")]


class BaselineEntry(Config):
    """Results of the seeds of one model on one task and one class of hardware.

    `mean` and `sd` (of the sample; absent for one seed) are those of `values`; `data` and `source` are the
    digests of the data and of the code. `checksum` covers the entry and its place, and detects edits of
    either.
    """

    metric: Metric
    values: Annotated[tuple[Rate, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    n: int
    mean: Rate
    sd: Annotated[float, Field(ge=0)] | None = None
    n_test: Annotated[int, Field(ge=1)]
    data: Digest
    source: Digest
    margin: Margin
    reason: Reason
    date: str
    msbench: str
    checksum: str = ""


REWRITE = "a baseline is not edited by hand; 'msbench baseline SUITE' writes it"
Place = tuple[str, str, str]
"""Task, model and class of hardware."""
Cells = Mapping[str, Mapping[str, Mapping[str, BaselineEntry]]]
"""By task, model and class of hardware."""


class Baseline(Config):
    """A whole baseline file."""

    suite: Label
    cells: Annotated[dict[Label, dict[Label, dict[str, BaselineEntry]]], Field(min_length=1)]


def list_entries(cells: Cells) -> Iterator[tuple[Place, BaselineEntry]]:
    """Yield every entry of a baseline with its place."""
    for task, models in cells.items():
        for model, classes in models.items():
            for hardware, entry in classes.items():
                yield (task, model, hardware), entry


def find_baselines(results: Path, name: str) -> list[Path]:
    """Return all baselines of the suite; the first is used, and hides the others."""
    paths = [folder / f"{name}.yaml" for folder in list_shared_folders(results, "baseline")]
    found = {path.resolve(): path for path in reversed(paths) if path.is_file()}
    return list(reversed(found.values()))


def read_baseline(path: Path, suite: Suite) -> Baseline:
    """Return the baseline in this file; raises as `parse_baseline` does."""
    return parse_baseline(load_yaml(path), suite)


def parse_baseline(source: LocatedValues, suite: Suite) -> Baseline:
    """Parse the baseline in this document.

    Raises ConfigError, with file, line and nearest name, if it is invalid or of another suite.
    """
    found = validate(Baseline, source)
    if found.suite != suite.name:
        raise source.error(("suite",), f"is {found.suite!r}, but the checked suite is {suite.name!r}")
    for task, models in found.cells.items():
        _check_name(source, ("cells", task), "task", suite.tasks)
        for model, classes in models.items():
            _check_name(source, ("cells", task, model), "model", suite.models)
            if (task, model) not in suite.cells:
                problem = f"the suite does not list {model} for {task}: it would never be checked; {REWRITE}"
                raise source.error(("cells", task, model), problem)
            if not classes:
                raise source.error(("cells", task, model), f"has no class of hardware; {REWRITE}")
    for place, entry in list_entries(found.cells):
        if entry.checksum != compute_checksum(place, entry):
            raise source.error(("cells", *place), f"was edited: its checksum does not match; {REWRITE}")
    return found


def sign_entry(place: Place, values: Mapping[str, Any]) -> BaselineEntry:
    """Return an entry with its checksum. Raises ValidationError."""
    entry = BaselineEntry.model_validate(values)
    return entry.model_copy(update={"checksum": compute_checksum(place, entry)})


def compute_checksum(place: Place, entry: BaselineEntry) -> str:
    """Return sixteen hex digits of an entry and its place, which change with any edit."""
    values = [*place, entry.model_dump(mode="json", exclude={"checksum"}, exclude_none=True)]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_suite_name(path: Path) -> str:
    """Return the name of the suite that a file is the baseline of."""
    source = load_yaml(path)
    name = source.at().values.get("suite")
    if not isinstance(name, str):
        raise source.error(("suite",), "must name a suite")
    return name


def _check_name(source: LocatedValues, key: tuple[str, ...], kind: str, names: tuple[str, ...]) -> None:
    name = key[-1]
    if name not in names:
        raise source.error(key, f"the suite has no {kind} {name!r}{suggest_name(name, names)}; {REWRITE}")


def format_baseline(baseline: Baseline) -> str:
    """Return the file's content: the same for equal baselines."""
    values = baseline.model_dump(mode="json", exclude_none=True)
    return HEAD.format(suite=baseline.suite) + "".join(_format_lines(values))


def _format_lines(values: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping in YAML, with lists on one line."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield f"{indent}{_format_value(key)}:\n"
            yield from _format_lines(value, f"{indent}  ")
        else:
            yield f"{indent}{_format_value(key)}: {_format_value(value)}\n"


def _format_value(value: Any) -> str:
    """Return a value in YAML; a digest that looks like a number, such as 12e456, needs its quotes."""
    if isinstance(value, str) and not WORD.fullmatch(value):
        return printable(json.dumps(value, ensure_ascii=False))
    return format_yaml(value)
