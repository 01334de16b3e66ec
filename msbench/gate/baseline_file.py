"""``results/baseline/<suite>.yaml``: recorded results that later runs must reproduce.

::

    suite: quick
    cells:
      listops-short:            # task
        mamba:                  # model
          cpu:                  # class of hardware; `any` speaks for those that have no entry
            metric: accuracy
            values: [0.527, 0.52, 0.531]    # fractions, one a seed: whatever is derived can be derived again
            ...
"""

import datetime
import hashlib
import json
import math
import re
import statistics
from collections.abc import Mapping
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, model_validator

from msbench.config.base import Config, Seed
from msbench.config.layers import Located, validate
from msbench.config.run import Label
from msbench.errors import suggest_name
from msbench.gate.expectation import rate_problem
from msbench.results.record import Metric
from msbench.runs.suite import Suite
from msbench.runs.suite_gate import Margin, Reason
from msbench.stats import spread

ANY = "any"
"""The class of hardware that stands for all classes without an entry."""
TOLERANCE = 1e-9
"""Largest deviation of a printed mean or sd from that of its values, due to rounding."""
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
HEAD = """\
# What `msbench check {suite}` holds results against. `msbench baseline {suite}` writes it, on purpose only;
# nothing else does, and an edit of a number is found. Results are fractions, one a seed.
"""


def _rate(value: float) -> float:
    if problem := rate_problem(value):
        raise ValueError(f"{value:g} is {problem}")
    return value


def _date(text: str) -> str:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"must be a date such as 2026-01-31, not {text!r}") from None
    return text


Rate = Annotated[float, AfterValidator(_rate)]
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
    date: Annotated[str, AfterValidator(_date)]
    msbench: str
    checksum: str = ""

    @model_validator(mode="after")
    def _is_of_its_values(self) -> "BaselineEntry":
        count = len(self.values)
        if len(self.seeds) != count or self.n != count:
            raise ValueError(
                f"n is {self.n}, with {count} values and {len(self.seeds)} seeds: all must agree"
            )
        if len(set(self.seeds)) < count:
            raise ValueError("seeds: a seed is repeated")
        for name, told, found in (
            ("mean", self.mean, statistics.fmean(self.values)),
            ("sd", self.sd, spread(self.values)),
        ):
            if (told is None) != (found is None) or not math.isclose(
                told or 0, found or 0, abs_tol=TOLERANCE
            ):
                raise ValueError(f"{name} is {_shown(told)}, but values have {_shown(found)}: {REWRITE}")
        return self


REWRITE = "a baseline is not edited by hand; 'msbench baseline SUITE' writes it"
Place = tuple[str, str, str]
"""Task, model and class of hardware."""
Cells = Mapping[str, Mapping[str, Mapping[str, BaselineEntry]]]
"""By task, model and class of hardware."""


class Baseline(Config):
    """A whole baseline file."""

    suite: Label
    cells: Annotated[dict[Label, dict[Label, dict[str, BaselineEntry]]], Field(min_length=1)]


def parsed(source: Located, suite: Suite) -> Baseline:
    """Parse the baseline in this document.

    Raises ConfigError, with file, line and nearest name, if it is invalid or of another suite.
    """
    found = validate(Baseline, source)
    if found.suite != suite.name:
        raise source.error(("suite",), f"is {found.suite!r}, and what is checked is {suite.name!r}")
    for task, models in found.cells.items():
        _known(source, ("cells", task), "task", task, suite.tasks)
        for model, classes in models.items():
            _known(source, ("cells", task, model), "model", model, suite.models)
            if not classes:
                raise source.error(("cells", task, model), f"has no class of hardware; {REWRITE}")
            for kind, seen in classes.items():
                if seen.checksum != checksum((task, model, kind), seen):
                    raise source.error(
                        ("cells", task, model, kind),
                        f"is not as it was written (its checksum is another); {REWRITE}",
                    )
    return found


def signed(place: Place, values: Mapping[str, Any]) -> BaselineEntry:
    """Return an entry with its checksum. Raises ValidationError."""
    seen = BaselineEntry.model_validate(values)
    return seen.model_copy(update={"checksum": checksum(place, seen)})


def checksum(place: Place, seen: BaselineEntry) -> str:
    """Return sixteen hex digits of an entry and its place, which change with any edit."""
    values = [*place, seen.model_dump(mode="json", exclude={"checksum"}, exclude_none=True)]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def suite_name(source: Located) -> str:
    """Return the name of the suite that a document is a baseline of."""
    name = source.at().values.get("suite")
    if not isinstance(name, str):
        raise source.error(("suite",), "must name a suite")
    return name


def _known(source: Located, key: tuple[str, ...], kind: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise source.error(key, f"the suite has no {kind} {name!r}{suggest_name(name, names)}; {REWRITE}")


def text(baseline: Baseline) -> str:
    """Return the file's content: the same for equal baselines."""
    values: dict[str, Any] = baseline.model_dump(mode="json", exclude_none=True)
    body = yaml.dump(
        values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False
    )
    return HEAD.format(suite=baseline.suite) + body


class _Dumper(yaml.SafeDumper):
    """YAML with lists on one line, and quoted text: a digest may look like the number 12e456."""


def _list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)


def _str(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", data, style=None if PLAIN.fullmatch(data) else '"'
    )


_Dumper.add_representer(list, _list)
_Dumper.add_representer(str, _str)


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
