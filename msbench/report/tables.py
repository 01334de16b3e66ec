"""Runs and reported numbers -> the paper's table. Pure: records in, `Table` out."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msbench.errors import Undecided, UnknownName
from msbench.report.best import mark_best
from msbench.report.cells import (
    MEASURED_GROUP,
    MODELS_GROUP,
    MODIFIED_GROUP,
    MODIFIED_MARK,
    RULES_GROUP,
    UNIT_OF_METRIC,
    UNITS,
    Cell,
    Column,
    Note,
    Row,
    Table,
    lettered,
)
from msbench.report.collect import difference, newest, outcome
from msbench.report.contracts import Planned, SuiteFacts
from msbench.report.measure import measure, runs_in_words
from msbench.report.reported import ReportedCell
from msbench.store import Metric, RunRecord

__all__ = ["Cell", "Column", "Note", "Row", "Table", "build_table"]

Place = tuple[str, str]
"""Task and model."""


def build_table(
    suite: SuiteFacts,
    specs: Sequence[Planned],
    records: Iterable[RunRecord],
    reported: Iterable[ReportedCell],
    *,
    include_modified: bool = False,
) -> Table:
    """The table of `suite`: reported beside measured, one column a task of `specs`.

    A cell takes finished records whose spec digest is that of a planned spec. Runs that differ from the plan
    are counted in a note, or listed below the table with `include_modified`.

    Raises Undecided where the suite has no run at all, UnknownName where it names a reported table or column
    that there is not.
    """
    mine = [record for record in records if record.suite == suite.name]
    if not mine:
        raise Undecided(
            f"suite {suite.name}: nothing has been run; 'msbench run {suite.name}' makes its runs"
        )
    builder = _Builder(suite, specs, mine, _printed(suite, list(reported)))
    rows, notes = lettered(builder.rows(include_modified), builder.notes)
    return Table(
        suite.name,
        suite.title,
        builder.caption(),
        builder.columns,
        rows,
        notes,
        suite.protocol,
    )


class _Builder:
    """One table in the making."""

    def __init__(
        self,
        suite: SuiteFacts,
        specs: Sequence[Planned],
        records: list[RunRecord],
        printed: list[ReportedCell],
    ) -> None:
        self.suite, self.printed = suite, printed
        self.notes: list[str] = []
        self.plan: dict[Place, list[Planned]] = defaultdict(list)
        for spec in specs:
            self.plan[spec.task, spec.model_name].append(spec)
        self.models = list(dict.fromkeys(model for _, model in self.plan))
        tasks = list(dict.fromkeys(task for task, _ in self.plan))
        self.columns = _columns(suite, tasks, printed, {record.task: record.metric for record in records})
        self.planned: dict[Place, list[RunRecord]] = defaultdict(list)
        self.modified: dict[Place, list[RunRecord]] = defaultdict(list)
        digests = {place: {spec.digest for spec in group} for place, group in self.plan.items()}
        for record in records:
            place = (record.task, record.model)
            known = record.spec_digest in digests.get(place, ())
            (self.planned if known else self.modified)[place].append(record)
        self.data = self._newest_data()

    def rows(self, include_modified: bool) -> list[Row]:
        """All rows, in the order in which they are shown."""
        measured = {(column.task, model): self._measured(column, model) for column, model in self._cells()}
        rows = mark_best([*self._reported_rows(measured), *self._other_rows(measured)], self.columns)
        rows += self._rule_rows()
        if include_modified:
            rows += self._modified_rows()
        self._note_what_is_not_shown(include_modified)
        return rows

    def caption(self) -> str:
        """The suite's caption, then protocol, unit, seeds and sizes."""
        seeds = len({spec.seed for group in self.plan.values() for spec in group})
        scaled = "" if self.suite.protocol == "paper" else " down from the paper's, so no test of its numbers"
        measured = (
            f"measured is the mean ± sample standard deviation over {seeds} seeds, fewer where (k/{seeds})"
            if seeds > 1
            else "measured is one seed"
        )
        units = ", ".join(dict.fromkeys(UNITS[column.unit].words for column in self.columns))
        reported = "reported is what the paper prints, " if self.printed else ""
        parts = [
            " ".join(self.suite.caption.split()).rstrip("."),
            f"Protocol: {self.suite.protocol}{scaled}",
            f"Unit: {units}; {reported}{measured}",
            self._sizes(),
        ]
        return "".join(f"{part}. " for part in parts if part).rstrip()

    def _sizes(self) -> str:
        sizes: dict[str, int] = {}
        for column, model in self._cells():
            for record in self.planned[column.task, model]:
                if record.n_test and record.data_digest == self.data[column.task, model]:
                    sizes[column.task] = record.n_test
        return f"Test examples: {', '.join(f'{task} {n}' for task, n in sizes.items())}" if sizes else ""

    def _cells(self) -> list[tuple[Column, str]]:
        return [(column, model) for column in self.columns for model in self.models]

    def _newest_data(self) -> dict[Place, str]:
        """The data digest of every place: one a task, unless the suite gives models data of their own."""
        groups: dict[Place, list[Place]] = defaultdict(list)
        for (task, model), specs in self.plan.items():
            groups[task, str(specs[0].model_dump(mode="json").get("data"))].append((task, model))
        digests: dict[Place, str] = {}
        for places in groups.values():
            runs = [record for place in places for record in self.planned[place]]
            digests |= dict.fromkeys(places, newest(runs).data_digest if runs else "")
        for task in dict.fromkeys(task for task, _ in digests):
            if len({digest for place, digest in digests.items() if place[0] == task and digest}) > 1:
                self.notes.append(f"{task}: not all models have the same data, as the suite asks")
        return digests

    def _measured(self, column: Column, model: str) -> Cell:
        place = (column.task, model)
        found = outcome(self.planned[place], self.data.get(place, ""))
        return measure(column, found, len(self.plan.get(place, ())), self.notes)

    def _reported_rows(self, measured: Mapping[Place, Cell]) -> list[Row]:
        groups: dict[Place, list[ReportedCell]] = defaultdict(list)
        for cell in self.printed:
            groups[cell.group, cell.row].append(cell)
        rows = []
        for (group, name), printed in groups.items():
            by_column = {cell.column: cell for cell in printed}
            model = printed[0].model
            cells = tuple(
                self._beside(by_column.get(column.label), measured.get((column.task, model), Cell()))
                for column in self.columns
            )
            if model in self.models or any(cell.reported for cell in cells):
                rows.append(Row(name, group, model, cells, printed[0].source))
        return rows

    def _beside(self, printed: ReportedCell | None, cell: Cell) -> Cell:
        if printed is None:
            return cell
        marks = (f"reported: {printed.note}",) if printed.note else ()
        return replace(cell, reported=printed.value, reported_sd=printed.sd, reported_marks=marks)

    def _other_rows(self, measured: Mapping[Place, Cell]) -> list[Row]:
        """Models of the suite that the paper's table has no row for."""
        shown = {cell.model for cell in self.printed}
        group = MEASURED_GROUP if self.printed else MODELS_GROUP
        return [
            Row(model, group, model, tuple(measured[column.task, model] for column in self.columns))
            for model in self.models
            if model not in shown
        ]

    def _rule_rows(self) -> list[Row]:
        rates: dict[str, dict[str, float]] = defaultdict(dict)
        for place, digest in self.data.items():
            for record in self.planned[place]:
                if record.data_digest == digest:
                    for name, value in record.baselines.items():
                        rates[name][place[0]] = value
        source = "counted on the test split"
        return [
            Row(name, RULES_GROUP, "", tuple(_rule_cell(column, by_task) for column in self.columns), source)
            for name, by_task in rates.items()
        ]

    def _modified_rows(self) -> list[Row]:
        groups: dict[Place, dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
        for place, records in self.modified.items():
            for record in records:
                groups[place[1], difference(record, self._nearest(record))][place[0]].append(record)
        return [
            Row(
                f"{model} {MODIFIED_MARK} {label}",
                MODIFIED_GROUP,
                model,
                tuple(self._modified_cell(column, tasks.get(column.task, [])) for column in self.columns),
                label,
            )
            for (model, label), tasks in sorted(groups.items())
        ]

    def _nearest(self, record: RunRecord) -> Planned | None:
        """The planned spec that a modified run is compared with: that of its seed, else the first."""
        specs = self.plan.get((record.task, record.model), [])
        return next((spec for spec in specs if spec.seed == record.seed), specs[0] if specs else None)

    def _modified_cell(self, column: Column, records: list[RunRecord]) -> Cell:
        if not records:
            return Cell()
        found = outcome(records, newest(records).data_digest)
        cell = measure(column, found, len({record.seed for record in records}), self.notes)
        planned = {digest for (task, _), digest in self.data.items() if task == column.task and digest}
        if not planned or newest(records).data_digest in planned:
            return cell
        return replace(cell, marks=(*cell.marks, "measured on other data than the planned runs"))

    def _note_what_is_not_shown(self, include_modified: bool) -> None:
        count = sum(map(len, self.modified.values()))
        if count and not include_modified:
            self.notes.append(
                f"{runs_in_words(count)} of this suite with another spec than the planned one not shown;"
                f" 'msbench report {self.suite.name} --modified' lists them"
            )
        shown = {column.label for column in self.columns}
        left = list(dict.fromkeys(cell.column for cell in self.printed if cell.column not in shown))
        if left:
            self.notes.append(
                f"columns of the paper's table that are no task of this suite: {', '.join(left)}"
            )


def _printed(suite: SuiteFacts, reported: list[ReportedCell]) -> list[ReportedCell]:
    """The cells of the table that the suite names."""
    if suite.reported is None:
        return []
    where, tables = f"suite {suite.name}", {cell.table for cell in reported}
    if suite.reported.table not in tables:
        raise UnknownName("reported table", suite.reported.table, tables, where)
    return [cell for cell in reported if cell.table == suite.reported.table]


def _columns(
    suite: SuiteFacts, tasks: list[str], printed: list[ReportedCell], metrics: Mapping[str, Metric]
) -> tuple[Column, ...]:
    """One column a task, under the paper's heading and in its unit where it has one.

    `metrics` are those of the tasks, as far as runs say; without any it is accuracy.
    """
    labels = suite.reported.columns if suite.reported else {}
    units = {cell.column: cell.unit for cell in printed}
    for label in labels.values():
        if label not in units:
            raise UnknownName("reported column", label, units, f"suite {suite.name}")
    heads = [labels.get(task, task) for task in tasks]
    own = {task: UNIT_OF_METRIC[metrics.get(task, "accuracy")] for task in tasks}
    return tuple(
        Column(task, head, units.get(head, own[task])) for task, head in zip(tasks, heads, strict=True)
    )


def _rule_cell(column: Column, rates: Mapping[str, float]) -> Cell:
    if column.task not in rates:
        return Cell()
    return Cell(measured=UNITS[column.unit].scale * rates[column.task], status="trivial-rule")
