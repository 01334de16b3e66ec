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
STATES = ("built", "planned")
ONLY = "published number only"


def section(title: str) -> list[list[str]]:
    """The rows of the table under a heading."""
    (body,) = re.findall(rf"## {title}\n(.*?)(?=\n## |\Z)", TEXT, re.DOTALL)
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


SYSTEMS, VARIANTS, OTHERS = map(section, ("Systems", "Rows of the ablations", "Models without a row"))
NAMED = [(row[1], row[2]) for row in SYSTEMS + VARIANTS if row[1] != ONLY] + [
    (row[0], row[1]) for row in OTHERS
]
"""Names, and their state, of every line that has any."""


def names(cell: str) -> list[str]:
    found = re.findall(r"`([a-z0-9-]+)`", cell)
    assert ", ".join(f"`{name}`" for name in found) == cell, cell
    return found


def in_state(state: str) -> set[str]:
    return {name for cell, said in NAMED if said == state for name in names(cell)}


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


def test_every_system_has_a_model() -> None:
    assert [row for row in SYSTEMS if row[1] == ONLY] == []


def test_a_state_is_said_of_every_model_and_of_nothing_else() -> None:
    for row in SYSTEMS:
        assert len(row) == 5
        assert (row[2] == "") == (row[1] == ONLY), row
        assert len(row[4]) > 15, row
    assert all(state in STATES for _, state in NAMED)
    assert not in_state("built") & in_state("planned")


@pytest.mark.parametrize("name", sorted(in_state("built")))
def test_what_is_said_to_be_built_is(name: str) -> None:
    assert name in MODELS, f"docs/models.md says that {name} is built"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_is_built_is_said_to_be(name: str) -> None:
    assert name in in_state("built"), f"{name} is a model: docs/models.md must say that it is built"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_rows_that_a_model_stands_for_are_on_its_line(name: str) -> None:
    listed = {row[0] for row in SYSTEMS + VARIANTS if name in re.findall(r"`([a-z0-9-]+)`", row[1])}
    for printed in MODELS[name].rows:
        assert any(row == printed or re.fullmatch(rf"\d+ {re.escape(printed)}", row) for row in listed), (
            printed
        )


def test_every_printed_number_is_a_planned_run_or_has_one_reason() -> None:
    planned = {(name, *cell) for name in PAPER_SUITES for cell in load_suite(name).cells}
    without = {row[0] for row in SYSTEMS if row[1] == ONLY}
    columns = {(each.reported, column.label): column for each in PAPER_TABLES for column in each.columns}
    count = 0
    for cell in REPORTED:
        column = columns[cell.table, cell.column]
        if not cell.value or column.source == "average":  # computed from the others
            continue
        runs = all((*place, cell.model) in planned for place in column.places)
        assert runs + (cell.row in without) == 1, cell
        count += runs
    assert count > 130
