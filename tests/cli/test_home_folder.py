"""Paths that begin with ``~``, in every option and variable, with and without a home folder."""

import os
import pwd
import sys
from pathlib import Path

import pytest
from conftest import TINY_SUITE
from typer.testing import CliRunner, Result

from msbench.cli import app
from msbench.cli.app import expand_arguments


def msbench(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder, with the current folder and the data elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
    return tmp_path / "home"


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No HOME, and a user that the system does not know, as in containers."""
    for name in ("HOME", "MSBENCH_DATA", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)

    def find_none(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", find_none)


def test_a_tilde_is_the_home_folder_wherever_a_path_is(home: Path) -> None:
    home.mkdir()
    (home / "tiny.yaml").write_text(TINY_SUITE, encoding="utf-8")
    ran = msbench("run", "~/tiny.yaml", "--model", "mamba", "--results", "~/runs", "--quiet")
    assert ran.exit_code == 0, ran.stderr
    made = msbench("report", "~/tiny.yaml", "--results=~/runs", "--csv", "--out", "~/reports")
    assert made.exit_code == 0, made.stderr
    assert msbench("baseline", "~/tiny.yaml", "--results", "~/runs", "--out=~/base.yaml").exit_code == 0
    judged = ("--against", "~/base.yaml", "--junit", "~/junit.xml")
    assert msbench("check", "~/tiny.yaml", "--results", "~/runs", *judged).exit_code in (0, 4, 5)
    found = {path.name for path in home.iterdir()}
    assert found == {"tiny.yaml", "runs", "reports", "base.yaml", "junit.xml"}
    assert os.listdir() == []


def test_data_are_below_the_home_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_DATA", "~/data")
    assert str(home / "data") in msbench("doctor").stdout


@pytest.mark.parametrize(
    ("words", "expanded"),
    [
        (["--out", "~/a"], ["--out", "{home}/a"]),
        (["--out=~/a=b"], ["--out={home}/a=b"]),
        (
            ["--set", "train.lr=~/a", "a~b", "~", "--x=a~"],
            ["--set", "train.lr=~/a", "a~b", "{home}", "--x=a~"],
        ),
    ],
)
def test_only_a_tilde_at_the_start_of_a_value_is_expanded(
    words: list[str], expanded: list[str], home: Path
) -> None:
    assert expand_arguments(words) == [text.format(home=home) for text in expanded]


@pytest.mark.parametrize(
    "words",
    [
        *(["list", "runs", "--results", "~nobody-here/runs"], ["report", "--out=~nobody-here/runs"]),
        *(["setup", "mnist", "--from", "~nobody-here/runs"], ["check", "--junit", "~nobody-here/runs"]),
        *(["run", "quick", "--profile=~nobody-here/runs"], ["show", "x", "--suite", "~nobody-here/runs"]),
        *(["bench", "--compare", "~nobody-here/runs"], ["run", "quick", "--image", "~nobody-here/runs"]),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("home")
def test_an_unknown_user_is_one_message(words: list[str]) -> None:
    done = msbench(*words)
    assert done.exit_code == 2
    message = "no home folder is known: there is no user 'nobody-here' here; give the whole path"
    assert done.stderr == f"msbench: ~nobody-here/runs: {message}\n"
    assert os.listdir() == []


@pytest.mark.parametrize("words", [["doctor"], ["list", "datasets"], ["run", "quick", "--dry-run"]])
def test_data_of_an_unknown_user_are_one_message(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_DATA", "~nobody-here/data")
    done = msbench(*words)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith("msbench: ~nobody-here/data: no home folder is known")


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize(
    ("words", "choice"),
    [
        (["doctor"], " or MSBENCH_DATA"),
        (["list", "datasets"], " or MSBENCH_DATA"),
        (["run", "quick", "--dry-run"], " or MSBENCH_DATA"),
        (["run", "quick", "--launcher", "slurm"], " or --profile"),
        (["list", "runs", "--results", "~/runs"], ""),
    ],
)
def test_no_home_folder_is_one_message(
    words: list[str], choice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = msbench(*words)
    assert done.exit_code == 2, done.stderr
    why = "no home folder is known: HOME is not set, and this user is in no list"
    assert done.stderr.splitlines()[-1].endswith(f"{why}; set HOME{choice}")
    assert os.listdir() == []


@pytest.mark.usefixtures("homeless")
def test_what_needs_no_home_folder_works_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert msbench("list", "suites").exit_code == 0
    assert msbench("report", "quick").exit_code == 5
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
    assert msbench("run", "quick", "--dry-run").exit_code == 0


def test_the_command_in_a_container_gets_expanded_paths(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def run_in_container(_specs: object, _options: object, arguments: list[str]) -> int:
        given.extend(arguments)
        return 0

    monkeypatch.setattr("msbench.runs.launchers.container.run_in_container", run_in_container)
    monkeypatch.setattr(sys, "argv", ["msbench", "run", "quick", "--container=docker", "--results=~/runs"])
    assert CliRunner().invoke(app, sys.argv[1:]).exit_code == 0
    assert given == ["run", "quick", "--container=docker", f"--results={home}/runs"]
