"""Tables as CSV: long (a row per cell, all fields) and wide (a row per model); unrounded, names unchanged.

Read them back with all fields as text, or models named None, NA, 1e5 or 007 change:
``pandas.read_csv(path, dtype=str, keep_default_na=False)``, or ``csv.DictReader(open(path, newline=""))``.
"""

from collections.abc import Iterable, Sequence

from msbench.reporting.tables.cells import Cell, Table

LONG = (
    *("table", "protocol", "group", "row", "model", "suite", "task", "source", "column", "unit"),
    *("reported", "reported_sd", "measured", "sd", "n", "n_planned", "status", "best"),
    *("verdict", "reason", "expected", "margin", "low", "high", "seeds_needed"),
    *("run_ids", "provenance", "notes"),
)


def long(table: Table) -> bytes:
    """Return a row per cell, UTF-8 with LF; `measured` and `sd` are in `unit`, empty where missing."""
    texts = {note.mark: note.text for note in table.notes if note.mark}
    rows = [
        (
            *(table.id, table.protocol, row.group, row.name, row.model),
            *(column.suite, column.task, column.source, column.label, column.unit),
            *(cell.reported, cell.reported_sd, number(cell.measured), number(cell.sd)),
            *(cell.n, cell.n_planned, cell.status, "yes" if cell.best else ""),
            *_verdict(cell),
            *(" ".join(cell.run_ids), row.provenance),
            "; ".join(texts[mark] for mark in (*cell.marks, *cell.reported_marks)),
        )
        for row in table.rows
        for cell, column in zip(row.cells, table.columns, strict=True)
    ]
    return encoded(LONG, rows)


def wide(table: Table) -> bytes:
    """Return a row per model; every column has ``reported``, ``measured``, ``sd``, ``n`` and ``status``.

    Headers begin with the name of the task, and with the suite's where two suites share a task name.
    """
    parts = ("reported", "measured", "sd", "n", "status")
    header = ["group", "row", "model", *(f"{name} {part}" for name in _names(table) for part in parts)]
    rows = []
    for row in table.rows:
        cells = [
            value
            for cell in row.cells
            for value in (cell.reported, number(cell.measured), number(cell.sd), cell.n, cell.status)
        ]
        rows.append((row.group, row.name, row.model, *cells))
    return encoded(header, rows)


def _names(table: Table) -> list[str]:
    tasks = [column.task for column in table.columns]
    if len(set(tasks)) == len(tasks):
        return tasks
    return [f"{column.suite}/{column.task}" for column in table.columns]


def _verdict(cell: Cell) -> tuple[object, ...]:
    """Return the fields of the verdict, with rates as fractions; empty where there is none."""
    if cell.standing is not None:
        return (cell.standing.verdict, cell.standing.reason, *("",) * 5)
    given = cell.judgement
    if given is None:
        return ("",) * 7
    numbers = (given.expected, given.margin, given.low, given.high)
    needed = "" if given.seeds_needed is None else given.seeds_needed
    return (given.verdict, given.reason, *map(number, numbers), needed)


def number(value: float | None) -> str:
    """Return the shortest text that reads back as the same float; empty for None."""
    return "" if value is None else repr(value)


def encoded(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a header and rows as UTF-8 with LF, each field quoted where necessary."""
    text = "".join(",".join(map(_field, row)) + "\n" for row in (header, *rows))
    # A name from the command line may contain bytes that are not UTF-8; they must not abort the report.
    return text.encode("utf-8", "backslashreplace")


def _field(value: object) -> str:
    """Quote a value where necessary; the standard writer leaves a lone CR, which its own reader refuses."""
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text
