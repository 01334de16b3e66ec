"""Construction of a `Table` from a definition, runs and reported numbers; pure functions, no I/O."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msbench.errors import UnknownName
from msbench.reporting.tables.arithmetic import unlike
from msbench.reporting.tables.averages import average
from msbench.reporting.tables.best import mark_best
from msbench.reporting.tables.caption import caption
from msbench.reporting.tables.cells import (
    MEASURED_GROUP,
    MODELS_GROUP,
    RULES_GROUP,
    UNIT_OF_METRIC,
    UNITS,
    Cell,
    Column,
    Part,
    Place,
    Row,
    Table,
    lettered,
)
from msbench.reporting.tables.definitions import ColumnDefinition, TableDefinition
from msbench.reporting.tables.distances import distance
from msbench.reporting.tables.measure import measure, runs_in_words
from msbench.reporting.tables.modified import modified_rows
from msbench.reporting.tables.pool import Pool, SuiteRuns
from msbench.results.reported import ReportedCell
from msbench.runs.suite_claims import Claim

__all__ = ["build_table"]


def build_table(
    definition: TableDefinition,
    material: Iterable[SuiteRuns],
    reported: Iterable[ReportedCell],
    *,
    include_modified: bool = False,
) -> Table:
    """Build the table of `definition` from the runs of its suites, with reported and measured numbers.

    A cell takes finished records whose spec digest is that of a planned spec. Runs that differ from the plan
    are counted in a note, or listed below the table with `include_modified`. A suite that is not among
    `material` has no runs.

    Raises UnknownName where the definition names a reported table or column that does not exist.
    """
    pool = Pool(material, definition.places, definition.own_places)
    builder = _Builder(definition, pool, _printed(definition, list(reported)))
    rows, notes = lettered(builder.rows(include_modified), [*definition.notes, *builder.notes])
    return Table(
        definition.id,
        definition.title,
        caption(definition, pool, builder.columns, reported=any(cell.value for cell in builder.printed)),
        builder.columns,
        rows,
        notes,
        definition.protocol,
        definition.number,
    )


class _Builder:
    """Builder of one table."""

    def __init__(self, definition: TableDefinition, pool: Pool, printed: list[ReportedCell]) -> None:
        self.definition, self.pool, self.printed = definition, pool, printed
        self.columns = _columns(definition, printed, pool)
        self.notes: list[str] = list(pool.notes)
        self.made: dict[tuple[Column, str], Cell] = {}

    def rows(self, include_modified: bool) -> list[Row]:
        """Return all rows, in display order."""
        others = self._other_rows() if self.definition.others else []
        rows = mark_best([*self._reported_rows(), *others], self.columns)
        # A table of claims has only the paper's rows; everything else is in the suite's own table.
        of_paper = self.definition.claim is not None
        rows += [] if of_paper else self._rule_rows()
        if include_modified and not of_paper:
            rows += modified_rows(self.pool, self.columns, self.notes)
        self._note_more_seeds({row.model for row in rows})
        self._note_strangers({row.model for row in rows})
        self._note_unlike_arithmetic({row.model for row in rows})
        self._note_what_is_not_shown(include_modified or of_paper)
        return rows

    def _cell(self, column: Column, model: str) -> Cell:
        """Return the measured cell of a model, cached as the model may be in several rows."""
        if (column, model) not in self.made:
            self.made[column, model] = self._make(column, model)
        return self.made[column, model]

    def _make(self, column: Column, model: str) -> Cell:
        if column.source == "average":
            parts = [self._part(place, column) for place in column.of]
            cell = average(column.label, [(part.label, self._cell(part, model)) for part in parts])
            # A row without any number of its own needs no note on what its average lacks.
            some = any(self._cell(part, model).n for part in parts if part in self.columns)
            return cell if some else replace(cell, marks=())
        (place,) = column.places
        found, n_planned = self.pool.outcome(place, model), self.pool.n_planned(place, model)
        if column.source == "mixing":
            return distance(found.finished, n_planned, self.pool.distances, self.notes)
        return measure(column, found, n_planned, self.notes)

    def _part(self, place: Place, whole: Column) -> Column:
        """Return the column of one task of an average: the table's own column, if it has one."""
        own = (column for column in self.columns if column.source == "run" and column.places == (place,))
        return next(own, Column(place[1], place[1], whole.unit, place[0]))

    def _reported_rows(self) -> list[Row]:
        groups: dict[tuple[str, str], list[ReportedCell]] = defaultdict(list)
        for cell in self.printed:
            groups[cell.group, cell.row].append(cell)
        rows = []
        for (group, name), printed in groups.items():
            by_column = {cell.column: cell for cell in printed}
            model = printed[0].model
            cells = tuple(
                _beside(by_column.get(column.label), self._cell(column, model)) for column in self.columns
            )
            if model in self.pool.models or any(cell.reported for cell in cells):
                rows.append(Row(name, group, model, cells, printed[0].source))
        return rows

    def _other_rows(self) -> list[Row]:
        """Return rows for models missing in the paper's table: listed in the suites, or with runs."""
        shown = {cell.model for cell in self.printed}
        group = MEASURED_GROUP if self.printed else MODELS_GROUP
        places = {column.places[0] for column in self.columns if column.source != "average"}
        planned = {key[2] for key in self.pool.plan if key[:2] in places}
        listed = self.pool.listed({suite for suite, _ in places})
        others = [each for each in self.pool.models if each in planned and each not in shown]
        rows = [Row(each, group, each, tuple(self._cell(c, each) for c in self.columns)) for each in others]
        return [row for row in rows if row.model in listed or any(map(_says_something, row.cells))]

    def _rule_rows(self) -> list[Row]:
        rates: dict[str, dict[Column, float]] = defaultdict(dict)
        for column in self.columns:
            if column.source == "run" and self.definition.part == "test":
                for record in self.pool.counted(column.places[0]):
                    for name, value in record.baselines.items():
                        rates[name][column] = value
        source = "counted on the test split"
        return [
            Row(
                name, RULES_GROUP, "", tuple(_rule_cell(column, by_column) for column in self.columns), source
            )
            for name, by_column in rates.items()
        ]

    def _note_more_seeds(self, shown: set[str]) -> None:
        """Add a note on seeds beyond the plan, which follow the protocol and count."""
        places = list(dict.fromkeys(place for column in self.columns for place in column.places))
        counted = [
            _counts(model, {place[1]: self.pool.n_planned(place, model) for place in places})
            for model in self.pool.models
            if model in shown and any(self.pool.more.get((*place, model)) for place in places)
        ]
        if counted:
            self.notes.append(f"seeds beyond the plan count too; in all: {', '.join(counted)}")

    def _note_strangers(self, shown: set[str]) -> None:
        for suite, models in self.pool.strangers().items():
            if named := ", ".join(model for model in models if model in shown):
                self.notes.append(
                    f"not listed by suite {suite}, and run with its common settings and own defaults: {named}"
                )

    def _note_unlike_arithmetic(self, shown: set[str]) -> None:
        for column in self.columns:
            models = [model for model in self.pool.models if model in shown and column.source == "run"]
            runs = [
                record
                for place in column.places
                for model in models
                for record in self.pool.outcome(place, model).finished
            ]
            if note := unlike(column.label, runs):
                self.notes.append(note)

    def _note_what_is_not_shown(self, include_modified: bool) -> None:
        for suite in () if include_modified else self.definition.suites:
            count = sum(len(runs) for key, runs in self.pool.modified.items() if key[0] == suite)
            if count:
                self.notes.append(
                    f"{runs_in_words(count)} of suite {suite} with another spec than the planned one not"
                    f" shown; 'msbench report {self.definition.id} --modified' lists them"
                )
        shown = {column.label for column in self.columns}
        left = list(dict.fromkeys(cell.column for cell in self.printed if cell.column not in shown))
        if left:
            self.notes.append(
                f"columns of the paper's table that are no task of this suite: {', '.join(left)}"
            )


def _counts(model: str, seeds: Mapping[str, int]) -> str:
    """Return text such as ``mamba 3``, or ``mamba 3 (text), 1 (image)`` where its tasks differ."""
    tasks: dict[int, list[str]] = defaultdict(list)
    for task, count in seeds.items():
        if count:
            tasks[count].append(task)
    if len(tasks) == 1:
        return f"{model} {next(iter(tasks))}"
    listed = (f"{count} ({', '.join(names)})" for count, names in tasks.items())
    return f"{model} {', '.join(listed)}"


def _printed(definition: TableDefinition, reported: list[ReportedCell]) -> list[ReportedCell]:
    """Return the cells of the reported table that the definition names."""
    tables = {cell.table for cell in reported}
    if definition.reported and definition.reported not in tables:
        raise UnknownName("reported table", definition.reported, tables, definition.where)
    found = [cell for cell in reported if cell.table == definition.reported]
    return found if definition.claim is None else _rows_alone(definition, definition.claim, found)


def _rows_alone(
    definition: TableDefinition, claim: Claim, printed: Sequence[ReportedCell]
) -> list[ReportedCell]:
    """Return a column's rows without numbers, under this table's heading, for models of the suite."""
    columns = {cell.column for cell in printed}
    if claim.column not in columns:
        raise UnknownName("reported column", claim.column, columns, definition.where)
    rows = {cell.row for cell in printed}
    for name in claim.rows:
        if name not in rows:
            raise UnknownName("reported row", name, rows, definition.where)
    (heading,) = (column.label for column in definition.columns)
    bare = [
        replace(cell, model=claim.rows.get(cell.row, cell.model), column=heading, value="", sd="", note="")
        for cell in printed
        if cell.column == claim.column
    ]
    return [cell for cell in bare if cell.model]


def _columns(definition: TableDefinition, printed: Sequence[ReportedCell], pool: Pool) -> tuple[Column, ...]:
    """Return the columns, in the paper's unit where it prints them, else in that of the runs' metric."""
    units = {cell.column: cell.unit for cell in printed}
    for column in definition.columns:
        if column.printed and column.label not in units:
            raise UnknownName("reported column", column.label, units, definition.where)
    return tuple(
        Column(
            column.task,
            column.label,
            units.get(column.label) or _own_unit(column, pool, definition.part),
            column.suite,
            column.source,
            column.of,
        )
        for column in definition.columns
    )


def _own_unit(column: ColumnDefinition, pool: Pool, part: Part) -> str:
    """Return the unit of a column that the paper does not print; accuracy if there are no runs."""
    if column.source == "mixing":
        return "tokens"
    runs = (record for runs in (pool.planned, pool.modified) for key in runs for record in runs[key])
    metrics = [record.metric for record in runs if (record.suite, record.task) in column.places]
    return UNIT_OF_METRIC[part][metrics[0] if metrics else "accuracy"]


def _beside(printed: ReportedCell | None, cell: Cell) -> Cell:
    if printed is None:
        return cell
    marks = (f"reported: {printed.note}",) if printed.note else ()
    return replace(cell, reported=printed.value, reported_sd=printed.sd, reported_marks=marks)


def _says_something(cell: Cell) -> bool:
    return cell.status != "missing" or bool(cell.marks)


def _rule_cell(column: Column, rates: Mapping[Column, float]) -> Cell:
    if column not in rates:
        return Cell()
    return Cell(measured=UNITS[column.unit].scale * rates[column], status="trivial-rule")
