"""What there is: suites, models, datasets, runs; and one run in full."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msbench import agenda, data, models, store
from msbench.errors import ConfigError, UnknownName
from msbench.specs import DATASETS, MODELS
from msbench.store import RunRecord
from msbench.suite import available, plan

KINDS = ("suites", "models", "datasets", "runs")


@dataclass(frozen=True)
class Listing:
    """Rows under a header, and what could not be listed."""

    header: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    warnings: list[str] = field(default_factory=list)

    def as_dicts(self) -> list[dict[str, Any]]:
        """For ``--json``."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]


def listing(what: str, results: Path) -> Listing:
    """The listing that ``msbench list`` prints; UnknownName for anything but the four kinds."""
    match what:
        case "suites":
            return _suites()
        case "models":
            return _models()
        case "datasets":
            return _datasets()
        case "runs":
            return _runs(results)
    raise UnknownName("listing", what, KINDS)


def _suites() -> Listing:
    warnings: list[str] = []
    rows = [
        (suite.name, suite.protocol, len(plan(suite)), ", ".join(suite.tasks), suite.title)
        for suite in available(on_error=lambda error: warnings.append(str(error)))
    ]
    return Listing(("suite", "protocol", "runs", "tasks", "title"), rows, warnings)


def _models() -> Listing:
    rows = []
    for name, entry in MODELS.items():
        config, family = entry.config(**entry.preset), models.family(name)
        causal = "yes" if family.causal(config) else "no"
        kernel = family.kernel("cpu")
        rows.append((name, entry.family, family.states(config), causal, kernel, entry.summary))
    return Listing(("model", "family", "states", "causal", "kernel", "what"), rows)


def _datasets() -> Listing:
    root = data.data_root()
    rows = []
    for name, config in DATASETS.items():
        ready = "ready" if data.is_ready(config(dataset=name), root) else f"msbench setup {name}"
        rows.append((name, ready, str(root / name)))
    return Listing(("dataset", "state", "folder"), rows)


def _runs(results: Path) -> Listing:
    found, warnings = store.records(results)
    rows = [
        (
            record.run_id,
            record.suite,
            record.task,
            record.model,
            record.seed,
            record.status,
            _percent(record.metrics.get("test_accuracy")),
            record.ended,
        )
        for record in found
    ]
    header = ("run", "suite", "task", "model", "seed", "status", "test accuracy", "ended")
    return Listing(header, rows, warnings)


def find_run(results: Path, prefix: str) -> RunRecord:
    """The one record whose id starts with `prefix`; ConfigError where there is none or more than one."""
    matching = [record for record in store.records(results)[0] if record.run_id.startswith(prefix)]
    if not matching:
        raise ConfigError(f"{results}: no run {prefix!r}; `msbench list runs` shows what there is")
    if len({record.run_id for record in matching}) > 1:
        raise ConfigError(f"{prefix!r} is more than one run: {', '.join(r.run_id for r in matching)}")
    return matching[0]


def details(record: RunRecord) -> list[tuple[str, str]]:
    """All of a record as dotted keys and values."""
    values = record.model_dump(mode="json", exclude_none=True)
    return [(key, str(value)) for key, value in agenda.flatten(values)]


def _percent(fraction: float | None) -> str | None:
    return None if fraction is None else f"{fraction:.2%}"
