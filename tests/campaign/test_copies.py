"""Results that came from elsewhere: without their times, half of them, or of another schema."""

import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import commands
import pytest
from campaign_home import Home
from same_results import assert_same
from whole_files import assert_whole

pytestmark = pytest.mark.campaign


def other_host() -> None:
    platform.node = lambda: "elsewhere"


def test_copied_to_another_machine_all_goes_on(unbroken: Home, tmp_path: Path) -> None:
    """As ``cp -r`` does, every file is of now; data and results lie in other folders."""
    shutil.copytree(unbroken.root, tmp_path / "there", copy_function=shutil.copy)
    home = Home(tmp_path / "there")
    kept = home.run("explain", "--json", before=other_host)
    assert [row["action"] for row in json.loads(kept.text)] == ["keep", "keep"]
    assert home.run("run", "--quiet", before=other_host).code == 0
    assert_same(home.results, unbroken.results)
    mine, theirs = (each.run("report", before=other_host).text for each in (home, unbroken))
    assert mine == theirs
    checked = [each.run("check", before=other_host) for each in (home, unbroken)]
    assert checked[0].code == checked[1].code
    assert checked[0].text.replace(str(home.root), str(unbroken.root)) == checked[1].text
    assert home.run("check", "--strict", before=other_host).code == 4


def test_results_of_two_machines_merge(home: Home, unbroken: Home, tmp_path: Path) -> None:
    """As by ``rsync -a`` of one folder into the other; each has one of the runs."""
    other = Path(shutil.copytree(home.results, tmp_path / "other"))
    mine, theirs = (next(results.glob("tiny/*/mamba/*")) for results in (home.results, other))
    shutil.rmtree(mine)
    shutil.rmtree(next(other.glob("tiny/*/msssm-s6/*")))
    assert theirs.name == mine.name
    shutil.copytree(other, home.results, dirs_exist_ok=True)
    assert [row["action"] for row in json.loads(home.run("explain", "--json").text)] == ["keep", "keep"]
    assert home.run("report").text == unbroken.run("report").text
    assert_same(home.results, unbroken.results)


def gone(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    ("name", "damage", "run", "report", "versus", "mixing"),
    [
        ("predictions.parquet", gone, 0, 0, 0, 0),
        ("predictions.parquet", cut, 0, 0, 0, 0),
        ("metrics.csv", gone, 0, 0, 0, 0),
        ("metrics.csv", cut, 0, 0, 0, 0),
        ("checkpoint", gone, 0, 0, 0, 3),
        ("run.json", cut, 3, 5, 5, 5),
    ],
)
def test_a_copy_that_stopped_half_way_is_reported_where_it_matters(
    home: Home,
    name: str,
    damage: Callable[[Path], None],
    run: int,
    report: int,
    versus: int,
    mixing: int,
) -> None:
    for path in home.results.glob(f"tiny/*/*/*/{name}"):
        damage(path)
    reports = ("--csv", "--latex", "--html", "--out", home.root / "new")
    for verb, more, code in (
        ("run", ("--quiet",), run),
        ("report", reports, report),
        ("report", ("--versus", "mamba"), versus),
        ("mixing", ("--examples", "4", "--quiet"), mixing),
    ):
        ended = home.run(verb, *more)
        assert ended.code == code, (verb, ended.text)
        assert "Traceback" not in ended.text
        if code not in (0, 5) or (name, "--versus") == ("predictions.parquet", more[0]):
            assert f"{name}: " in ended.text or f"{name}/" in ended.text


def test_without_a_record_the_rest_is_gone_on_with(home: Home, unbroken: Home) -> None:
    """rsync keeps its own temporary files in the folder, and they count for nothing."""
    for path in home.results.glob("tiny/*/*/*/run.json"):
        path.rename(path.with_name(".run.json.Xy12Zz"))
    rows = json.loads(home.run("explain", "--json").text)
    assert [row["action"] for row in rows] == ["resume", "resume"]
    assert home.run("run", "--quiet").code == 0
    assert_same(home.results, unbroken.results)
    assert_whole(home.root)


def changed(home: Home, **values: object) -> None:
    for path in home.results.glob("tiny/*/*/*/run.json"):
        record = json.loads(path.read_bytes())
        record |= values
        path.write_text(json.dumps({key: value for key, value in record.items() if value is not ...}))


def test_a_later_schema_is_refused_by_name_and_never_lost(home: Home) -> None:
    changed(home, schema_version=2)
    for verb in ("run", "report", "explain"):
        ended = home.run(verb)
        assert ended.code in (0, 3, 5), ended.text
        assert "run.json: has schema version 2, and this msbench reads up to 1: use a newer one" in ended.text
        assert "delete it" not in ended.text
    assert home.run("run", "--fresh", "--quiet").code == 0
    assert len(list(home.results.glob("tiny/*/*/*.old-1/run.json"))) == 2


def test_fields_that_a_later_version_added_or_an_earlier_one_lacked_are_no_fault(home: Home) -> None:
    mine = home.run("report").text
    changed(home, schema_version=..., attempts=..., sources=..., data_notes=..., invented_later={"a": [1]})
    assert home.run("report").text == mine
    assert home.run("run", "--quiet").code == 0
    for path in home.results.glob("tiny/*/*/*/run.json"):
        shown = commands.run("show", path.parent, "--results", home.results, data=home.data)
        assert shown.code == 0, shown.text


def test_a_record_in_another_runs_folder_stands_for_nothing(home: Home) -> None:
    first, second = sorted(home.results.glob("tiny/*/*/*/run.json"))
    shutil.copy(first, second)
    ended = home.run("run", "--quiet")
    assert ended.code == 3
    assert f"{second}: belongs to tiny/" in ended.text
    assert "which is another folder: move it there, or train again with --fresh" in ended.text
    shown = home.run("report")
    assert shown.code == 0
    assert f"{second}: belongs to tiny/" in shown.text
