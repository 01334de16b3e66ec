"""The options of each verb are its parameters of the same names."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.analysis.determinism import DeterminismOptions
from msbench.analysis.mixing.options import MeasureOptions, MixingOptions
from msbench.cli import measure, reports, runs
from msbench.cli.app import collect
from msbench.gate.baselines import BaselineOptions
from msbench.gate.check import CheckOptions
from msbench.reporting.tables.load import ReportOptions
from msbench.runs.launchers import RunOptions


@pytest.mark.parametrize(
    ("verb", "options", "computed", "used"),
    [
        (runs.run, [RunOptions], set(), {"estimate"}),
        (reports.report, [ReportOptions], {"judge", "claims", "planned"}, {"against"}),
        (reports.check, [CheckOptions], set(), {"calibrate", "github", "junit"}),
        (reports.baseline, [BaselineOptions], set(), set()),
        (
            measure.mixing,
            [MixingOptions, MeasureOptions],
            {"measure", "trained", "data"},
            {"csv", "figure", "out", "untrained", "model", "task", "seed"},
        ),
        (measure.bench, [BenchmarkOptions], {"size"}, set("bdlmn")),
        (measure.doctor, [DeterminismOptions], set(), {"determinism"}),
    ],
)
def test_every_option_is_a_parameter_and_the_reverse(
    verb: Callable[..., None], options: list[type], computed: set[str], used: set[str]
) -> None:
    """`computed` are made of other parameters, `used` are read by the verb itself."""
    wanted = {name for each in options for name in inspect.signature(each).parameters} - computed
    assert set(inspect.signature(verb).parameters) == wanted | used | {"as_json"}


def test_unset_parameters_are_left_to_the_defaults() -> None:
    values: dict[str, Any] = {"suites": ["quick"], "results": Path("r"), "strict": True, "other": 1}
    assert collect(CheckOptions, {**values, "against": None}) == CheckOptions(
        suites=("quick",), results=Path("r"), strict=True
    )
