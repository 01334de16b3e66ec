"""A run by its id, its place or its folder."""

from pathlib import Path

import pytest
from made_runs import keep

from msbench.errors import ConfigError, DamagedRecord, UnknownName
from msbench.reporting.compare.lookup import find

pytestmark = pytest.mark.usefixtures("handmade_records")

FIRST, SECOND, THIRD = "ab" + "0" * 10, "ac" + "0" * 10, "ad" + "0" * 10


def test_a_run_is_found_by_the_start_of_its_id(tmp_path: Path) -> None:
    first = keep(tmp_path, FIRST)
    keep(tmp_path, SECOND)
    assert find(tmp_path, "ab") == first
    with pytest.raises(ConfigError, match=f"more than one run: {FIRST}, {SECOND}"):
        find(tmp_path, "a")
    with pytest.raises(ConfigError, match="no run 'ff'; `msbench list runs`"):
        find(tmp_path, "ff")


def test_a_run_is_found_by_its_place(tmp_path: Path) -> None:
    first = keep(tmp_path, FIRST, seed=3)
    assert find(tmp_path, "s:t:m") == first
    assert find(tmp_path, "s:t:m:3") == first
    keep(tmp_path, SECOND, seed=4)
    assert find(tmp_path, "s:t:m:3") == first
    with pytest.raises(ConfigError, match="seeds 3, 4; add one: s:t:m:3"):
        find(tmp_path, "s:t:m")
    with pytest.raises(ConfigError, match="there are seeds 3, 4"):
        find(tmp_path, "s:t:m:5")


def test_of_several_runs_of_a_seed_the_newest_counts_and_is_named(tmp_path: Path) -> None:
    keep(tmp_path, FIRST, ended="2026-01-01T00:00:00+00:00")
    second = keep(tmp_path, SECOND, ended="2026-01-02T00:00:00+00:00")
    keep(tmp_path, THIRD, ended="2025-01-03T00:00:00+00:00")
    found = find(tmp_path, "s:t:m:0")
    assert found.record == second.record
    assert found.note == f"s:t:m:0 is run {SECOND}, the newest; older ones: {FIRST}, {THIRD}"


def test_a_run_is_found_by_its_folder_wherever_that_is(tmp_path: Path) -> None:
    found = keep(tmp_path / "elsewhere", FIRST)
    assert find(tmp_path / "results", str(found.folder)) == found


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
        find(tmp_path, name)


def test_a_near_name_is_offered(tmp_path: Path) -> None:
    keep(tmp_path, FIRST, model="mamba")
    with pytest.raises(UnknownName, match="did you mean 'mamba'"):
        find(tmp_path, "s:t:mambo")


def test_one_id_in_two_suites_says_so(tmp_path: Path) -> None:
    keep(tmp_path, FIRST)
    other = keep(tmp_path, FIRST, suite="z")
    assert find(tmp_path, FIRST).note == f"run {FIRST} is filed in {other.folder} too"
    assert find(tmp_path, "z:t:m").folder == other.folder


def test_what_has_not_ended_or_is_damaged_says_so(tmp_path: Path) -> None:
    found = keep(tmp_path, FIRST)
    (found.folder / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(DamagedRecord, match="not a run record"):
        find(tmp_path, "ab")
    (found.folder / "run.json").unlink()
    with pytest.raises(ConfigError, match="has not ended"):
        find(tmp_path, "ab")
    with pytest.raises(ConfigError, match="no run that has ended"):
        find(tmp_path, "s:t:m")


def test_a_record_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    unread, whole = keep(tmp_path, FIRST, seed=3), keep(tmp_path, SECOND, seed=4)
    (unread.folder / "run.json").unlink()
    (unread.folder / "run.json").mkdir()
    found = find(tmp_path, "s:t:m:4")
    assert found.record == whole.record
    assert f"{FIRST}/run.json: cannot be read" in found.note


def test_a_damaged_run_hides_no_other_at_its_place(tmp_path: Path) -> None:
    damaged, whole = keep(tmp_path, FIRST, seed=3), keep(tmp_path, SECOND, seed=4)
    (damaged.folder / "run.json").write_text("{", encoding="utf-8")
    found = find(tmp_path, "s:t:m:4")
    assert (found.record, found.folder) == (whole.record, whole.folder)
    assert f"{FIRST}/run.json: not a run record" in found.note
    with pytest.raises(DamagedRecord, match=FIRST):
        find(tmp_path, "s:t:m:3")


def test_where_nothing_has_been_run_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing has been run"):
        find(tmp_path, "s:t:m")
