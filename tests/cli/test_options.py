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
    ("verb", "options", "computed"),
    [
        (runs.run, RunOptions, set()),
        (reports.report, ReportOptions, {"judge", "claims"}),
        (reports.check, CheckOptions, set()),
        (reports.baseline, BaselineOptions, set()),
        (measure.mixing, MixingOptions, {"measure", "trained"}),
        (measure.mixing, MeasureOptions, set()),
        (measure.bench, BenchmarkOptions, {"size"}),
        (measure.doctor, DeterminismOptions, set()),
    ],
)
def test_every_option_is_a_parameter(verb: Callable[..., None], options: type, computed: set[str]) -> None:
    wanted = set(inspect.signature(options).parameters) - computed
    assert wanted <= set(inspect.signature(verb).parameters)


def test_unset_parameters_are_left_to_the_defaults() -> None:
    values: dict[str, Any] = {"suites": ["quick"], "results": Path("r"), "strict": True, "other": 1}
    assert collect(CheckOptions, {**values, "against": None}) == CheckOptions(
        suites=("quick",), results=Path("r"), strict=True
    )
