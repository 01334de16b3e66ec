"""Construction of a `Table` from a definition, runs and reported numbers; pure functions, no I/O."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msbench.errors import UnknownName
from msbench.reporting.tables.cells import (
    MEASURED_GROUP,
    MODELS_GROUP,
    MODIFIED_GROUP,
    MODIFIED_MARK,
    RULES_GROUP,
    UNIT_OF_METRIC,
    UNITS,
    Cell,
    Column,
    Part,
    Place,
    Row,
    Table,
)
from msbench.reporting.tables.definitions import TableDefinition
from msbench.reporting.tables.measure import average_cells, measure_distances, measure_results
from msbench.reporting.tables.notes import (
    note_left_columns,
    note_modified_runs,
    note_more_seeds,
    note_own_settings,
    note_unlike_hardware,
    note_unlisted_models,
    write_caption,
)
from msbench.reporting.tables.selection import (
    RunPool,
    SuiteRuns,
    describe_difference,
    find_newest,
    select_runs,
)
from msbench.results.record import RunRecord
from msbench.results.reported import ReportedCell
from msbench.runs.suite_file import Claim


def build_table(
    definition: TableDefinition,
    material: Iterable[SuiteRuns],
    reported: Iterable[ReportedCell],
    *,
    modified: bool = False,
    planned: bool = False,
) -> Table:
    """Build the table of `definition` from the runs of its suites, with reported and measured numbers.

    A cell takes finished records whose spec digest is that of a planned spec. Runs that differ from the plan
    are counted in a note, or listed below the table with `modified`. Models without runs have no row in a
    table of the paper that does not print them, but with `planned` if a suite lists them. A suite that is not
    among `material` has no runs.

    Raises UnknownName where the definition names a reported table or column that does not exist.
    """
    pool = RunPool(material, definition)
    builder = _Builder(definition, pool, _find_printed(definition, list(reported)))
    rows = builder.build_rows(modified=modified, planned=planned)
    return Table(
        id=definition.id,
        title=definition.title,
        caption=write_caption(
            definition, pool, builder.columns, reported=any(cell.value for cell in builder.printed)
        ),
        columns=builder.columns,
        rows=tuple(rows),
        notes=tuple(dict.fromkeys([*definition.notes, *builder.notes])),
        protocol=definition.protocol,
        number=definition.number,
    )


class _Builder:
    """Builder of the rows of one table; `notes` collects those on the whole table."""

    def __init__(self, definition: TableDefinition, pool: RunPool, printed: list[ReportedCell]) -> None:
        self.definition, self.pool, self.printed = definition, pool, printed
        self.columns = _define_columns(definition, printed, pool)
        self.notes: list[str] = list(pool.notes)
        self.cells: dict[tuple[Column, str], Cell] = {}

    def build_rows(self, *, modified: bool, planned: bool) -> list[Row]:
        """Return all rows, in display order."""
        others = self._build_other_rows(without_runs=planned) if self.definition.others else []
        rows = mark_best([*self._build_reported_rows(), *others], self.columns)
        # A table of claims has only the paper's rows; everything else is in the suite's own table.
        is_claim = self.definition.claim is not None
        if not is_claim:
            rows += self._build_rule_rows()
            rows += self._build_modified_rows() if modified else []
        shown = {row.model for row in rows}
        models = [model for model in self.pool.models if model in shown]
        self.notes += note_more_seeds(self.pool, self.columns, models)
        self.notes += note_unlisted_models(self.pool, models)
        self.notes += note_own_settings(self.pool, self.columns, rows)
        self.notes += note_unlike_hardware(self.pool, self.columns, models)
        self.notes += () if modified or is_claim else note_modified_runs(self.pool, self.definition)
        self.notes += note_left_columns(self.columns, self.printed)
        return rows

    def _measure(self, column: Column, model: str) -> Cell:
        """Return the measured cell of a model, cached as the model may be in several rows."""
        if (column, model) not in self.cells:
            self.cells[column, model] = self._measure_once(column, model)
        return self.cells[column, model]

    def _measure_once(self, column: Column, model: str) -> Cell:
        if column.source == "average":
            parts = [self._find_part(place, column) for place in column.of]
            cell = average_cells(column.label, [(part.label, self._measure(part, model)) for part in parts])
            # A row without any number of its own needs no note on what its average lacks.
            some = any(self._measure(part, model).n for part in parts if part in self.columns)
            unlisted = any(self._measure(part, model).unlisted for part in parts)
            return replace(cell, unlisted=unlisted, notes=cell.notes if some else ())
        (place,) = column.places
        found, n_planned = self.pool.select(place, model), self.pool.count_planned(place, model)
        if column.source == "mixing":
            cell = measure_distances(found.finished, n_planned, self.pool.distances, self.notes)
        else:
            cell = measure_results(column, found, n_planned, self.notes)
        return replace(cell, unlisted=bool(cell.n) and not self.pool.lists(place, model))

    def _find_part(self, place: Place, whole: Column) -> Column:
        """Return the column of one task of an average: the table's own column, if it has one."""
        own = (column for column in self.columns if column.source == "run" and column.places == (place,))
        return next(own, Column(place[1], place[1], whole.unit, place[0]))

    def _build_reported_rows(self) -> list[Row]:
        groups: dict[tuple[str, str], list[ReportedCell]] = defaultdict(list)
        for cell in self.printed:
            groups[cell.group, cell.row].append(cell)
        rows = []
        for (group, name), printed in groups.items():
            by_column = {cell.column: cell for cell in printed}
            model = printed[0].model
            cells = tuple(
                _add_reported(self._measure(column, model), by_column.get(column.label))
                for column in self.columns
            )
            if model in self.pool.models or any(cell.reported for cell in cells):
                rows.append(Row(name, group, model, cells, printed[0].source))
        return rows

    def _build_other_rows(self, *, without_runs: bool) -> list[Row]:
        """Return rows for models missing in the paper's table: listed in the suites, or with runs."""
        in_paper = {cell.model for cell in self.printed}
        group = MEASURED_GROUP if self.printed else MODELS_GROUP
        places = {column.places[0] for column in self.columns if column.source != "average"}
        suites = {suite for suite, _ in places}
        planned = {key[2] for key in self.pool.plan if key[:2] in places}
        listed = {m for each in self.pool.material if each.suite.name in suites for m in each.suite.models}
        rows = []
        for model in self.pool.models:
            if model in planned and model not in in_paper:
                cells = tuple(self._measure(column, model) for column in self.columns)
                # A suite that has the rows of one of the paper's tables may list those of another, too.
                is_shown = model in listed and (without_runs or not self.printed)
                if is_shown or any(cell.status != "missing" or cell.notes for cell in cells):
                    rows.append(Row(model, group, model, cells))
        return rows

    def _build_rule_rows(self) -> list[Row]:
        rates: dict[str, dict[Column, float]] = defaultdict(dict)
        for column in self.columns:
            if column.source == "run" and self.definition.part == "test":
                for record in self.pool.list_runs(column.places[0]):
                    for name, value in record.baselines.items():
                        rates[name][column] = UNITS[column.unit].scale * value
        source = "counted on the test split"
        return [
            Row(
                name,
                RULES_GROUP,
                "",
                tuple(_build_rule_cell(of.get(column)) for column in self.columns),
                source,
            )
            for name, of in rates.items()
        ]

    def _build_modified_rows(self) -> list[Row]:
        """Return a row for every model and every way in which its runs differ from the plan."""
        groups: dict[tuple[str, str], dict[Place, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
        for key, records in self.pool.modified.items():
            specs = self.pool.plan.get(key, [])
            for record in records:
                # The planned spec to compare with is that of the same seed, else the first.
                same = (spec for spec in specs if spec.seed == record.seed)
                nearest = next(same, specs[0] if specs else None)
                label = describe_difference(record, nearest)
                groups[record.model, label][key[:2]].append(record)
        return [
            Row(
                f"{model} {MODIFIED_MARK} {label}",
                MODIFIED_GROUP,
                model,
                tuple(self._measure_modified(column, places) for column in self.columns),
                label,
            )
            for (model, label), places in sorted(groups.items())
        ]

    def _measure_modified(self, column: Column, places: Mapping[Place, list[RunRecord]]) -> Cell:
        """Return the cell of these runs; averages and mixing distances are of planned runs only."""
        place = column.places[0]
        records = places.get(place, []) if column.source == "run" else []
        if not records:
            return Cell()
        digest = find_newest(records).data_digest
        seeds = len({record.seed for record in records})
        cell = measure_results(column, select_runs(records, digest), seeds, self.notes)
        planned = {found for key, found in self.pool.data.items() if key[:2] == place and found}
        if not planned or digest in planned:
            return cell
        return replace(cell, notes=(*cell.notes, "measured on other data than the planned runs"))


def _find_printed(definition: TableDefinition, reported: list[ReportedCell]) -> list[ReportedCell]:
    """Return the cells of the reported table that the definition names."""
    tables = {cell.table for cell in reported}
    if definition.reported and definition.reported not in tables:
        raise UnknownName("reported table", definition.reported, tables, definition.where)
    found = [cell for cell in reported if cell.table == definition.reported]
    return found if definition.claim is None else _strip_numbers(definition, definition.claim, found)


def _strip_numbers(
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
    blank = {"column": heading, "value": "", "sd": "", "note": ""}
    bare = [
        cell.model_copy(update={"model": claim.rows.get(cell.row, cell.model), **blank})
        for cell in printed
        if cell.column == claim.column
    ]
    return [cell for cell in bare if cell.model]


def _define_columns(
    definition: TableDefinition, printed: Sequence[ReportedCell], pool: RunPool
) -> tuple[Column, ...]:
    """Return the columns, in the paper's unit where it prints them, else in that of the runs' metric."""
    units = {cell.column: cell.unit for cell in printed}
    for column in definition.columns:
        if column.printed and column.label not in units:
            raise UnknownName("reported column", column.label, units, definition.where)
    return tuple(
        replace(column, unit=units.get(column.label) or _find_unit(column, pool, definition.part))
        for column in definition.columns
    )


def _find_unit(column: Column, pool: RunPool, part: Part) -> str:
    """Return the unit of a column that the paper does not print; accuracy if there are no runs."""
    if column.source == "mixing":
        return "tokens"
    runs = (record for runs in (pool.planned, pool.modified) for key in runs for record in runs[key])
    metrics = [record.metric for record in runs if (record.suite, record.task) in column.places]
    return UNIT_OF_METRIC[part][metrics[0] if metrics else "accuracy"]


def _add_reported(cell: Cell, printed: ReportedCell | None) -> Cell:
    if printed is None:
        return cell
    notes = (f"reported: {printed.note}",) if printed.note else ()
    return replace(cell, reported=printed.value, reported_sd=printed.sd, reported_notes=notes)


def _build_rule_cell(rate: float | None) -> Cell:
    return Cell() if rate is None else Cell(measured=rate, status="trivial-rule")


def mark_best(rows: list[Row], columns: Sequence[Column]) -> list[Row]:
    """Return the rows with the best measured cell of each column marked, and all that print the same.

    Two cells are compared at the fewer of their decimals. A unit that is not ranked has no best, and a cell
    that its suite does not list is none.
    """
    best = []
    for index, column in enumerate(columns):
        cells = [row.cells[index] for row in rows if UNITS[column.unit].ranked]
        ranked = [cell for cell in cells if cell.n and not cell.unlisted]
        best.append(max(ranked, key=lambda cell: cell.measured or 0.0, default=None))
    return [replace(row, cells=tuple(map(_mark, row.cells, columns, best))) for row in rows]


def _mark(cell: Cell, column: Column, best: Cell | None) -> Cell:
    if best is None or not cell.n or cell.unlisted:
        return replace(cell, best=False)
    digits = min(UNITS[column.unit].count_decimals(each.sd) for each in (cell, best))
    texts = [f"{each.measured or 0.0:.{digits}f}" for each in (cell, best)]
    return replace(cell, best=texts[0] == texts[1])
