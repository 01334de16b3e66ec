"""Paths that are not UTF-8: every verb works with them, or refuses before it does anything."""

import csv
import io
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TINY_SUITE
from typer.testing import CliRunner, Result

from msbench.cli import app
from msbench.errors import ExitCode
from msbench.results import store
from msbench.results.record import read_record
from msbench.runs.launchers import container

NAME = os.fsdecode(b"caf\xe9")
JUDGED = (ExitCode.OK, ExitCode.GATE_FAILED, ExitCode.UNDECIDED)
"""How a check ends: these runs are of one seed, on any processor."""
SHOWN = r"caf\udce9"
PARSED: dict[str, Callable[[str], object]] = {
    ".json": json.loads,
    ".html": ET.fromstring,
    ".svg": ET.fromstring,
    ".xml": ET.fromstring,
    ".csv": lambda text: list(csv.reader(io.StringIO(text, newline=""))),
    ".tex": str,
    ".yaml": str,
    ".md": str,
}


def msbench(*words: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, words)))


def spawn(*words: str | Path, data: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "msbench", *map(str, words)],
        env={**os.environ, "MSBENCH_DATA": str(data), **environment},
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        check=False,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite, its data and its two runs."""
    root = tmp_path_factory.mktemp("paths") / NAME
    root.mkdir()
    (root / "tiny.yaml").write_text(TINY_SUITE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSBENCH_DATA", str(root / "data"))
        assert msbench("setup", root / "tiny.yaml", "--quiet").exit_code == 0
        done = msbench("run", root / "tiny.yaml", "--quiet", "--results", root / "results")
    assert done.exit_code == 0, (done.stderr, done.exception)
    return root


@pytest.fixture(autouse=True)
def data_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MSBENCH_DATA", str(place / "data"))
    return place / "data"


def test_runs_keep_their_records_and_checkpoints(place: Path) -> None:
    found, warnings = store.read_records(place / "results")
    assert (len(found), warnings) == (2, [])
    for model in ("mamba", "msssm-s6"):
        (folder,) = (place / "results" / "tiny" / "listops-tiny" / model).iterdir()
        assert len(list(folder.glob("checkpoint/*.safetensors"))) == 3


def test_every_verb_reads_and_writes_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place / "summary.md"))
    suite, results = place / "tiny.yaml", ("--results", place / "results")
    folders = sorted((place / "results").glob("tiny/*/*/*"))
    base = place / "base.yaml"
    commands: list[tuple[int | tuple[int, ...], list[str | Path]]] = [
        (0, ["run", suite, *results, "--json"]),
        (0, ["run", suite, *results, "--dry-run"]),
        (0, ["setup", suite, "--check", "--json"]),
        (0, ["baseline", suite, *results, "--out", base]),
        (0, ["mixing", suite, *results, "--examples", "2", "--csv", "--figure", "--out", place / "mixing"]),
        (
            0,
            ["report", suite, *results, "--csv", "--latex", "--html", "--figures", "--out", place / "tables"],
        ),
        (0, ["report", suite, *results, "--against", base, "--html", "--csv", "--out", place / "judged"]),
        (0, ["report", suite, *results, "--versus", "mamba"]),
        (JUDGED, ["check", suite, *results, "--against", base, "--junit", place / "junit.xml", "--github"]),
        (0, ["list", "runs", *results]),
        (0, ["explain", suite, *results]),
        (0, ["show", folders[0], *results, "--suite", suite]),
        (0, ["diff", *folders, *results]),
        (0, ["trace", f"{suite}:mamba:listops-tiny", *results]),
        (0, ["trace", f"{suite}:mamba:listops-tiny", *results, "--json"]),
    ]
    for code, words in commands:
        done = msbench(*words)
        assert done.exit_code in (code if isinstance(code, tuple) else (code,)), (
            words,
            done.stderr,
            done.exception,
        )
        done.stdout.encode()
    written = [path for path in place.rglob("*") if path.suffix in PARSED]
    assert {path.suffix for path in written} == set(PARSED)
    for path in written:
        PARSED[path.suffix](path.read_bytes().decode())


def test_a_failure_that_names_the_path_is_recorded(place: Path) -> None:
    words = ("run", place / "tiny.yaml", "--quiet", "--model", "mamba", "--results", place / "broken")
    assert msbench(*words).exit_code == 0
    (path,) = (place / "broken").rglob("run.json")
    path.unlink()
    (best,) = path.parent.glob("checkpoint/best-*")
    best.write_bytes(b"damaged")
    assert msbench(*words).exit_code == ExitCode.RUN_FAILED
    record = read_record(path.parent)
    assert record is not None
    assert record.failure is not None
    assert f"{SHOWN}/broken" in record.failure.message
    assert (path.parent / "checkpoint" / "damaged-1" / best.name).read_bytes() == b"damaged"
    assert msbench(*words).exit_code == 0


def test_a_crash_that_names_the_path_leaves_its_traceback(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from msbench.training.loop import Trainer

    def crash(trainer: Trainer) -> None:
        raise ZeroDivisionError(str(trainer.directory))

    monkeypatch.setattr(Trainer, "run", crash)
    done = msbench("run", place / "tiny.yaml", "--quiet", "--model", "mamba", "--results", place / "crashed")
    assert done.exit_code == ExitCode.RUN_FAILED
    (path,) = (place / "crashed").rglob("run.log")
    assert f"ZeroDivisionError: {place}/crashed".replace(NAME, SHOWN) in path.read_bytes().decode()
    assert json.loads(path.with_name("run.json").read_bytes())["failure"]["type"] == "ZeroDivisionError"


@pytest.mark.parametrize("options", [("--jobs", "2"), ("--devices", "2")])
def test_processes_of_one_command_are_given_the_path(place: Path, options: tuple[str, str]) -> None:
    results = place / f"results{options[0]}"
    done = spawn(
        *("run", place / "tiny.yaml", "--results", results, "--model", "mamba", "--seed", "0", "--seed", "1"),
        *options,
        data=place / "data",
    )
    assert done.returncode == 0, done.stderr
    assert len(store.read_records(results)[0]) == 2


def test_a_locale_without_utf_8_has_such_paths_too(place: Path) -> None:
    """There every name that is not ASCII is one."""
    (place / "é").mkdir()
    c = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    where = ("--results", place / "é" / "results")
    for verb, *words in (
        ("run", "--model", "mamba", "--quiet"),
        ("report", "--csv", "--latex", "--html", "--out", place / "é" / "tables"),
        ("check", "--junit", place / "é" / "junit.xml", "--github"),
    ):
        done = spawn(verb, place / "tiny.yaml", *where, *words, data=place / "é" / "data", **c)
        assert done.returncode in (0, 5), done.stderr
        assert "Traceback" not in done.stderr
    assert len(store.read_records(place / "é" / "results")[0]) == 1
    for path in (place / "é").rglob("*"):
        if path.suffix in PARSED:
            PARSED[path.suffix](path.read_bytes().decode())


def test_a_command_that_is_shown_can_be_given_to_a_shell(place: Path) -> None:
    (folder,) = (place / "results" / "tiny" / "listops-tiny" / "mamba").iterdir()
    shown = msbench("show", folder, "--results", place / "results", "--suite", place / "tiny.yaml").stdout
    (line,) = (line.strip() for line in shown.splitlines() if "msbench run" in line)
    script = f"msbench() {{ printf '%s\\0' \"$@\"; }}; {line}"
    words = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.split(b"\0")
    assert os.fsencode(place / "tiny.yaml") in words
    assert os.fsencode(place / "results") in words


def test_slurm_is_refused_before_anything_is_done(place: Path, tmp_path: Path) -> None:
    (tmp_path / "slurm.yaml").write_text("time: 60\n")
    slurm = ("--launcher", "slurm", "--profile", tmp_path / "slurm.yaml", "--seed", "7")
    for results in (place / "queued", tmp_path / "queued"):  # data are below the one path in either case
        for more in ((), ("--dry-run",)):
            done = msbench("run", place / "tiny.yaml", "--results", results, *slurm, *more)
            assert done.exit_code == ExitCode.USAGE
            assert "a batch script holds no path that is not UTF-8; choose another" in done.stderr
            assert not results.exists()


def test_an_engine_is_refused_before_anything_is_done(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["msbench", "run", "tiny"])
    monkeypatch.setattr(container, "find_image", lambda *_: pytest.fail("the engine was asked"))
    done = msbench("run", place / "tiny.yaml", "--results", tmp_path / "x", "--container", "docker")
    assert done.exit_code == ExitCode.USAGE
    assert f"{SHOWN}/data: an engine takes no path that is not UTF-8" in done.stderr
