"""No room, at every kind of write: one message, the older file stays, and with room the command goes on.

A small tmpfs is a disk that is really full, wherever that happens to be noticed; a write that is made to fail
is a disk that is full at one file.
"""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import commands
import pytest
from campaign_home import REPORT, Home, snapshot
from same_results import assert_same
from whole_files import assert_whole, leftovers

from msbench.datasets import manifest

pytestmark = pytest.mark.campaign
SIZE = 32 * 2**20
MESSAGE = "No space left on device; make room, or choose another "


def full_at(ending: str) -> None:
    """In this process the disk is full for names that end so."""
    replace = os.replace

    def replaced(source: str | Path, target: str | Path) -> None:
        if str(target).endswith(ending):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source))
        replace(source, target)

    os.replace = replaced  # type: ignore[assignment]


def prepared(home: Home, verb: str) -> tuple[tuple[str | Path, ...], int]:
    """The words of a command that has all to do again, and the code that it ends in for want of room."""
    match verb:
        case "run":
            shutil.rmtree(home.results / "tiny")
            return home.words("run", "--quiet"), 3
        case "mixing":
            return home.words("mixing", "--examples", "2", "--fresh", "--out", home.reports), 2
        case "baseline":
            (home.results / "baseline" / "tiny.yaml").unlink()
            return home.words("baseline"), 2
        case "check":
            return home.words("check", "--junit", home.root / "junit.xml"), 2
        case "setup":
            shutil.rmtree(home.data)
            return ("setup", home.suite, "--quiet"), 6
    return home.words("report", *REPORT, "--out", home.reports), 2


@pytest.mark.parametrize(
    ("verb", "ending"),
    [
        *(("run", name) for name in ("next.safetensors", "best-1.safetensors", "metrics.csv")),
        *(("run", name) for name in ("predictions.parquet", "run.json", "writable")),
        *(
            ("report", name)
            for name in ("tiny.csv", "tiny.tex", "tiny-report.tex", "report.html", ".svg", ".png")
        ),
        ("mixing", ".json"),
        ("baseline", "tiny.yaml"),
        ("check", "junit.xml"),
    ],
)
def test_a_write_that_fails_is_reported_and_costs_no_older_file(
    home: Home, unbroken: Home, verb: str, ending: str
) -> None:
    words, code = prepared(home, verb)
    before = snapshot(home.root)
    ended = commands.run(*words, data=home.data, before=partial(full_at, ending))
    assert ended.code == code, ended.text
    messages = [line for line in ended.text.splitlines() if MESSAGE in line]
    assert messages, ended.text
    assert all(ending in line or ending == "writable" for line in messages)
    assert "Traceback" not in ended.text
    after = snapshot(home.root)
    assert before.keys() <= after.keys()
    assert_whole(home.root)
    assert commands.run(*words, data=home.data).code == (home.check_code if verb == "check" else 0)
    assert leftovers(home.root) == []
    assert_same(home.results, unbroken.results)


@contextmanager
def disk(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs with these options at `folder`; the test is skipped where nobody may mount one."""
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small tmpfs, and not in every container")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """A file that leaves so many bytes."""
    ballast = folder / ".ballast"
    with ballast.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(folder).free - leave)
    return ballast


@pytest.mark.parametrize("verb", ["run", "report", "mixing", "baseline", "check", "setup"])
@pytest.mark.parametrize("pages", [0, 1, 20])
def test_a_full_disk_is_reported_and_with_room_the_command_goes_on(
    unbroken: Home, tmp_path: Path, verb: str, pages: int
) -> None:
    with disk(tmp_path / "disk", f"size={SIZE}") as folder:
        shutil.copytree(unbroken.root, folder / "home")
        home = Home(folder / "home")
        words, code = prepared(home, verb)
        before = snapshot(home.root)
        ballast = fill(folder, 4096 * pages)
        ended = commands.run(*words, data=home.data)
        done = home.check_code if verb == "check" else 0
        assert ended.code in (code, done), ended.text
        messages = MESSAGE in ended.text or "of checkpoints will not fit into" in ended.text
        assert (ended.code == done) == (not messages), ended.text
        assert pages or ended.code == code
        assert "Traceback" not in ended.text
        assert before.keys() <= snapshot(home.root).keys()
        assert_whole(home.root)
        ballast.unlink()
        assert commands.run(*words, data=home.data).code == done
        assert leftovers(home.root) == []
        assert_same(home.results, unbroken.results)


def test_no_inode_for_the_lock_is_reported(unbroken: Home, tmp_path: Path) -> None:
    with disk(tmp_path / "disk", f"size={SIZE},nr_inodes=400") as folder:
        shutil.copytree(unbroken.root, folder / "home")
        home = Home(folder / "home")
        words, _ = prepared(home, "run")
        made: list[Path] = []
        while os.statvfs(folder).f_ffree:
            made.append(folder / f".inode-{len(made)}")
            made[-1].touch()
        ended = commands.run(*words, data=home.data)
        assert ended.code == 2, ended.text
        assert "cannot be used: No space left on device" in ended.text
        for path in made:
            path.unlink()
        assert commands.run(*words, data=home.data).code == 0
        assert_same(home.results, unbroken.results)


def make_array(folder: Path) -> None:
    """In a process of its own: it would be killed by a write through a map."""
    try:
        array = manifest.create_array(folder, "train", "values", (SIZE,), "u1")
        array[:] = 1
    except OSError as error:
        sys.exit(int(error.errno == errno.ENOSPC) + 40)


def test_an_array_that_has_no_room_is_an_error_and_no_bus_error(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", f"size={SIZE}") as folder:
        process = commands.CONTEXT.Process(target=make_array, args=(folder,))
        process.start()
        process.join(60)
        assert process.exitcode == 41
