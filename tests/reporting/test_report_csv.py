import csv
import io
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import ODD_NAMES, PlannedRun, build, printed, run

from msbench.reporting.render.csv import LONG, render_long, render_wide
from msbench.reporting.tables.cells import Cell, Column, Row, Table
from msbench.results.files import FORMULA


def read(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8"), newline="")))


def table_of(names: list[str]) -> Table:
    rows = tuple(Row(name, name, name, (Cell("59.60"), Cell()), name) for name in names)
    return Table("t", "t", "t", (Column("a", "A"), Column("b", "B")), rows)


def show(name: str) -> str:
    """A name as a CSV has it: only what spreadsheets would run is escaped."""
    return f"\\u{ord(name[0]):04x}{name[1:]}" if FORMULA.match(name) else name


@given(st.lists(st.text(), max_size=4))
def test_any_name_is_read_back(names: list[str]) -> None:
    table = table_of([*names, *ODD_NAMES])
    back = read(render_long(table))
    assert [line["row"] for line in back] == [show(row.name) for row in table.rows for _ in row.cells]
    assert [line["provenance"] for line in back] == [line["group"] for line in back]
    assert [line["row"] for line in read(render_wide(table))] == [show(row.name) for row in table.rows]


def test_every_line_has_every_field_and_ends_in_lf() -> None:
    data = render_long(table_of(["a", "b"]))
    lines = list(csv.reader(io.StringIO(data.decode(), newline="")))
    assert {len(line) for line in lines} == {len(LONG)}
    assert b"\r" not in data
    assert data.endswith(b"\n")


def test_numbers_are_unrounded_and_agree_with_the_table() -> None:
    values = [0.10, 0.12, 0.30]
    specs = [PlannedRun("listops", "mamba", seed) for seed in range(3)]
    table = build(specs, [run(spec, value) for spec, value in zip(specs, values, strict=True)])
    [line] = read(render_long(table))
    cell = table.rows[0].cells[0]
    assert (float(line["measured"]), float(line["sd"])) == (cell.measured, cell.sd)
    assert float(line["sd"]) == pytest.approx(100 * statistics.stdev(values), rel=1e-15)
    assert (line["n"], line["n_planned"], line["unit"]) == ("3", "3", "percent")
    assert len(line["run_ids"].split()) == 3
    [across] = read(render_wide(table))
    assert across["listops measured"] == line["measured"]


def test_what_was_not_measured_is_empty_and_says_why() -> None:
    specs = [PlannedRun("listops", name) for name in ("mamba", "s4", "s5")]
    records = [run(specs[0], 0.8), run(specs[1], None, status="diverged")]
    lines = read(render_long(build(specs, records)))
    assert [(line["measured"], line["sd"], line["status"]) for line in lines] == [
        ("80.0", "", "measured"),
        ("", "", "diverged"),
        ("", "", "missing"),
    ]


def test_reported_values_keep_their_zeros_and_notes() -> None:
    spec = PlannedRun("listops", "mamba")
    cells = [printed("Mamba", "38.00", model="mamba", sd="0.10", note="a note")]
    [line] = read(render_long(build([spec], [run(spec)], cells)))
    assert (line["reported"], line["reported_sd"]) == ("38.00", "0.10")
    assert line["notes"] == "reported: a note"


def test_bytes_that_were_no_text_do_not_end_the_report() -> None:
    assert read(render_long(table_of(["a\udcffb"])))[0]["row"] == "a\\udcffb"
