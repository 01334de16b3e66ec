"""A run by its id, its place or its folder, and a cell by its words."""

import shutil
from pathlib import Path

import pytest
from made_runs import keep

from msbench.errors import ConfigError, DamagedRecord, Undecided, UnknownName
from msbench.reporting.compare.lookup import find_cell, find_run, split_cell_name
from msbench.results.reported import find_reported

pytestmark = pytest.mark.usefixtures("handmade_records")

FIRST, SECOND, THIRD = "ab" + "0" * 10, "ac" + "0" * 10, "ad" + "0" * 10


def test_a_run_is_found_by_the_start_of_its_id(tmp_path: Path) -> None:
    first = keep(tmp_path, FIRST)
    keep(tmp_path, SECOND)
    assert find_run(tmp_path, "ab") == first
    with pytest.raises(ConfigError, match=f"more than one run: {FIRST}, {SECOND}"):
        find_run(tmp_path, "a")
    with pytest.raises(ConfigError, match="no run 'ff'; `msbench list runs`"):
        find_run(tmp_path, "ff")


def test_a_run_is_found_by_its_place(tmp_path: Path) -> None:
    first = keep(tmp_path, FIRST, seed=3)
    assert find_run(tmp_path, "s:t:m") == first
    assert find_run(tmp_path, "s:t:m:3") == first
    keep(tmp_path, SECOND, seed=4)
    assert find_run(tmp_path, "s:t:m:3") == first
    with pytest.raises(ConfigError, match="seeds 3, 4; add one: s:t:m:3"):
        find_run(tmp_path, "s:t:m")
    with pytest.raises(ConfigError, match="there are seeds 3, 4"):
        find_run(tmp_path, "s:t:m:5")


def test_of_several_runs_of_a_seed_the_newest_counts_and_is_named(tmp_path: Path) -> None:
    keep(tmp_path, FIRST, ended="2026-01-01T00:00:00+00:00")
    second = keep(tmp_path, SECOND, ended="2026-01-02T00:00:00+00:00")
    keep(tmp_path, THIRD, ended="2025-01-03T00:00:00+00:00")
    found = find_run(tmp_path, "s:t:m:0")
    assert found.record == second.record
    assert found.note == f"s:t:m:0 is run {SECOND}, the newest; older ones: {FIRST}, {THIRD}"


def test_a_run_is_found_by_its_folder_wherever_that_is(tmp_path: Path) -> None:
    found = keep(tmp_path / "elsewhere", FIRST)
    assert find_run(tmp_path / "results", str(found.folder)) == found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("s:t", "a place is suite:task:model"),
        ("s:t:m:x", "a place is suite:task:model"),
        ("s:t:m:0:1", "a place is suite:task:model"),
        ("z:t:m", "unknown suite"),
        ("s:z:m", "unknown task"),
        ("s:t:z", "unknown model"),
        ("../s:t:m", "unknown suite"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path: Path, name: str, words: str) -> None:
    keep(tmp_path, FIRST)
    with pytest.raises(ConfigError, match=words):
        find_run(tmp_path, name)


def test_a_near_name_is_offered(tmp_path: Path) -> None:
    keep(tmp_path, FIRST, model="mamba")
    with pytest.raises(UnknownName, match="did you mean 'mamba'"):
        find_run(tmp_path, "s:t:mambo")


def test_one_id_in_two_suites_says_so(tmp_path: Path) -> None:
    keep(tmp_path, FIRST)
    other = keep(tmp_path, FIRST, suite="z")
    assert find_run(tmp_path, FIRST).note == f"run {FIRST} is filed in {other.folder} too"
    assert find_run(tmp_path, "z:t:m").folder == other.folder


def test_a_run_that_is_not_completed_or_is_damaged_says_so(tmp_path: Path) -> None:
    found = keep(tmp_path, FIRST)
    (found.folder / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(DamagedRecord, match="not a run record"):
        find_run(tmp_path, "ab")
    (found.folder / "run.json").unlink()
    with pytest.raises(ConfigError, match="not completed"):
        find_run(tmp_path, "ab")
    with pytest.raises(ConfigError, match="no completed run"):
        find_run(tmp_path, "s:t:m")


def test_a_record_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    unread, whole = keep(tmp_path, FIRST, seed=3), keep(tmp_path, SECOND, seed=4)
    (unread.folder / "run.json").unlink()
    (unread.folder / "run.json").mkdir()
    found = find_run(tmp_path, "s:t:m:4")
    assert found.record == whole.record
    assert f"{FIRST}/run.json: cannot be read" in found.note


def test_a_damaged_run_hides_no_other_at_its_place(tmp_path: Path) -> None:
    damaged, whole = keep(tmp_path, FIRST, seed=3), keep(tmp_path, SECOND, seed=4)
    (damaged.folder / "run.json").write_text("{", encoding="utf-8")
    found = find_run(tmp_path, "s:t:m:4")
    assert (found.record, found.folder) == (whole.record, whole.folder)
    assert f"{FIRST}/run.json: not a run record" in found.note
    with pytest.raises(DamagedRecord, match=FIRST):
        find_run(tmp_path, "s:t:m:3")


def test_where_nothing_has_been_run_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing has been run"):
        find_run(tmp_path, "s:t:m")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder without runs, with the paper's numbers."""
    shutil.copytree(find_reported(tmp_path), tmp_path / "results" / "reported")
    return tmp_path / "results"


def test_words_are_split_at_colons_unless_they_are_three() -> None:
    assert split_cell_name(["lra:mamba:text"]) == ("lra", "mamba", "text")
    assert split_cell_name(["lra", "a:b", "c:d"]) == ("lra", "a:b", "c:d")
    assert split_cell_name(["listops:mamba"]) == ("listops", "mamba", "")


@pytest.mark.parametrize("words", [["lra"], ["a:b:c:d"], ["a::c"], ["a", "b", "c", "d"], [""]])
def test_anything_else_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="TABLE:ROW:COLUMN"):
        split_cell_name(words)


@pytest.mark.parametrize("table", ["lra", "table-4", "4"])
@pytest.mark.parametrize("row", ["Mamba", "mamba", "MAMBA"])
@pytest.mark.parametrize("column", ["Path-X", "path-x", "pathx", "PATHX"])
def test_names_may_be_written_in_several_ways(results: Path, table: str, row: str, column: str) -> None:
    found = find_cell([f"{table}:{row}:{column}"], results)
    assert (found.table.id, found.row.name, found.column.label) == ("lra", "Mamba", "Path-X")
    assert found.cell is found.row.cells[found.number]


def test_an_average_is_a_column(results: Path) -> None:
    assert find_cell(["4:mamba:avg"], results).column.source == "average"


def test_the_only_column_needs_no_name(results: Path) -> None:
    assert find_cell(["listops:mamba"], results).column.label == "Accuracy (%)"
    with pytest.raises(ConfigError, match="more than one column; name one of Text, Retrieval"):
        find_cell(["lra:mamba"], results)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lraa:mamba:text", "did you mean 'lra'"),
        ("lra:mambo:text", "table lra: unknown row 'mambo'; did you mean 'mamba'"),
        ("lra:mamba:txt", "table lra: unknown column 'txt'; did you mean 'text'"),
    ],
)
def test_a_near_name_of_a_cell_is_offered(results: Path, words: str, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        find_cell([words], results)


def test_what_is_more_than_one_is_refused(results: Path) -> None:
    with pytest.raises(ConfigError, match="'paper' is more than one table"):
        find_cell(["paper:mamba:text"], results)
    path = results / "reported" / "listops.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    twin = next(line for line in lines if ",Mamba,mamba," in line)
    path.write_text("\n".join([*lines, twin.replace(",Mamba,", ",Mamba again,")]) + "\n", encoding="utf-8")
    assert find_cell(["listops:MAMBA AGAIN"], results).row.name == "Mamba again"
    assert find_cell(["listops:Mamba"], results).row.name == "Mamba"
    path.write_text(path.read_text(encoding="utf-8").replace(",Mamba,", ",Mamba one,"), encoding="utf-8")
    with pytest.raises(ConfigError, match="row 'mamba' is more than one: Mamba one, Mamba again"):
        find_cell(["listops:mamba"], results)


def test_a_suite_without_runs_is_undecided(results: Path) -> None:
    with pytest.raises(Undecided, match="nothing has been run"):
        find_cell(["quick:mamba"], results)
