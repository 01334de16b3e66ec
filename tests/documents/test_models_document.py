"""`docs/models.md`: every system that the paper reports has its line, and what is said to be built is."""

import re
from pathlib import Path

import pytest

from msbench.config import MODELS
from msbench.reporting.tables.definitions import PAPER_SUITES, PAPER_TABLES
from msbench.results.reported import read_all_reported
from msbench.runs.suite import load_suite

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / "docs" / "models.md").read_text(encoding="utf-8")
REPORTED = read_all_reported(REPOSITORY / "results" / "reported")
ABLATIONS = ("ablation", "ablation-initialisation")


def section(title: str) -> list[list[str]]:
    """The rows of the table under a heading."""
    (body,) = re.findall(rf"## {title}\n(.*?)(?=\n## |\Z)", TEXT, re.DOTALL)
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


SYSTEMS, VARIANTS, OTHERS = map(section, ("Systems", "Rows of the ablations", "Models without a row"))


def list_names(cell: str) -> list[str]:
    found = re.findall(r"`([a-z0-9-]+)`", cell)
    assert ", ".join(f"`{name}`" for name in found) == cell, cell
    return found


NAMED = {name for row in SYSTEMS + VARIANTS for name in list_names(row[1])}
NAMED |= {name for row in OTHERS for name in list_names(row[0])}
"""The models that any line names."""


def rows(*tables: str) -> set[str]:
    return {cell.row for cell in REPORTED if cell.table in tables}


def test_every_system_has_its_line_and_no_other_has() -> None:
    found = [row[0] for row in SYSTEMS]
    assert len(found) == len(set(found)) == 44
    assert set(found) == rows(*{cell.table for cell in REPORTED} - set(ABLATIONS))


def test_every_row_of_the_ablations_has_its_line() -> None:
    assert sorted(row[0] for row in VARIANTS) == sorted(rows(*ABLATIONS))


def test_the_counts_of_the_introduction_are_right() -> None:
    said = re.findall(r"\b(\d+)\b", TEXT.split("##")[0])
    assert list(map(int, said)) == [len(SYSTEMS), len(MODELS)]


def test_each_system_has_a_model_and_a_description() -> None:
    for row in SYSTEMS:
        assert len(row) == 4
        assert list_names(row[1]), row
        assert len(row[3]) > 15, row


def test_the_models_that_are_named_are_those_that_there_are() -> None:
    missing = [f"| `{name}` | {MODELS[name].summary} |" for name in MODELS if name not in NAMED]
    assert missing == [], "docs/models.md: add these lines to a table, such as 'Models without a row'"
    assert NAMED - set(MODELS) == set(), "docs/models.md: remove the lines of these"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_rows_that_a_model_stands_for_are_on_its_line(name: str) -> None:
    listed = {row[0] for row in SYSTEMS + VARIANTS if name in re.findall(r"`([a-z0-9-]+)`", row[1])}
    for printed in MODELS[name].rows:
        assert any(row == printed or re.fullmatch(rf"\d+ {re.escape(printed)}", row) for row in listed), (
            printed
        )


def test_every_printed_number_is_a_planned_run() -> None:
    planned = {(name, *cell) for name in PAPER_SUITES for cell in load_suite(name).cells}
    columns = {(each.reported, column.label): column for each in PAPER_TABLES for column in each.columns}
    count = 0
    for cell in REPORTED:
        column = columns[cell.table, cell.column]
        if not cell.value or column.source == "average":  # computed from the others
            continue
        assert all((*place, cell.model) in planned for place in column.places), cell
        count += 1
    assert count > 180
