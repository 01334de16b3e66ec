from pathlib import Path

import pytest
from report_runs import SmallSuite, SuiteReported, as_suite

from msbench.config import MODELS
from msbench.reporting.tables.definitions import (
    PAPER_TABLES,
    TableDefinition,
    define_suite_table,
    list_paper_names,
)
from msbench.results.reported import ReportedCell, read_all_reported
from msbench.runs.suite import load_suite

REPORTED = Path(__file__).parents[2] / "results" / "reported"
each_table = pytest.mark.parametrize("table", PAPER_TABLES, ids=lambda table: table.id)


def cells_of(table: TableDefinition) -> list[ReportedCell]:
    return [cell for cell in read_all_reported(REPORTED) if cell.table == table.reported]


def test_there_are_seven_each_with_numbers_of_the_paper() -> None:
    assert [table.number for table in PAPER_TABLES] == [1, 2, 3, 4, 5, 6, 7]
    assert {table.reported for table in PAPER_TABLES} == {path.stem for path in REPORTED.glob("*.csv")}
    names = [name for table in PAPER_TABLES for name in list_paper_names(table)]
    assert len(set(names)) == len(names)


@each_table
def test_columns_are_all_that_the_paper_prints_in_its_order(table: TableDefinition) -> None:
    printed = dict.fromkeys(cell.column for cell in cells_of(table))
    assert [column.label for column in table.columns if column.printed] == list(printed)


@each_table
def test_columns_are_tasks_of_suites_at_the_papers_settings(table: TableDefinition) -> None:
    """A scaled-down suite is never next to the paper's numbers."""
    for name, task in table.places:
        suite = load_suite(name)
        assert suite.protocol == "paper"
        assert task in suite.tasks


@each_table
def test_rows_are_measured_by_models_that_there_are(table: TableDefinition) -> None:
    models = {cell.model for cell in cells_of(table) if cell.model}
    assert models <= MODELS.keys()
    assert any(model.startswith("msssm-") for model in models)


@pytest.mark.parametrize("name", ["listops", "ptbxl"])
def test_a_suite_that_is_a_table_of_the_paper_has_the_same_columns(name: str) -> None:
    """The suite's file and the definition say where numbers stand; they must not come to differ."""
    [paper] = (table for table in PAPER_TABLES if table.id == name)
    own = define_suite_table(load_suite(name))
    assert (own.columns, own.reported) == (paper.columns, paper.reported)


def test_the_columns_of_long_range_arena_are_the_suites_and_two_averages() -> None:
    [paper] = (table for table in PAPER_TABLES if table.id == "lra")
    own = define_suite_table(load_suite("lra"))
    assert paper.columns[:5] == own.columns
    five, six = paper.columns[5:]
    assert five.of == tuple(place for column in own.columns for place in column.places)
    assert six.of == (*five.of, ("listops", "listops"))
    assert (five.label, five.printed, six.printed) == ("AVG.", True, False)
    said = " ".join(paper.notes)
    assert "AVG." in paper.caption
    assert "HGRN2" in paper.caption
    assert "without ListOps" in said
    assert "Path-X as 0" in said


def test_a_suites_own_table_has_a_column_a_task() -> None:
    suite = SmallSuite(reported=SuiteReported("listops", {"a": "A (%)"}), tasks=("a", "b"), protocol="paper")
    table = define_suite_table(as_suite(suite))
    assert [(column.label, column.task, column.printed) for column in table.columns] == [
        ("A (%)", "a", True),
        ("b", "b", False),
    ]
    assert (table.id, table.number, table.where) == ("small", None, "suite small")
