"""Files of a report that was killed, and of two at once."""

import csv
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from report_runs import PlannedRun, SmallSuite, build, run

from msbench.reporting.command import write_tables
from msbench.reporting.tables.cells import Table
from msbench.results import files
from msbench.results.files import write_files

MODELS = [f"model-{number}" for number in range(30)]
SUFFIXES = ("small.csv", "small-wide.csv", "small.tex", "small-report.tex", "other.csv", "other-wide.csv")


def tables(value: float) -> list[Table]:
    """Two tables whose every number depends on `value`."""
    specs = [PlannedRun("listops", model) for model in MODELS]
    records = [run(spec, value) for spec in specs]
    others = [run(spec, value, suite="other") for spec in specs]
    return [build(specs, records), build(specs, others, suite=SmallSuite(name="other"))]


def written(value: float, out: Path) -> dict[str, bytes]:
    paths = write_tables(tables(value), out, csv=True, latex=True)
    return {path.name: path.read_bytes() for path in paths}


def script(out: Path, before: str = "", turns: int = 1) -> list[str]:
    """A process that writes the second version of the tables, `turns` times; `before` is run ahead of it."""
    code = f"""
import os, signal, sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
from pathlib import Path
import test_files
made = test_files.tables(0.6)
{before}
print("ready", flush=True)
for turn in range({turns}):
    test_files.write_tables(made, Path({str(out)!r}), csv=True, latex=True)
"""
    return [sys.executable, "-c", code]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def check_old_or_new(out: Path, old: dict[str, bytes], new: dict[str, bytes]) -> set[str]:
    """Every file is whole, the old or the new one; returns the names of those that are new."""
    for name in old:
        assert (out / name).read_bytes() in (old[name], new[name]), name
        if name.endswith(".csv"):
            with (out / name).open(newline="", encoding="utf-8") as stream:
                assert len({len(line) for line in csv.reader(stream)}) == 1
    return {name for name in new if (out / name).read_bytes() == new[name]}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("versions")
    old, new = written(0.5, folder), written(0.6, folder)
    assert all(old[name] != new[name] for name in SUFFIXES if not name.endswith("report.tex"))
    return old, new


@pytest.mark.parametrize(("place", "number"), [("fsync", 1), ("fsync", 2), ("replace", 5), ("replace", 9)])
def test_killed_at_a_write_leaves_old_files_or_new_and_the_next_report_sweeps(
    place: str, number: int, tmp_path: Path, versions: tuple[dict[str, bytes], dict[str, bytes]]
) -> None:
    old, new = versions
    written(0.5, tmp_path)
    before = f"""
calls, original = [], os.{place}
def killed(*arguments):
    calls.append(arguments)
    if len(calls) == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments)
os.{place} = killed
"""
    done = subprocess.run(script(tmp_path, before), env=environment(), capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert set(list(new)[: number - 1]) <= check_old_or_new(tmp_path, old, new)
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    written(0.6, tmp_path)
    assert check_old_or_new(tmp_path, old, new) == set(new)
    assert {path.name for path in tmp_path.iterdir()} == set(new)


def test_killed_at_any_moment_leaves_old_files_or_new(
    tmp_path: Path, versions: tuple[dict[str, bytes], dict[str, bytes]]
) -> None:
    old, new = versions
    moments = random.Random(0)
    for _ in range(3):
        written(0.5, tmp_path)
        process = subprocess.Popen(script(tmp_path, turns=100), env=environment(), stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(moments.uniform(0, 0.05))
        process.kill()
        process.wait()
        process.stdout.close()
        check_old_or_new(tmp_path, old, new)
    written(0.6, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(new)


def test_a_report_waits_for_another_and_does_not_sweep_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: tuple[dict[str, bytes], dict[str, bytes]]
) -> None:
    """The second begins while the first is in the middle of a write, with its temporary file there."""
    old, new = versions
    replace = os.replace
    others: list[subprocess.Popen[str]] = []

    def slowly(source: str, target: Path) -> None:
        if not others:
            others.append(
                subprocess.Popen(script(tmp_path), env=environment(), stdout=subprocess.PIPE, text=True)
            )
            assert others[0].stdout is not None
            assert others[0].stdout.readline() == "ready\n"
            time.sleep(0.3)
        replace(source, target)

    monkeypatch.setattr(os, "replace", slowly)
    first = written(0.5, tmp_path)
    assert first.keys() == old.keys()
    others[0].communicate(timeout=60)
    assert others[0].returncode == 0
    assert check_old_or_new(tmp_path, old, new) == set(new)
    assert {path.name for path in tmp_path.iterdir()} == set(new)


def test_temporary_files_of_others_are_left_alone(tmp_path: Path) -> None:
    mine, other = tmp_path / ".a.csv.xyz.tmp", tmp_path / ".b.csv.xyz.tmp"
    mine.touch()
    other.touch()
    write_files({"a.csv": b"a"}, tmp_path)
    assert not mine.exists()
    assert other.exists()


def test_where_folders_cannot_be_locked_files_are_written_and_nothing_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = tmp_path / ".a.csv.xyz.tmp"
    leftover.touch()

    def refused(*_: object) -> None:
        raise OSError("no locks")

    monkeypatch.setattr("fcntl.flock", refused)
    write_files({"a.csv": b"a"}, tmp_path)
    monkeypatch.setattr("filelock.has_fcntl", False)
    write_files({"b.csv": b"b"}, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "b.csv", leftover.name}


def test_several_tables_have_a_document_for_all(tmp_path: Path) -> None:
    names = [path.name for path in write_tables(tables(0.5), tmp_path, latex=True)]
    assert names == [
        *("small.tex", "small-legend.tex", "small-report.tex"),
        *("other.tex", "other-legend.tex", "other-report.tex", "all-report.tex"),
    ]
    source = (tmp_path / "all-report.tex").read_text(encoding="utf-8")
    assert source.index(r"\input{small.tex}") < source.index(r"\input{other.tex}")


def test_a_lock_that_a_stranger_holds_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    (tmp_path / ".a.json.other.tmp").write_bytes(b"of somebody who may be writing")
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        files.write_file(tmp_path / "a.json", b"{}", "--out")
    finally:
        os.close(handle)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.json.other.tmp", "a.json"]


def test_of_leftovers_only_those_of_the_same_name_go(tmp_path: Path) -> None:
    for name in (".[ab].json.1.tmp", ".a.json.1.tmp"):
        (tmp_path / name).write_bytes(b"half")
    files.write_file(tmp_path / "[ab].json", b"{}", "--out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.json.1.tmp", "[ab].json"]
