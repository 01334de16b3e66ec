"""Lookup of a stored run by id, place or folder, and of a table's cell by ``TABLE:ROW:COLUMN``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msbench.errors import ConfigError, UnknownName
from msbench.reporting.outcomes import FoundRun
from msbench.reporting.tables.cells import Cell, Column, Report, Row, Table, find_run_folder
from msbench.reporting.tables.load import ReportOptions, load_report
from msbench.reporting.tables.selection import find_newest, parse_end_time
from msbench.results import store
from msbench.results.record import RunRecord, read_record

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
    stored = store.read_folders(store.FolderListing(list(folders)))
    found = [each for each in stored.records if len(parts) == 3 or each.seed == int(parts[3])]
    if not found and stored.unreadable:
        raise next(iter(stored.unreadable.values()))
    if not found:
        listed = _join(sorted({str(each.seed) for each in stored.records}))
        raise ConfigError(f"{name}: no completed run{f'; there are seeds {listed}' if listed else ''}")
    note = "\n".join(stored.warnings)
    return [FoundRun(record, find_run_folder(results, record), note) for record in found]


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
    at = _find_named("row", row, table, [(each.name, each.model) for each in table.rows])
    columns = [(each.label, each.task) for each in table.columns]
    if not column and len(columns) > 1:
        listed = ", ".join(label for label, _ in columns)
        raise ConfigError(f"table {table.id} has more than one column; name one of {listed}")
    number = _find_named("column", column, table, columns) if column else 0
    return CellAddress(name, report, table, table.rows[at], number)


def _simplify(name: str) -> str:
    """Return only letters and digits, in lower case: avg finds AVG., and pathx Path-X."""
    return "".join(filter(str.isalnum, name.casefold()))


def _find_named(kind: str, name: str, table: Table, items: Sequence[tuple[str, str]]) -> int:
    """Return the index of the item of this name, of two each has: exact matches before similar ones."""
    for same in (str, str.casefold, _simplify):
        for names in zip(*items, strict=True):
            found = [at for at, each in enumerate(names) if each and same(each) == same(name)]
            if len(found) > 1:
                listed = ", ".join(items[at][0] for at in found)
                raise ConfigError(f"table {table.id}: {kind} {name!r} is more than one: {listed}")
            if found:
                return found[0]
    raise UnknownName(kind, name, {each for names in items for each in names} - {""}, f"table {table.id}")
