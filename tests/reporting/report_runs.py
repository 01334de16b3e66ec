"""Small suites, specs and records, made by hand."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from msbench.config import RunSpec
from msbench.reporting.tables.build import build_table
from msbench.reporting.tables.cells import Report, Table
from msbench.reporting.tables.definitions import define_suite_table
from msbench.reporting.tables.load import ReportOptions, load_report
from msbench.reporting.tables.selection import SuiteRuns
from msbench.results.record import RunRecord
from msbench.results.reported import ReportedCell
from msbench.runs.suite import Suite
from msbench.runs.suite_file import Claim

RULES = {"majority": 0.17, "root operator only": 0.363}


@dataclass(frozen=True)
class PlannedRun:
    """A planned run; its digest is its place and seed."""

    task: str
    model_name: str
    seed: int = 0
    data: Mapping[str, Any] = field(default_factory=lambda: {"dataset": "listops"})

    @property
    def digest(self) -> str:
        return f"{self.task}/{self.model_name}/{self.seed}"

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {
            "suite": "small",
            "task": self.task,
            "model_name": self.model_name,
            "seed": self.seed,
            "data": dict(self.data),
            "model": {"layers": 2},
            "train": {"epochs": 10, "max_steps": None},
        }


@dataclass(frozen=True)
class SuiteReported:
    table: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class SmallSuite:
    name: str = "small"
    title: str = "Small ListOps"
    protocol: str = "scaled"
    caption: str = "Accuracy on the test split."
    reported: SuiteReported | None = None
    tasks: Sequence[str] = ()
    models: Sequence[str] = ()
    claims: Sequence[Claim] = ()
    cells: frozenset[tuple[str, str]] = frozenset()
    own_settings: frozenset[tuple[str, str]] = frozenset()


def run(spec: PlannedRun, value: float | None = 0.5, /, **changes: Any) -> RunRecord:
    """The finished run of `spec` with this accuracy, NaN too; `changes` are fields of the record."""
    identity = hashlib.sha256(f"{spec.digest} {value} {sorted(changes.items())}".encode()).hexdigest()[:12]
    values: dict[str, Any] = {
        "run_id": identity,
        "status": "finished",
        "suite": "small",
        "task": spec.task,
        "model": spec.model_name,
        "seed": spec.seed,
        "spec": spec.model_dump(mode="json"),
        "spec_digest": spec.digest,
        "data_digest": "data-1",
        "source_digest": "source-1",
        "n_test": 2000,
        "ended": "2026-01-01T00:00:00+00:00",
    }
    metrics = changes.pop("metrics", {} if value is None else {"test_accuracy": value})
    every = {**values, **changes}
    plain = {"run_id": "0" * 12, "suite": "s", "task": "t", "model": "m"}
    # A record that is read holds no NaN, and plain names alone; the tables must not lean on that.
    given = {"metrics": metrics, **{key: every[key] for key in plain}}
    return RunRecord(**{**every, **plain}).model_copy(update=given)


def printed(row: str, value: str, **changes: str) -> ReportedCell:
    """A reported cell of the table ``listops``."""
    values = {
        "table": "listops",
        "label": "tab:listops",
        "group": "SSMs",
        "row": row,
        "model": "",
        "column": "Accuracy (%)",
        "value": value,
        "sd": "",
        "unit": "percent",
        "source": "gu2023mamba; baselines: somewhere",
        "note": "",
    }
    return ReportedCell.model_validate({**values, **changes})


def build(
    specs: Sequence[PlannedRun],
    records: Iterable[RunRecord],
    reported: Iterable[ReportedCell] = (),
    suite: SmallSuite | None = None,
    **options: Any,
) -> Table:
    """The table of these runs; with reported cells the task ``listops`` stands under ``Accuracy (%)``."""
    cells = list(reported)
    head = SuiteReported("listops", {"listops": "Accuracy (%)"}) if cells else None
    runs = suite_runs(specs, records, suite or SmallSuite(reported=head))
    return build_table(define_suite_table(runs.suite), [runs], cells, **options)


def suite_runs(
    specs: Sequence[PlannedRun], records: Iterable[RunRecord], suite: SmallSuite | None = None
) -> SuiteRuns:
    """These runs as those of a suite that has their tasks and models."""
    tasks = tuple(dict.fromkeys(spec.task for spec in specs))
    models = tuple(dict.fromkeys(spec.model_name for spec in specs))
    suite = suite or SmallSuite()
    cells = suite.cells or frozenset((task, model) for task in tasks for model in models)
    suite = replace(suite, tasks=tasks, models=models, cells=cells)
    return SuiteRuns(as_suite(suite), [as_spec(spec) for spec in specs], list(records))


def as_spec(spec: PlannedRun) -> RunSpec:
    """The handmade run as the type that tables take; it has all that they need of one."""
    return cast(RunSpec, spec)


def as_suite(suite: SmallSuite) -> Suite:
    """The handmade suite as the type that tables take; it has all that they need of one."""
    return cast(Suite, suite)


def read_report(names: Sequence[str], results: Path, **options: Any) -> Report:
    """The report of these names, without tables of claims."""
    return load_report(ReportOptions(names=names, results=results, **{"claims": False, **options}))


ODD_NAMES = [
    *("None", "NA", "nan", "1e5", "007", "", " padded ", "a,b", 'say "no"', "two\nlines", "=1+1"),
    *("S4_D & 50%", "lra_listops", "C:\\runs\\a", "a~b", "x^2", "ends\\", "a_b$c", "#1 {x}"),
    *("[s4]_base", "a[/b]", "*star", "a--b", "MS-SSM→δ", "модель", "模型", "<tag>", "50%", "\x1b[1mbold"),
]
"""Names that readers and printers of tables have stumbled over."""
