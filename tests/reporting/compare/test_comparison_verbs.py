"""The verbs on runs that were really made: what is printed, on which stream, and with which exit code."""

import io
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TINY_SUITE
from typer.testing import CliRunner, Result

from msbench.cli import app
from msbench.cli import runs as runs_verbs
from msbench.errors import ExitCode
from msbench.results.record import compute_run_id

SETS = ("train.lr=5e-4", "train.bucketing=false", "train.clip=null", "model.pooling=last")


def msbench(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def train(*words: str) -> str:
    """The id of the one run."""
    done = msbench("run", "tiny", "--model", "mamba", *words, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    (record,) = json.loads(done.stdout)
    return str(record["run_id"])


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny suite and three runs of it: two seeds as planned, one under overrides."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "suites").mkdir()
    text = TINY_SUITE.replace("seeds: [0]", "seeds: [0, 1]").replace("epochs: 3", "epochs: 1, clip: 1.0")
    (folder / "suites" / "tiny.yaml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def runs(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    """The ids of these runs: trained for the first test that asks, kept for the others."""
    monkeypatch.chdir(workplace)
    sets = [word for text in SETS for word in ("--set", text)]
    return train("--seed", "0"), train("--seed", "1"), train("--seed", "0", *sets)


def carry_out(line: str) -> str:
    """Run a printed command in another folder of results; the id that it gives."""
    program, verb, *words = shlex.split(line)
    assert (program, verb) == ("msbench", "run")
    done = msbench("run", *words, "--results", "again", "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    return " ".join(sorted(record["run_id"] for record in json.loads(done.stdout)))


def command_in(text: str) -> list[str]:
    """The commands that stand on lines of their own, or after their name."""
    return [line[line.index("msbench run") :] for line in text.splitlines() if "  msbench run" in line]


@pytest.mark.parametrize("number", [0, 2])
def test_the_command_that_show_prints_makes_the_run_again(runs: tuple[str, str, str], number: int) -> None:
    shown = msbench("show", runs[number][:8])
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.splitlines()[0].endswith(f"run {runs[number]}")
    assert "id  the same: settings, data and source are as they were" in shown.stdout
    (line,) = command_in(shown.stdout)
    assert line.count("--set") == (len(SETS) if number else 0)
    assert carry_out(line) == runs[number]
    assert "\x1b" not in shown.stdout


def test_the_command_that_trace_prints_makes_the_number_again(runs: tuple[str, str, str]) -> None:
    traced = msbench("trace", "tiny:mamba:listops-tiny")
    assert traced.exit_code == 0, traced.stderr
    (line,) = command_in(traced.stdout)
    assert carry_out(line) == " ".join(sorted(runs[:2]))
    assert f"{runs[2]} seed 0  modified: " in traced.stdout
    document = json.loads(msbench("trace", "tiny", "mamba", "listops-tiny", "--json").stdout)
    (source,) = document["sources"]
    assert [run["run_id"] for run in source["runs"]] == list(runs[:2])
    assert source["same_id_now"] is True


def test_show_as_json_is_the_record(runs: tuple[str, str, str]) -> None:
    shown = msbench("show", "tiny:listops-tiny:mamba:1", "--json")
    assert json.loads(shown.stdout)["run_id"] == runs[1]
    assert json.loads(shown.stdout)["spec"]["seed"] == 1


def test_show_takes_the_file_of_a_suite(runs: tuple[str, str, str], tmp_path: Path) -> None:
    moved = tmp_path / "my suite.yaml"
    shutil.copy("suites/tiny.yaml", moved)
    shown = msbench("show", runs[0], "--suite", moved)
    (line,) = command_in(shown.stdout)
    assert shlex.split(line)[2] == str(moved)
    assert carry_out(line) == runs[0]


def test_diff_ends_in_0_whether_runs_differ_or_not(runs: tuple[str, str, str]) -> None:
    differing = msbench("diff", runs[0], runs[2])
    assert differing.exit_code == 0, differing.stderr
    rows = [line.split() for line in differing.stdout.splitlines()]
    assert ["train.lr", "0.01", "0.0005"] in rows
    assert ["train.clip", "1.0", "null"] in rows
    for words in ("McNemar, exact", "both wrong", "learning curves"):
        assert words in differing.stdout
    same = msbench("diff", runs[0], runs[0])
    assert (same.exit_code, "one and the same run" in same.stdout) == (0, True)
    document = json.loads(msbench("diff", runs[0], runs[2], "--json").stdout)
    assert {change["name"] for change in document["settings"]} == {text.partition("=")[0] for text in SETS}
    assert sum(document["paired"]["counts"].values()) == 20


def test_a_replicate_is_identical(runs: tuple[str, str, str]) -> None:
    train("--seed", "0", "--results", "elsewhere")
    folder = Path("elsewhere", "tiny", "listops-tiny", "mamba", runs[0])
    compared = msbench("diff", runs[0], folder)
    assert "identical: settings, data, source, learning curve and result are the same" in compared.stdout


def test_explain_names_what_changed(runs: tuple[str, str, str], tmp_path: Path) -> None:
    shutil.copytree("results", tmp_path / "results")
    older: dict[str, str] = {}
    for path in list((tmp_path / "results").rglob("run.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        record["source_digest"], record["sources"]["training/loop.py"] = "older", "abcdef0123456789"
        new = compute_run_id(record["spec_digest"], record["data_digest"], "older")
        older[record["run_id"]], record["run_id"] = new, new
        path.write_text(json.dumps(record), encoding="utf-8")
        path.parent.rename(path.parent.with_name(record["run_id"]))
    explained = msbench("explain", "tiny", "--model", "mamba", "--results", tmp_path / "results")
    assert explained.exit_code == 0, explained.stderr
    assert explained.stdout.count("source differs: training/loop.py") == 2
    assert "training/loop.py  abcdef01  " in explained.stdout
    rows = json.loads(
        msbench("explain", "tiny", "--model", "mamba", "--results", tmp_path / "results", "--json").stdout
    )
    assert [row["unlike"] for row in rows] == [older[run] for run in runs[:2]]
    assert [row["changes"][0]["name"] for row in rows] == ["training/loop.py"] * 2
    assert json.loads(msbench("explain", "tiny", "--json").stdout)[1]["changes"] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "verb", [lambda: runs_verbs.list_entries("runs"), lambda: runs_verbs.explain(["tiny"])]
)
def test_ids_stay_whole_at_a_narrow_terminal(
    runs: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch, verb: Callable[[], None]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    verb()
    lines = terminal.getvalue().splitlines()
    assert all(any(run_id in line for line in lines) for run_id in runs[:2])
    assert max(map(len, lines)) <= 60


def test_stored_results_are_shown_without_torch(runs: tuple[str, str, str]) -> None:
    words = [
        ("show", runs[0]),
        ("diff", runs[0], runs[2]),
        ("trace", "tiny:mamba"),
        ("explain", "tiny"),
        ("list", "runs"),
        ("list", "datasets"),
    ]
    code = (
        "import sys; from msbench.cli import app\n"
        f"for words in {words}: app(words, standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(runs[0]) >= 5


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("show", "zzz"), ExitCode.USAGE, "msbench list runs"),
        (("show", "tiny:listops-tiny:mamba"), ExitCode.USAGE, "seeds 0, 1; add one"),
        (("show", "tiny:listops-tiny:mambo"), ExitCode.USAGE, "did you mean 'mamba'"),
        (("diff", "tiny:listops-tiny:mamba:1", "zzz"), ExitCode.USAGE, "no run 'zzz'"),
        (("trace", "tiny"), ExitCode.USAGE, "TABLE:ROW:COLUMN"),
        (("trace", "tiny:mambo"), ExitCode.USAGE, "did you mean 'mamba'"),
        (("trace", "quick:mamba"), ExitCode.UNDECIDED, "nothing has been run"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_message(
    words: tuple[str, ...], code: ExitCode, message: str
) -> None:
    done = msbench(*words)
    assert done.exit_code == code, done.stderr
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
