"""The runs behind the numbers of a page: log, command, charts, and everything that their results depend on.

Learning curves are small inline SVGs of one or two kilobytes, whatever the number of rows.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msbench.config.differences import flatten
from msbench.reporting.render.formatting import number_repeats
from msbench.reporting.tables.cells import UNIT_OF_METRIC, UNITS, Report
from msbench.results import store
from msbench.results.metrics_log import LogRows, is_whole, parse_number, read_log
from msbench.results.record import RUN_ID, RunRecord, describe_scored_classes
from msbench.runs.reproduce import Reproduction, ReproductionBuilder

MOST_RUNS = 1000
"""The most runs with a section of their own; a page with more would load slowly."""
WIDTH, HEIGHT = 260, 110
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 18
MOST_POINTS = 80
"""The most points of a line, more than its pixels resolve; the last point is always kept."""
LABELS = ("suite", "task", "model_name", "seed")
"""Settings that are in the heading of a run."""

RunKey = tuple[str, str, str, str]
"""Suite, task, model and id: suites with the same settings have runs of the same id."""
Facts = Sequence[tuple[str, str]]
Point = tuple[float, float]


@dataclass(frozen=True)
class SharedFacts:
    """Facts that several runs have in common, shown once."""

    anchor: str
    title: str
    facts: Facts
    runs: int


@dataclass(frozen=True)
class Chart:
    """The data that the template draws: paths in a box of `WIDTH` × `HEIGHT`, ticks as position and text."""

    title: str
    description: str
    lines: tuple[tuple[str, str], ...]
    """Name, and the points of a polyline."""
    dots: tuple[tuple[str, float, float], ...]
    """Name and place of each line's last point."""
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class RunSection:
    """A run behind a cell. `anchor` is the id of its section, `log` has the rows of ``metrics.csv``.

    `cells` are the cells that use the run, as id and label.
    """

    anchor: str
    record: RunRecord
    again: Reproduction
    log: LogRows
    environment: SharedFacts
    sources: SharedFacts
    cells: tuple[tuple[str, str], ...] = ()

    @property
    def place(self) -> str:
        """The suite and task of the run."""
        return f"{self.record.suite} / {self.record.task}"

    @property
    def result(self) -> str:
        """The result in the unit of its metric, such as ``85.57 % accuracy``; empty where it has none."""
        record = self.record
        if record.result is None or not record.finished:
            return ""
        unit = UNITS[UNIT_OF_METRIC["test"][record.metric]]
        classes = describe_scored_classes(record)
        value = f"{record.result * unit.scale:.{unit.digits}f} % {record.metric}"
        return f"{value}, {classes}" if classes else value

    @property
    def charts(self) -> list[Chart]:
        """Charts of the loss and of the metric that selects the best epoch; none without a log."""
        metric = self.record.metric
        title = metric.capitalize().replace("Macro-auroc", "Macro AUROC")
        drawn = []
        for heading, key in (("Loss", "loss"), (title, metric.replace("-", "_"))):
            names = ("train", "validation")
            drawn.append(draw_chart(heading, {name: self._list_points(f"{name}_{key}") for name in names}))
        return [each for each in drawn if each]

    def _list_points(self, key: str) -> list[Point]:
        # The means of whole epochs are over what the rows within them show.
        within = key.startswith("train_") and not all(map(is_whole, self.log))
        rows = [row for row in self.log if is_whole(row) != within]
        pairs = [(parse_number(row, "step"), parse_number(row, key)) for row in rows]
        return [(step, value) for step, value in pairs if step is not None and value is not None]

    @property
    def sections(self) -> list[tuple[str, Facts]]:
        """Titles and facts of all that is recorded, without empty ones."""
        record = self.record
        rules = {f"trivial rule: {name}": value for name, value in record.baselines.items()}
        result = {"status": record.status, **record.metrics, **self._select("metric", "n_test", "chance")}
        failure = record.failure.model_dump(exclude_none=True) if record.failure else {}
        classes = {"classes": ", ".join(record.classes)} if record.classes else {}
        data_notes = [("note", note) for note in (*record.data_notes, *record.data_remarks)]
        settings = {key: value for key, value in record.spec.items() if key not in LABELS}
        training = self._select(
            "parameters", "states_per_channel", "kernel", "steps", "resumed", "started", "ended"
        )
        attempts = [(f"attempt {at + 1}", format_value(each)) for at, each in enumerate(record.attempts)]
        identity = {"run": record.run_id, **self._select("spec_digest", "source_digest")}
        sections: list[tuple[str, Facts]] = [
            ("Result", list_facts({**result, **rules})),
            ("Failure", list_facts(failure)),
            ("Settings", list_facts(settings)),
            ("Data", [*list_facts({"data_digest": record.data_digest, **classes}), *data_notes]),
            ("Training", [*list_facts({**training, **record.timing}), *attempts]),
            ("Identity", list_facts({**identity, "folder": "/".join(get_run_key(record))})),
        ]
        return [(title, facts) for title, facts in sections if facts]

    def _select(self, *names: str) -> dict[str, Any]:
        """Return these fields of the record, without empty ones."""
        found = {name: getattr(self.record, name) for name in names}
        return {name: value for name, value in found.items() if value not in (None, "")}


@dataclass(frozen=True)
class GatheredRuns:
    """The runs behind shown cells, in the order of the cells, and counts of what is left out.

    `others` counts run folders that no shown cell uses, `beyond` the runs behind cells after the first
    `MOST_RUNS`.
    """

    runs: Mapping[RunKey, RunSection] = field(default_factory=dict)
    others: int = 0
    beyond: int = 0


def get_run_key(record: RunRecord) -> RunKey:
    """Return the key that identifies the record within a results folder."""
    return record.suite, record.task, record.model, record.run_id


def gather_runs(report: Report, names: Sequence[str] = (), most: int = MOST_RUNS) -> GatheredRuns:
    """Collect at most `most` runs behind the cells of `report`; `names` are suites and files as typed."""
    wanted = {get_run_key(record): record for record in _list_behind(report)}
    folders = len(store.list_run_folders(report.results).folders)
    commands = ReproductionBuilder(names)
    kept = list(wanted.values())[:most]
    anchors = number_repeats((f"run-{record.run_id}" for record in kept), "{}.{}")
    environments = _share("environment", "Environment", [record.environment for record in kept])
    sources = _share("source", "Source files", [record.sources for record in kept])
    sections = {}
    for anchor, record, environment, source in zip(anchors, kept, environments, sources, strict=True):
        log, _ = read_log(report.find_folder(record))
        sections[get_run_key(record)] = RunSection(anchor, record, commands(record), log, environment, source)
    return GatheredRuns(sections, max(0, folders - len(wanted)), len(wanted) - len(sections))


def _list_behind(report: Report) -> Iterator[RunRecord]:
    """Yield every run behind a cell; one with an invalid id, unusable as an anchor, is left out."""
    for table in report.tables:
        for row in table.rows:
            for index in range(len(table.columns)):
                for record in report.list_runs(table, row, index):
                    if RUN_ID.fullmatch(record.run_id):
                        yield record


def _share(name: str, title: str, groups: Sequence[Mapping[str, Any]]) -> list[SharedFacts]:
    """Return the facts of each mapping; equal ones share an object, numbered by first occurrence."""
    keys = [json.dumps(group, sort_keys=True, default=str) for group in groups]
    sizes = Counter(keys)
    order = {key: at for at, key in enumerate(sizes, 1)}
    shared = {
        key: SharedFacts(f"{name}-{order[key]}", f"{title} {order[key]}", list_facts(group), sizes[key])
        for key, group in dict(zip(keys, groups, strict=True)).items()
    }
    return [shared[key] for key in keys]


def list_facts(values: Mapping[str, Any]) -> Facts:
    """Return dotted keys and values as texts: strings unchanged, all else as JSON."""
    return [(key, format_value(value)) for key, value in flatten(values).items() if value != {}]


def format_value(value: Any) -> str:
    """Return a value of a record as text: a string unchanged, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def draw_chart(title: str, lines: Mapping[str, Iterable[Point]]) -> Chart | None:
    """Return the chart of these lines by name, or None if none of them has a point.

    A line has pairs of step and value, in any order; those that are not finite are left out.
    """
    finite = {
        name: sorted(each for each in line if all(map(math.isfinite, each))) for name, line in lines.items()
    }
    drawn = {name: line for name, line in finite.items() if line}
    if not drawn:
        return None
    points = [point for line in drawn.values() for point in line]
    x_low, x_high = _find_range([x for x, _ in points])
    y_low, y_high = _find_range([y for _, y in points])

    def place(point: Point) -> Point:
        x = LEFT + (point[0] - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (point[1] - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    xs = sorted({x for x, _ in points})
    return Chart(
        title,
        _describe_chart(title, drawn),
        tuple(
            (name, " ".join("{},{}".format(*place(at)) for at in _thin(line))) for name, line in drawn.items()
        ),
        tuple((name, *place(line[-1])) for name, line in drawn.items()),
        tuple((place((x, y_low))[0], f"{x:g}") for x in dict.fromkeys((xs[0], xs[-1]))),
        tuple((place((x_low, y))[1], f"{y:.3g}") for y in (y_low, y_high)),
    )


def _find_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the minimum and maximum, widened if they are equal."""
    low, high = min(values), max(values)
    if high > low:
        return low, high
    pad = abs(low) / 10 or 0.5
    return low - pad, high + pad


def _thin(points: Sequence[Point]) -> list[Point]:
    """Return at most `MOST_POINTS` evenly spaced points, including the last."""
    step = math.ceil(len(points) / MOST_POINTS)
    return [*points[:-1:step], points[-1]]


def _describe_chart(title: str, lines: Mapping[str, Sequence[Point]]) -> str:
    """Return a description of the chart for screen readers."""
    parts = [f"{name} from {line[0][1]:.3g} to {line[-1][1]:.3g}" for name, line in lines.items()]
    first = next(iter(lines.values()))
    return f"{title}, step {first[0][0]:g} to {first[-1][0]:g}: {'; '.join(parts)}"
