"""Lookup of a stored run by id, place or folder, and of a table's cell by ``TABLE:ROW:COLUMN``."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from msbench.errors import ConfigError, DamagedRecord, MsbenchError, UnknownName
from msbench.reporting.outcomes import FoundRun
from msbench.reporting.tables.cells import Cell, Column, Report, Row, Table
from msbench.reporting.tables.load import ReportOptions, load_report
from msbench.reporting.tables.selection import find_newest, parse_end_time
from msbench.results import store
from msbench.results.record import RunRecord, read_record

T = TypeVar("T")
LISTED = 8
"""The most runs that a message names."""
FORM = "TABLE:ROW:COLUMN, or TABLE ROW COLUMN where a name has a colon in it"


def format_run_title(record: RunRecord) -> str:
    """Return suite, task, model, seed and id of the run as a title."""
    return f"{record.suite} · {record.task} · {record.model} · seed {record.seed} · run {record.run_id}"


def find_run(results: Path, name: str) -> FoundRun:
    """Find the run of this `name`: the start of its id, ``suite:task:model[:seed]``, or its folder.

    Of several runs of one suite, task, model and seed it is the newest, which the note reports. Raises
    ConfigError where there is none, where it is not completed, or where the name is ambiguous, and
    DamagedRecord where it is not readable.
    """
    if (Path(name) / "run.json").is_file():
        folder = Path(name)
        return FoundRun(_read_completed(folder), folder)
    folders = store.list_run_folders(results).folders
    if ":" in name:
        return _choose_newest(name, _list_at_place(results, folders, name))
    return _find_by_id(results, name, [folder for folder in folders if folder.name.startswith(name)])


def _read_completed(folder: Path) -> RunRecord:
    record = read_record(folder)
    if record is None:
        raise ConfigError(f"{folder}: not completed: no run.json yet; the command that started it resumes it")
    return record


def _find_by_id(results: Path, name: str, folders: Sequence[Path]) -> FoundRun:
    if not folders:
        raise ConfigError(f"{results}: no run {name!r}; `msbench list runs` shows what there is")
    identities = sorted({folder.name for folder in folders})
    if len(identities) > 1:
        raise ConfigError(f"{name!r} is more than one run: {_join(identities)}")
    others = ", ".join(map(str, folders[1:]))
    note = f"run {identities[0]} is filed in {others} too" if others else ""
    return FoundRun(_read_completed(folders[0]), folders[0], note)


def _list_at_place(results: Path, folders: Sequence[Path], name: str) -> list[FoundRun]:
    """Return the completed runs at ``suite:task:model[:seed]``."""
    parts = name.split(":")
    if len(parts) not in (3, 4) or (len(parts) == 4 and not parts[3].isdecimal()):
        raise ConfigError(f"{name!r}: a place is suite:task:model or suite:task:model:seed")
    for depth, kind in enumerate(("suite", "task", "model")):
        known = {folder.parts[-4 + depth] for folder in folders}
        if not known:
            raise ConfigError(f"{results}: nothing has been run; 'msbench run SUITE' makes runs")
        if parts[depth] not in known:
            raise UnknownName(f"{kind} with runs in {results}", parts[depth], known)
        folders = [folder for folder in folders if folder.parts[-4 + depth] == parts[depth]]
    found, damaged = _read_all(folders)
    seeds = [each for each in found if len(parts) == 3 or each.record.seed == int(parts[3])]
    if not seeds and damaged:
        raise damaged[0]
    if not seeds:
        listed = _join(sorted({str(each.record.seed) for each in found}))
        raise ConfigError(f"{name}: no completed run{f'; there are seeds {listed}' if found else ''}")
    return [replace(each, note="\n".join(map(str, damaged))) for each in seeds]


def _read_all(folders: Iterable[Path]) -> tuple[list[FoundRun], list[MsbenchError]]:
    """Return the completed runs, and the errors of unreadable ones, which do not hide others."""
    found: list[FoundRun] = []
    damaged: list[MsbenchError] = []
    for folder in folders:
        try:
            record = store.read_run(folder)
        except (ConfigError, DamagedRecord) as error:
            damaged.append(error)
        else:
            found += [FoundRun(record, folder)] if record else []
    return found, damaged


def _choose_newest(name: str, found: Sequence[FoundRun]) -> FoundRun:
    seeds = sorted({each.record.seed for each in found})
    if len(seeds) > 1:
        listed = _join(list(map(str, seeds)))
        raise ConfigError(f"{name!r} has runs of seeds {listed}; add one: {name}:{seeds[0]}")
    record = find_newest(each.record for each in found)
    chosen = next(each for each in found if each.record is record)
    others = [each.record for each in found if each is not chosen]
    if not others:
        return chosen
    ids = _join([each.run_id for each in sorted(others, key=parse_end_time, reverse=True)])
    note = f"{name} is run {record.run_id}, the newest; older ones: {ids}"
    return replace(chosen, note="\n".join(filter(None, (note, chosen.note))))


def _join(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class CellAddress:
    """A cell: its table, its row, and the number of its column; `name` is the table's name as typed."""

    name: str
    report: Report
    table: Table
    row: Row
    number: int

    @property
    def column(self) -> Column:
        """The column of the cell."""
        return self.table.columns[self.number]

    @property
    def cell(self) -> Cell:
        """The cell itself."""
        return self.row.cells[self.number]


def split_cell_name(words: Sequence[str]) -> tuple[str, str, str]:
    """Split one word with colons, or two or three words, into table, row and column (may be empty).

    Raises ConfigError for anything else.
    """
    parts = words[0].split(":") if len(words) == 1 else list(words)
    if len(parts) not in (2, 3) or not all(parts):
        raise ConfigError(f"{' '.join(words)!r} is no cell: name it as {FORM}")
    return parts[0], parts[1], parts[2] if len(parts) == 3 else ""


def find_cell(words: Sequence[str], results: Path) -> CellAddress:
    """Find the cell that `words` name: a table of ``msbench report``, a row or model, a heading or task.

    The column may be omitted where there is only one. Raises UnknownName, which suggests a similar name, and
    ConfigError where the name is ambiguous.
    """
    name, row, column = split_cell_name(words)
    report = load_report(ReportOptions(names=[name], results=results, claims=False))
    if len(report.tables) > 1:
        raise ConfigError(f"{name!r} is more than one table: {', '.join(each.id for each in report.tables)}")
    (table,) = report.tables
    return CellAddress(name, report, table, _find_row(table, row), _find_column(table, column))


def _find_row(table: Table, name: str) -> Row:
    return _find_named("row", name, table, table.rows, [lambda row: row.name, lambda row: row.model])


def _find_column(table: Table, name: str) -> int:
    columns = range(len(table.columns))
    if not name:
        if len(columns) > 1:
            listed = ", ".join(column.label for column in table.columns)
            raise ConfigError(f"table {table.id} has more than one column; name one of {listed}")
        return 0
    names: list[Callable[[int], str]] = [
        lambda number: table.columns[number].label,
        lambda number: table.columns[number].task,
    ]
    return _find_named("column", name, table, columns, names)


def _simplify(name: str) -> str:
    """Return only letters and digits, in lower case: avg finds AVG., and pathx Path-X."""
    return "".join(filter(str.isalnum, name.casefold()))


def _find_named(
    kind: str, name: str, table: Table, among: Iterable[T], names: Sequence[Callable[[T], str]]
) -> T:
    """Return the item of this name: exact matches before similar ones, earlier `names` before later."""
    listed = list(among)
    for same in (str, str.casefold, _simplify):
        for named in names:
            found = [each for each in listed if named(each) and same(named(each)) == same(name)]
            if len(found) > 1:
                raise ConfigError(
                    f"table {table.id}: {kind} {name!r} is more than one: {', '.join(map(names[0], found))}"
                )
            if found:
                return found[0]
    known = {named(each) for each in listed for named in names} - {""}
    raise UnknownName(kind, name, known, f"table {table.id}")
