"""Tables of accuracy by a property of the test examples, such as their length, in bins.

The rows are those of another table, with the same runs. The bins of a task are the same for all its models.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from msbench.console import format_count
from msbench.errors import ConfigError, DataError, Undecided, UnknownName
from msbench.reporting.tables.build import mark_best
from msbench.reporting.tables.cells import (
    MODIFIED_GROUP,
    RULES_GROUP,
    UNITS,
    Bin,
    Cell,
    Column,
    Evidence,
    Report,
    Row,
    Table,
)
from msbench.reporting.tables.notes import PROTOCOLS
from msbench.results.predictions import read_correct, read_properties
from msbench.results.record import RunRecord
from msbench.stats.proportion import Interval, wilson
from msbench.stats.summary import compute_mean_interval, compute_sd

UNASKED = ("length", "reach", "distance")
"""The properties by which figures show accuracy without being asked."""
MOST_BINS = 12
"""With more distinct values than these the bins are quarters of the examples."""
MAJORITY = "majority of the bin"
CHANGE = "last - first"
NOTES = (
    "95 % intervals are of the mean over seeds (Student's t), or of a single seed over the examples (Wilson)",
    f"{CHANGE}: the change from the first bin to the last, paired within each seed, with the interval of its"
    " mean over seeds; one seed has none",
)


@dataclass
class TaskAnswers:
    """The answers of the runs behind a column of a table to the test examples, read from their files.

    `labels` and every property are (n,), `correct` has (n,) by run id, and `names` the properties that the
    file of each run has. `problems` are messages on the files that cannot be used.
    """

    runs: Mapping[str, RunRecord]
    labels: NDArray[np.int64] | None = None
    properties: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    correct: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    names: dict[str, frozenset[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(
        self,
        run_id: str,
        properties: Mapping[str, NDArray[np.int64]],
        labels: NDArray[np.int64],
        correct: NDArray[np.bool_],
    ) -> None:
        """Add the answers of a run; raises DataError where its test examples are not those of the first."""
        if self.labels is not None and not np.array_equal(self.labels, labels):
            raise DataError(f"run {run_id}: its test examples are not those of the other runs")
        for name, values in properties.items():
            if not np.array_equal(self.properties.get(name, values), values):
                raise DataError(
                    f"run {run_id}: its test examples have another {name} than those of the other runs"
                )
        self.labels, self.correct[run_id] = labels, correct
        self.properties = {**self.properties, **properties}

    def explain_absence(self, name: str) -> str:
        """Return why there is nothing by this property; empty if there is."""
        if any(record.metric != "accuracy" for record in self.runs.values()):
            return "an example with several labels is not right or wrong, so accuracy is not defined"
        if name in self.properties:
            values = np.unique(self.properties[name])
            return f"all test examples have {name} {values[0]}" if len(values) == 1 else ""
        if self.properties:
            return f"its test examples have no {name}, only {', '.join(self.properties)}"
        return "; ".join(self.describe_left_out(name))

    def describe_left_out(self, name: str) -> list[str]:
        """Return a line on the runs whose files lack the property, and one on files that cannot be used."""
        old = [self.runs[run_id] for run_id, names in self.names.items() if name not in names]
        suites = " ".join(dict.fromkeys(record.suite for record in old))
        lines = []
        if old:
            count = (
                f"{format_count(len(old), 'run')} of an earlier version, without {name} of the test examples,"
            )
            lines.append(f"{count} left out: train again with 'msbench run {suites} --fresh'")
        if self.problems:
            first = "; the first: " if len(self.problems) > 1 else ": "
            lines.append(f"{format_count(len(self.problems), 'run')} left out{first}{self.problems[0]}")
        return lines


def add_breakdowns(report: Report, name: str, warn: Callable[[str], None]) -> Report:
    """Return the report with a table by the property `name` for each task of its tables, after them.

    `warn` gets a line on the tasks without one. Raises UnknownName where no run has such a property,
    ConfigError where it divides the examples of no task, and Undecided where runs lack all properties.
    """
    found: list[Table] = []
    known: set[str] = set()
    absent: dict[str, list[str]] = {}
    for table, index, answers in _read_tables(report):
        known.update(answers.properties)
        if reason := answers.explain_absence(name):
            absent.setdefault(reason, []).append(f"{table.id}: {table.columns[index].task}")
        else:
            found.append(_make_table(table, index, name, answers))
    if known and name not in known:
        raise UnknownName("property of the test examples", name, known, "--by")
    lines = [f"no table by {name} of {', '.join(places)}: {reason}" for reason, places in absent.items()]
    if not found and known:
        raise ConfigError(f"--by {name}: {'; '.join(lines)}")
    if not found:
        nothing = "no run of these tables is finished; --modified shows runs under overrides"
        raise Undecided(f"--by {name}: {'; '.join(lines) or nothing}")
    for line in lines:
        warn(line)
    return replace(report, tables=(*report.tables, *found))


def list_breakdowns(report: Report, names: Sequence[str]) -> Iterator[tuple[Table, Table]]:
    """Yield each table of the report with its tables by those of these properties that differ in its task."""
    for table, index, answers in _read_tables(report):
        for name in names:
            if not answers.explain_absence(name):
                yield table, _make_table(table, index, name, answers)


def _read_tables(report: Report) -> Iterator[tuple[Table, int, TaskAnswers]]:
    """Yield the columns of results of each table, by index, with the answers of their runs.

    Tables of claims are left out: they show the runs of their suite's own table.
    """
    for table in report.tables:
        for index, column in enumerate(table.columns):
            if column.source == "run" and not (table.base or table.by):
                runs = {
                    record.run_id: record
                    for row in table.rows
                    if row.cells[index].status == "measured"
                    for record in report.list_runs(table, row, index)
                }
                if runs:
                    yield table, index, _read_answers(report, runs)


def _read_answers(report: Report, runs: Mapping[str, RunRecord]) -> TaskAnswers:
    answers = TaskAnswers(runs)
    for run_id, record in runs.items():
        folder = report.find_folder(record)
        if record.metric != "accuracy":
            break
        try:
            properties = read_properties(folder, run_id)
            if properties:
                answers.add(run_id, properties, *read_correct(folder, run_id))
        except DataError as error:
            answers.problems.append(str(error))
            continue
        answers.names[run_id] = frozenset(properties)
    return answers


def choose_bins(values: NDArray[np.int64]) -> list[Bin]:
    """Return the bins of a property (n,) of the examples, in order: none is empty.

    Each value is a bin if there are at most `MOST_BINS`. Else the bins are quarters of the examples, as far
    as equal values, which stay together, allow.
    """
    ends = np.unique(values)
    if len(ends) > MOST_BINS:
        cuts = np.quantile(values, (0.25, 0.5, 0.75), method="inverted_cdf")
        # Where the greatest value is that of many examples, they are the last bin.
        ends = np.unique([*np.minimum(cuts, ends[-2]), ends[-1]])
    places = np.searchsorted(ends, values)
    parts = [values[places == at] for at in range(len(ends))]
    return [Bin(int(part.min()), int(part.max()), float(part.mean()), len(part)) for part in parts]


def _make_table(table: Table, index: int, name: str, answers: TaskAnswers) -> Table:
    """Return the table of the column `index` of `table` by this property, which has two values or more."""
    column, values = table.columns[index], answers.properties[name]
    bins = choose_bins(values)
    places = np.searchsorted([each.high for each in bins], values)
    shares = {
        run_id: [float(correct[places == at].mean()) for at in range(len(bins))]
        for run_id, correct in answers.correct.items()
        if name in answers.names[run_id]
    }
    columns = [Column(column.task, each.label, "percent", column.suite, "bin", bin=each) for each in bins]
    columns.append(Column(column.task, CHANGE, "points", column.suite, "bin"))
    rows = [
        Row(row.name, row.group, row.model, _measure_row(row.cells[index], bins, shares, answers.runs))
        for row in table.rows
        if row.cells[index].status == "measured" and set(row.cells[index].run_ids) & set(shares)
    ]
    planned = [row for row in rows if row.group != MODIFIED_GROUP]
    several = sum(each.source == "run" for each in table.columns) > 1
    apart = all(each.low == each.high for each in bins)
    how = f"Test examples {'of each value' if apart else 'in quarters' if len(bins) == 4 else 'in bins'}"
    noted = {row.name: row.cells[index].notes for row in table.rows}
    return Table(
        id=f"{table.id}{f'-{column.task}' if several else ''}-by-{name}",
        title=f"{table.title}: accuracy by {name}{f', {column.task}' if several else ''}",
        caption=f"{how}: {', '.join(f'{each.n} with {name} {each.label}' for each in bins)}."
        f" Protocol: {PROTOCOLS[table.protocol]}. Unit: {UNITS['percent'].words} of the test split.",
        columns=tuple(columns),
        rows=(
            *mark_best(planned, columns),
            _count_majority(bins, places, answers),
            *(row for row in rows if row.group == MODIFIED_GROUP),
        ),
        notes=(
            *answers.describe_left_out(name),
            *(f"{row.name}: {note}" for row in rows for note in noted[row.name]),
            *NOTES,
        ),
        protocol=table.protocol,
        by=name,
    )


def _measure_row(
    whole: Cell, bins: Sequence[Bin], shares: Mapping[str, Sequence[float]], runs: Mapping[str, RunRecord]
) -> tuple[Cell, ...]:
    """Return the cells of a row: `whole` is that of all examples, `shares` has the accuracies by run."""
    ids = tuple(run_id for run_id in whole.run_ids if run_id in shares)
    assert whole.evidence is not None, "a measured cell has evidence"
    seeds = tuple(runs[run_id].seed for run_id in ids)
    evidence = replace(whole.evidence, seeds=seeds, rules={}, chance=None)
    blank = Cell(
        n=len(ids), n_planned=whole.n_planned, status="measured", run_ids=ids, unlisted=whole.unlisted
    )
    cells = []
    for at, each in enumerate(bins):
        values = tuple(shares[run_id][at] for run_id in ids)
        interval = compute_mean_interval(values) or wilson(round(values[0] * each.n), each.n)
        own = replace(evidence, values=values, n_test=each.n)
        cells.append(_fill_cell(blank, own, interval, 0.0))
    changes = tuple(shares[run_id][-1] - shares[run_id][0] for run_id in ids)
    own = replace(evidence, metric=UNITS["points"].metric, values=changes, n_test=None)
    return (*cells, _fill_cell(blank, own, compute_mean_interval(changes), -1.0))


def _fill_cell(blank: Cell, evidence: Evidence, interval: Interval | None, least: float) -> Cell:
    """Return a cell in percent or points; its interval is cut at what is possible, `least` to 1."""
    sd = compute_sd(evidence.values)
    ends = (100 * max(interval.low, least), 100 * min(interval.high, 1.0)) if interval else None
    return replace(
        blank,
        measured=100 * statistics.fmean(evidence.values),
        sd=None if sd is None else 100 * sd,
        evidence=evidence,
        interval=ends,
    )


def _count_majority(bins: Sequence[Bin], places: NDArray[np.int64], answers: TaskAnswers) -> Row:
    """Return the row with the share of the most common label of each bin."""
    cells = []
    for at, each in enumerate(bins):
        assert answers.labels is not None, "properties are read with labels"
        most = int(np.unique(answers.labels[places == at], return_counts=True)[1].max())
        cells.append(Cell(measured=100 * most / each.n, status="trivial-rule"))
    source = "share of the most common label among the test examples of the bin"
    return Row(MAJORITY, RULES_GROUP, "", (*cells, Cell()), source)
