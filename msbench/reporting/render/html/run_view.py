"""A run as the template shows it: its outcome, and everything that its result depends on."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msbench.config.differences import flatten
from msbench.reporting.render.html.chart import Chart, Line, chart
from msbench.reporting.render.html.gather import RunSection, key
from msbench.reporting.tables.cells import UNIT_OF_METRIC, UNITS
from msbench.results.metrics_log import Epochs, parse_number
from msbench.results.record import RunRecord
from msbench.runs.reproduce import Again

Facts = Sequence[tuple[str, str]]
LABELS = ("suite", "task", "model_name", "seed")
"""Settings that are in the heading of a run."""


@dataclass(frozen=True)
class Shared:
    """Facts that several runs have in common, shown once."""

    anchor: str
    title: str
    facts: Facts
    runs: int


@dataclass(frozen=True)
class RunView:
    """A run, ready to be shown. `result` is empty where it has none."""

    anchor: str
    record: RunRecord
    result: str
    again: Again
    charts: tuple[Chart, ...]
    sections: tuple[tuple[str, Facts], ...]
    environment: Shared
    sources: Shared
    cells: tuple[tuple[str, str], ...] = ()
    """The cells that use the run: id and label."""

    @property
    def place(self) -> str:
        """The suite and task of the run."""
        return f"{self.record.suite} / {self.record.task}"


def run_views(runs: Iterable[RunSection]) -> list[RunView]:
    """Return the views of all runs in order; runs with the same environment or sources share one object."""
    runs = list(runs)
    records = [run.record for run in runs]
    environments = _shared("environment", "Environment", [record.environment for record in records])
    sources = _shared("source", "Source files", [record.sources for record in records])
    return [_view(*each) for each in zip(runs, environments, sources, strict=True)]


def _shared(name: str, title: str, groups: Sequence[Mapping[str, Any]]) -> list[Shared]:
    """Return for each mapping its `Shared`, numbered in the order of first occurrence."""
    keys = [json.dumps(group, sort_keys=True, default=str) for group in groups]
    sizes = Counter(keys)
    order = {key: at + 1 for at, key in enumerate(sizes)}
    made = {
        key: Shared(f"{name}-{order[key]}", f"{title} {order[key]}", facts(group), sizes[key])
        for key, group in dict(zip(keys, groups, strict=True)).items()
    }
    return [made[key] for key in keys]


def facts(values: Mapping[str, Any]) -> Facts:
    """Return dotted keys and values as texts: strings unchanged, all else as JSON."""
    return [(key, text(value)) for key, value in flatten(values).items() if value != {}]


def text(value: Any) -> str:
    """Return a value of a record as text: a string unchanged, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _view(run: RunSection, environment: Shared, sources: Shared) -> RunView:
    record = run.record
    sections = [
        ("Result", _result(record)),
        ("Failure", facts(record.failure.model_dump(exclude_none=True)) if record.failure else ()),
        ("Settings", facts({key: value for key, value in record.spec.items() if key not in LABELS})),
        ("Data", _data(record)),
        ("Training", _training(record)),
        ("Identity", _identity(record)),
    ]
    return RunView(
        run.anchor,
        record,
        _headline(record),
        run.again,
        _charts(run.epochs, record),
        tuple((title, found) for title, found in sections if found),
        environment,
        sources,
    )


def _headline(record: RunRecord) -> str:
    """Return the result in the unit of its metric, such as ``85.57 % accuracy``."""
    if record.result is None or not record.finished:
        return ""
    unit = UNITS[UNIT_OF_METRIC["test"][record.metric]]
    return f"{record.result * unit.scale:.{unit.digits}f} % {record.metric}"


def _result(record: RunRecord) -> Facts:
    sizes = {"metric": record.metric, "n_test": record.n_test, "chance": record.chance}
    known = {key: value for key, value in sizes.items() if value is not None}
    rules = {f"trivial rule: {name}": value for name, value in record.baselines.items()}
    return facts({"status": record.status, **record.metrics, **known, **rules})


def _data(record: RunRecord) -> Facts:
    classes = {"classes": ", ".join(record.classes)} if record.classes else {}
    notes = [("note", note) for note in record.data_notes]
    return [*facts({"data_digest": record.data_digest, **classes}), *notes]


def _training(record: RunRecord) -> Facts:
    counts = {
        "parameters": record.parameters,
        "states_per_channel": record.states_per_channel,
        "kernel": record.kernel,
        "steps": record.steps,
        "resumed": record.resumed,
        "started": record.started or None,
        "ended": record.ended or None,
    }
    known = {key: value for key, value in counts.items() if value is not None}
    attempts = [(f"attempt {at + 1}", text(attempt)) for at, attempt in enumerate(record.attempts)]
    return [*facts({**known, **record.timing}), *attempts]


def _identity(record: RunRecord) -> Facts:
    digests = {"run": record.run_id, "spec_digest": record.spec_digest, "source_digest": record.source_digest}
    return facts({**digests, "folder": "/".join(key(record))})


def _charts(epochs: Epochs, record: RunRecord) -> tuple[Chart, ...]:
    """Return charts of the loss and of the metric that selects the best epoch; none without a log."""
    score = f"validation_{record.metric.replace('-', '_')}"
    drawn = [
        chart("Loss", [_line("train", "train_loss", epochs), _line("validation", "validation_loss", epochs)]),
        chart(
            record.metric.capitalize().replace("Macro-auroc", "Macro AUROC"),
            [
                _line("train", score.replace("validation", "train"), epochs),
                _line("validation", score, epochs),
            ],
        ),
    ]
    return tuple(each for each in drawn if each)


def _line(name: str, key: str, epochs: Epochs) -> Line:
    pairs = [(parse_number(row, "epoch"), parse_number(row, key)) for row in epochs]
    return Line.of(
        name, [(epoch, value) for epoch, value in pairs if epoch is not None and value is not None]
    )
