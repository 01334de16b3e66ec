"""From words to a cell."""

import shutil
from pathlib import Path

import pytest

from msbench.errors import ConfigError, Undecided, UnknownName
from msbench.reporting.compare.address import locate, split
from msbench.results.reported import find_reported


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder without runs, with the paper's numbers."""
    shutil.copytree(find_reported(tmp_path), tmp_path / "results" / "reported")
    return tmp_path / "results"


def test_words_are_split_at_colons_unless_they_are_three() -> None:
    assert split(["lra:mamba:text"]) == ("lra", "mamba", "text")
    assert split(["lra", "a:b", "c:d"]) == ("lra", "a:b", "c:d")
    assert split(["listops:mamba"]) == ("listops", "mamba", "")


@pytest.mark.parametrize("words", [["lra"], ["a:b:c:d"], ["a::c"], ["a", "b", "c", "d"], [""]])
def test_anything_else_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="TABLE:ROW:COLUMN"):
        split(words)


@pytest.mark.parametrize("table", ["lra", "table-4", "4"])
@pytest.mark.parametrize("row", ["Mamba", "mamba", "MAMBA"])
@pytest.mark.parametrize("column", ["Path-X", "path-x", "pathx", "PATHX"])
def test_names_may_be_written_in_several_ways(results: Path, table: str, row: str, column: str) -> None:
    found = locate([f"{table}:{row}:{column}"], results)
    assert (found.table.id, found.row.name, found.column.label) == ("lra", "Mamba", "Path-X")
    assert found.cell is found.row.cells[found.number]


def test_an_average_is_a_column(results: Path) -> None:
    assert locate(["4:mamba:avg"], results).column.source == "average"


def test_the_only_column_needs_no_name(results: Path) -> None:
    assert locate(["listops:mamba"], results).column.label == "Accuracy (%)"
    with pytest.raises(ConfigError, match="more than one column; name one of Text, Retrieval"):
        locate(["lra:mamba"], results)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lraa:mamba:text", "did you mean 'lra'"),
        ("lra:mambo:text", "table lra: unknown row 'mambo'; did you mean 'mamba'"),
        ("lra:mamba:txt", "table lra: unknown column 'txt'; did you mean 'text'"),
    ],
)
def test_a_near_name_is_offered(results: Path, words: str, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        locate([words], results)


def test_what_is_more_than_one_is_refused(results: Path) -> None:
    with pytest.raises(ConfigError, match="'paper' is more than one table"):
        locate(["paper:mamba:text"], results)
    path = results / "reported" / "listops.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    twin = next(line for line in lines if ",Mamba,mamba," in line)
    path.write_text("\n".join([*lines, twin.replace(",Mamba,", ",Mamba again,")]) + "\n", encoding="utf-8")
    assert locate(["listops:MAMBA AGAIN"], results).row.name == "Mamba again"
    assert locate(["listops:Mamba"], results).row.name == "Mamba"
    path.write_text(path.read_text(encoding="utf-8").replace(",Mamba,", ",Mamba one,"), encoding="utf-8")
    with pytest.raises(ConfigError, match="row 'mamba' is more than one: Mamba one, Mamba again"):
        locate(["listops:mamba"], results)


def test_a_suite_without_runs_is_undecided(results: Path) -> None:
    with pytest.raises(Undecided, match="nothing has been run"):
        locate(["quick:mamba"], results)
