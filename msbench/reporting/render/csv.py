"""Tables as CSV: long (a row per cell, all fields) and wide (a row per model); unrounded, names unchanged.

Read them back with all fields as text, or models named None, NA, 1e5 or 007 change:
``pandas.read_csv(path, dtype=str, keep_default_na=False)``, or ``csv.DictReader(open(path, newline=""))``.
"""

from msbench.reporting.tables.cells import Bin, Cell, Table
from msbench.results.files import encode_csv

LONG = (
    *("table", "protocol", "group", "row", "model", "suite", "task", "source", "column", "unit"),
    *("reported", "reported_sd", "measured", "sd", "n", "n_planned", "status", "best"),
    *("verdict", "reason", "expected", "margin", "low", "high", "seeds_needed"),
    *("run_ids", "provenance", "notes"),
)
NUMBERS = (
    *("reported", "reported_sd", "measured", "sd", "n", "n_planned"),
    *("expected", "margin", "low", "high", "seeds_needed"),
)
"""Those of `LONG` that hold numbers."""
OF_BINS = ("interval_low", "interval_high", "bin_low", "bin_high", "bin_examples")
"""What follows in a table by a property: the interval in `unit`, and the examples that the cell is of."""


def list_fields(table: Table) -> tuple[str, ...]:
    """Return the names of the values of a cell."""
    return (*LONG, *OF_BINS) if table.by else LONG


def render_long(table: Table) -> bytes:
    """Return a row per cell, UTF-8 with LF; `measured` and `sd` are in `unit`, empty where missing."""
    return encode_csv(list_fields(table), list_cells(table))


def list_cells(table: Table) -> list[tuple[object, ...]]:
    """Return the values of each cell under the names of `list_fields`."""
    order = list(table.letters).index
    return [
        (
            *(table.id, table.protocol, row.group, row.name, row.model),
            *(column.suite, column.task, column.source, column.label, column.unit),
            *(cell.reported, cell.reported_sd, cell.measured, cell.sd),
            *(cell.n, cell.n_planned, cell.status, "yes" if cell.best else ""),
            *_format_verdict(cell),
            *(" ".join(cell.run_ids), row.provenance),
            "; ".join((*sorted(cell.notes, key=order), *sorted(cell.reported_notes, key=order))),
            *(_format_bin(cell, column.bin) if table.by else ()),
        )
        for row in table.rows
        for cell, column in zip(row.cells, table.columns, strict=True)
    ]


def render_wide(table: Table) -> bytes:
    """Return a row per model; every column has ``reported``, ``measured``, ``sd``, ``n`` and ``status``.

    Headers begin with the name of the task, and with the suite's where two suites share a task name; in a
    table by a property with the label of the column.
    """
    parts = ("reported", "measured", "sd", "n", "status")
    header = ["group", "row", "model", *(f"{name} {part}" for name in _name_columns(table) for part in parts)]
    rows = []
    for row in table.rows:
        cells = [
            value
            for cell in row.cells
            for value in (cell.reported, cell.measured, cell.sd, cell.n, cell.status)
        ]
        rows.append((row.group, row.name, row.model, *cells))
    return encode_csv(header, rows)


def _name_columns(table: Table) -> list[str]:
    tasks = [column.label if table.by else column.task for column in table.columns]
    if len(set(tasks)) == len(tasks):
        return tasks
    return [f"{column.suite}/{column.task}" for column in table.columns]


def _format_bin(cell: Cell, examples: Bin | None) -> tuple[object, ...]:
    bounds = (examples.low, examples.high, examples.n) if examples else ("",) * 3
    return (*(cell.interval or ("", "")), *bounds)


def _format_verdict(cell: Cell) -> tuple[object, ...]:
    """Return the fields of the verdict, with rates as fractions; empty where there is none."""
    if cell.standing is not None:
        return (cell.standing.verdict, cell.standing.reason, *("",) * 5)
    given = cell.judgement
    if given is None:
        return ("",) * 7
    numbers = (given.expected, given.margin, given.low, given.high, given.seeds_needed)
    return (given.verdict, given.reason, *numbers)
