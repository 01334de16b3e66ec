"""Results that nobody may write into: what only reads works, and `run` says at once where it cannot write."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import commands
import pytest
from campaign_home import Home

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user, and mount"),
]
NOBODY = 65534


@pytest.fixture
def open_home(unbroken: Home) -> Iterator[Home]:
    """A copy where every user may look, as pytest's own folders are its user's alone."""
    with tempfile.TemporaryDirectory(prefix="msbench-read-only-") as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(unbroken.root, Path(folder) / "home")
        os.chmod(Path(folder) / "home", 0o755)
        yield Home(Path(folder) / "home")


def reading(home: Home) -> list[tuple[tuple[str | Path, ...], int]]:
    """Every command that needs to write nothing, and how it ends."""
    results = ("--results", home.results)
    identity, other = (path.name for path in home.results.glob("tiny/*/*/*"))
    return [
        (("list", "runs", *results), 0),
        (("show", identity, *results, "--suite", home.suite), 0),
        (("diff", identity, other, *results), 0),
        (("report", home.suite, *results), 0),
        (("explain", home.suite, *results), 0),
        (("check", home.suite, *results), home.check_code),
        (("trace", f"{home.suite}:mamba:listops-tiny", *results), 0),
        (("run", home.suite, *results, "--quiet"), 0),
        (("mixing", home.suite, *results, "--examples", "2", "--quiet"), 0),
        (("setup", home.suite, "--check"), 0),
    ]


def assert_readable(home: Home, before: commands.Before | None) -> None:
    for words, code in reading(home):
        ended = commands.run(*words, data=home.data, before=before)
        assert ended.code == code, (words, ended.text)
        assert "Traceback" not in ended.text
    for more in (("--seed", "7"), ("--fresh",)):
        ended = commands.run(*home.words("run", *more), data=home.data, before=before)
        assert ended.code == 2, ended.text
        assert "cannot be used: " in ended.text
        assert "choose another --results" in ended.text
    for words, says in (
        (home.words("baseline", "--out", home.results / "b.yaml"), "b.yaml: cannot be written: "),
        (home.words("mixing", "--examples", "3"), "mixing: is not writable; choose another --results"),
    ):
        ended = commands.run(*words, data=home.data, before=before)
        assert ended.code == 2, ended.text
        assert says in ended.text


def test_another_user_reads_what_is_not_hers(open_home: Home) -> None:
    assert_readable(open_home, partial(os.setuid, NOBODY))


def test_on_a_read_only_mount_all_is_read(open_home: Home) -> None:
    place = str(open_home.root)
    for options in (["--bind", place, place], ["-o", "remount,bind,ro", place]):
        if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
            pytest.skip("nothing may be mounted here")
    try:
        assert_readable(open_home, None)
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_run_says_so_before_hours_of_set_up(open_home: Home) -> None:
    shutil.rmtree(open_home.data)
    open_home.data.mkdir(mode=0o777)
    os.chmod(open_home.data, 0o777)
    ended = commands.run(
        *open_home.words("run", "--quiet"), data=open_home.data, before=partial(os.setuid, NOBODY)
    )
    assert ended.code == 2, ended.text
    assert f"{open_home.results}: is not writable; choose another --results" in ended.text
    assert list(open_home.data.iterdir()) == []
