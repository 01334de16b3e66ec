"""A table as CSV: long (a row a cell, everything) and wide (a row a model). Unrounded, names as they are."""

from collections.abc import Iterable, Sequence

from msbench.report.cells import Table

LONG = (
    *("table", "protocol", "group", "row", "model", "task", "column", "unit"),
    *("reported", "reported_sd", "measured", "sd", "n", "n_planned", "status", "best"),
    *("run_ids", "provenance", "notes"),
)


def long(table: Table) -> bytes:
    """A row a cell, UTF-8 with LF; `measured` and `sd` are in `unit` and empty where there is none."""
    texts = {note.mark: note.text for note in table.notes if note.mark}
    rows = [
        (
            *(table.id, table.protocol, row.group, row.name, row.model),
            *(column.task, column.label, column.unit),
            *(cell.reported, cell.reported_sd, number(cell.measured), number(cell.sd)),
            *(cell.n, cell.n_planned, cell.status, "yes" if cell.best else ""),
            *(" ".join(cell.run_ids), row.provenance),
            "; ".join(texts[mark] for mark in (*cell.marks, *cell.reported_marks)),
        )
        for row in table.rows
        for cell, column in zip(row.cells, table.columns, strict=True)
    ]
    return _encoded(LONG, rows)


def wide(table: Table) -> bytes:
    """A row a model; every task has its columns ``reported``, ``measured``, ``sd``, ``n`` and ``status``."""
    parts = ("reported", "measured", "sd", "n", "status")
    header = ["group", "row", "model", *(f"{c.task} {part}" for c in table.columns for part in parts)]
    rows = []
    for row in table.rows:
        cells = [
            value
            for cell in row.cells
            for value in (cell.reported, number(cell.measured), number(cell.sd), cell.n, cell.status)
        ]
        rows.append((row.group, row.name, row.model, *cells))
    return _encoded(header, rows)


def number(value: float | None) -> str:
    """The shortest text that reads back as the same float; empty for None."""
    return "" if value is None else repr(value)


def _encoded(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    text = "".join(",".join(map(_field, row)) + "\n" for row in (header, *rows))
    # A name from the command line may hold bytes that were no UTF-8; they must not end the report.
    return text.encode("utf-8", "backslashreplace")


def _field(value: object) -> str:
    """Quoted where it must be; the standard writer leaves a lone CR bare, which its own reader refuses."""
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text
