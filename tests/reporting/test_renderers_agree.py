"""One table, four renderers: every number of the seven tables is the same in each of them."""

import csv
import html
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import pandas as pd
import pytest
from many_runs import write_many
from report_runs import RULES, PlannedRun, build, read_report, run
from test_measure import written

from msbench.reporting.render import formatting
from msbench.reporting.render.csv import render_long, render_wide
from msbench.reporting.render.html.page import render_page
from msbench.reporting.render.html.runs import gather_runs
from msbench.reporting.render.latex import render_fragment
from msbench.reporting.render.terminal import render_table
from msbench.reporting.tables.cells import UNITS, Report, Table
from msbench.reporting.tables.definitions import PAPER_TABLES
from msbench.results import store
from msbench.results.record import read_record

HEADS = re.compile(r"( & \\multicolumn\{\d+\}\{c\}|Model & )")
Number = tuple[str, str, str, bool]
"""Value, spread, count such as 2/3, and whether it is the best; empty where there is none."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """All seven, filled with several seeds a model, runs that failed, and distances."""
    results = tmp_path_factory.mktemp("runs")
    write_many(results, 400)
    for path in (results / "scifar" / "scifar" / "msssm-s4").glob("*/run.json"):
        record = read_record(path.parent)
        assert record is not None
        path.write_text(record.model_copy(update={"status": "diverged", "metrics": {}}).model_dump_json())
    for folder in store.list_run_folders(results, "listops").folders:
        written(folder)
    return read_report(["paper"], results)


@pytest.fixture(scope="module", params=range(7), ids=[each.id for each in PAPER_TABLES])
def table(loaded: Report, request: pytest.FixtureRequest) -> Table:
    index: int = request.param
    return loaded.tables[index]


def test_the_tables_are_filled(table: Table) -> None:
    cells = [cell for row in table.rows for cell in row.cells]
    assert any(cell.n > 1 and cell.sd for cell in cells)
    assert any(cell.reported for cell in cells)
    assert any(cell.best for cell in cells) == any(UNITS[column.unit].ranked for column in table.columns)


def test_some_means_lack_seeds_and_some_cells_a_result(loaded: Report) -> None:
    cells = [cell for table in loaded.tables for row in table.rows for cell in row.cells]
    assert any(0 < cell.n < cell.n_planned for cell in cells)
    assert {"diverged", "missing"} < {cell.status for cell in cells}


def test_csv_terminal_latex_and_page_have_the_same_numbers(loaded: Report, table: Table) -> None:
    expected = list(from_csv(table))
    assert list(from_terminal(table)) == expected
    assert list(from_latex(table)) == [(name, (*number[:3], False)) for name, number in expected]
    assert list(from_page(loaded, table)) == expected


def test_pandas_reads_back_what_the_cells_hold(table: Table) -> None:
    read = pd.read_csv(io.BytesIO(render_long(table)), dtype=str, keep_default_na=False)
    cells = [cell for row in table.rows for cell in row.cells]
    assert list(read["reported"]) == [cell.reported for cell in cells]
    assert [float(text) if text else None for text in read["measured"]] == [each.measured for each in cells]
    assert [float(text) if text else None for text in read["sd"]] == [each.sd for each in cells]
    broad = pd.read_csv(io.BytesIO(render_wide(table)), dtype=str, keep_default_na=False)
    assert list(broad["row"]) == [row.name for row in table.rows]
    kept = [name for name in broad.columns if name.endswith(" measured")]
    assert broad[kept].to_numpy().ravel().tolist() == read["measured"].tolist()


@pytest.mark.parametrize(
    ("result", "mark"),
    [
        (0.05, "below it"),
        (0.30, "below it"),
        (0.363, "within two standard errors of it"),
        (0.38, "within two standard errors of it"),
        (0.63, ""),
    ],
)
def test_a_result_at_or_below_a_trivial_rule_is_marked_in_every_renderer(
    result: float, mark: str, tmp_path: Path
) -> None:
    plan = [PlannedRun("listops", "mamba")]
    table = build(plan, [run(plan[0], result, baselines=RULES)])
    report = Report((table,), tmp_path, {})
    page = render_page(report, gather_runs(report), made=datetime(2026, 1, 1, tzinfo=UTC)).decode()
    rendered = {
        "csv": render_long(table).decode(),
        "terminal": render_table(table),
        "LaTeX": render_fragment(table),
        "page": html.unescape(page),
        "JSON": json.dumps(table.as_dict()),
    }
    for name, text in rendered.items():
        assert ("learned no more than the trivial rule" in text) == bool(mark), name
        assert mark in text, name
    marked = {
        "terminal": rf"mamba +{100 * result:.2f}\*? \[a\]",
        "LaTeX": r"mamba & \d+ & \.\d+\\textsuperscript\{a\}",
        "JSON": r'"marks": \["a"\]',
    }
    for name, pattern in marked.items():
        assert bool(re.search(pattern, rendered[name])) == bool(mark), name


def from_csv(table: Table) -> Iterator[tuple[str, Number]]:
    """The numbers of the long form, each rounded as the one rule says."""
    shown = cycle(table.kinds)
    for row in csv.DictReader(io.StringIO(render_long(table).decode(), newline="")):
        for kind in next(shown):
            if kind == "reported":
                yield row["row"], (row["reported"] or "--", row["reported_sd"], "", False)
            elif not row["measured"]:
                yield row["row"], (formatting.STATUS[row["status"]], "", "", False)
            else:
                sd = float(row["sd"]) if row["sd"] else None
                value, spread = UNITS[row["unit"]].format_mean(float(row["measured"]), sd)
                n, planned = row["n"], row["n_planned"]
                count = f"{n}/{planned}" if int(n) < int(planned) else ""
                yield row["row"], (value, spread, count, row["best"] == "yes")


def parsed(text: str, star: str) -> Number:
    """A number as a terminal or LaTeX prints it, without its marks."""
    found = re.fullmatch(rf"(\S+?)({star})?(?:±(\S+))?(?: \((\d+/\d+)\))?", text)
    assert found, text
    return found[1], found[3] or "", found[4] or "", bool(found[2])


def from_terminal(table: Table) -> Iterator[tuple[str, Number]]:
    _, rule, below = re.split(r"^(─+)\n", render_table(table), flags=re.MULTILINE)
    assert rule
    lines = [line for line in below.split("\n\n")[0].splitlines() if "  " in line.strip()]
    for row, line in zip(table.rows, lines, strict=True):
        assert line.strip().startswith(f"{row.name}  ")
        parts = re.split(r" {2,}", line.strip().removeprefix(row.name).strip())
        yield from ((row.name, parsed(re.sub(r" \[[a-z,]+\]$", "", part), r"\*")) for part in parts)


def from_latex(table: Table) -> Iterator[tuple[str, Number]]:
    """The numbers of LaTeX, each in several cells; it has marks of its own for the best."""
    source = render_fragment(table)
    [head] = [line for line in source.splitlines() if line.startswith("Model & ")]
    widths = [int(width) for width in re.findall(r"multicolumn\{(\d)\}\{l\}\{(?:reported|measured)", head)]
    lines = [
        line for line in source.splitlines() if re.search(r" & .* \\\\$", line) and not HEADS.match(line)
    ]
    for row, line in zip(table.rows, lines, strict=True):
        parts = line.removesuffix(r" \\").split(" & ")[1:]
        for width in widths:
            several = parts[0].startswith(r"\multicolumn")
            text = "".join(parts[: 1 if several else width])
            del parts[: 1 if several else width]
            text = re.sub(r"\\multicolumn\{\d\}\{l\}\{(.*)\}$", r"\1", text)
            text = re.sub(r"\\textsuperscript\{[a-z,]+\}", "", text).replace(r"$\pm$ ", "±")
            yield row.name, parsed(re.sub(r"\\(?:underline|textbf)\{(\S+?)\}", r"\1", text).strip(), "BEST")
        assert not parts


def from_page(loaded: Report, table: Table) -> Iterator[tuple[str, Number]]:
    report = replace(loaded, tables=(table,))
    page = render_page(report, gather_runs(report), made=datetime(2026, 1, 1, tzinfo=UTC))
    root = ET.fromstring(page.decode().removeprefix("<!DOCTYPE html>"))
    [first, *_] = root.iter("table")
    rows = [row for row in first.iter("tr") if row.find("td") is not None]
    for row in rows:
        name = row.findtext("th") or ""
        yield from ((name, of_page(each)) for each in row.iter("td"))


def of_page(cell: ET.Element) -> Number:
    best = cell.find("*[@class='best']")
    value = next(text for text in (cell.text, *(each.text for each in cell)) if text and text.strip())
    spans = {each.get("class"): each.text or "" for each in cell.iter("span")}
    count = re.match(r"(\d+) of (\d+) ", spans.get("seeds", ""))
    spread = spans.get("sd", "").replace(" ± ", "")
    return value.strip(), spread, "/".join(count.groups()) if count else "", best is not None
