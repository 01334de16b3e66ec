"""The command line as a user and as CI meet it: output, streams, exit codes."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner, Result

from msbench.cli import VERBS, app
from msbench.errors import ExitCode
from msbench.results import store
from msbench.training.loop import Trainer


def msbench(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def spawn(*arguments: str | Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "msbench", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_help_needs_nothing_heavy() -> None:
    heavy = "('torch', 'pandas', 'pydantic', 'numpy', 'lightning_fabric')"
    code = f"import sys, msbench.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_too_little_memory_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unmapped = ImportError("libtorch_python.so: failed to map segment from shared object")
    for error in (MemoryError(), unmapped):
        monkeypatch.setattr(store, "read_records", lambda _, error=error: raise_error(error))
        done = msbench("list", "runs", "--results", tmp_path)
        assert (done.exit_code, done.stdout) == (3, "")
        assert done.stderr.startswith("msbench: too little memory: ")
        assert len(done.stderr.splitlines()) == 1
    monkeypatch.setattr(store, "read_records", lambda _: raise_error(ImportError("no such name")))
    assert isinstance(msbench("list", "runs", "--results", tmp_path).exception, ImportError)


def raise_error(error: Exception) -> NoReturn:
    raise error


def test_help_shows_every_verb_and_the_exit_codes() -> None:
    text = msbench("--help").stdout
    for word in (*VERBS, "130/143"):
        assert word in text
    for verb in VERBS:
        assert msbench(verb, "--help").exit_code == 0


def test_run_then_everything_that_reads_it(tiny_file: Path, results: Path) -> None:
    first = msbench("run", tiny_file, "--results", results, "--json")
    assert first.exit_code == 0, first.stderr
    records = json.loads(first.stdout)
    assert [record["model"] for record in records] == ["msssm-s6", "mamba"]
    assert all(record["status"] == "finished" for record in records)

    again = msbench(
        "run", tiny_file, "--results", results, "--model", "mamba", "--model", "msssm-s6", "--json"
    )
    assert [record["run_id"] for record in json.loads(again.stdout)] == [
        record["run_id"] for record in records
    ]

    run_id = records[0]["run_id"]
    shown = msbench("show", run_id[:6], "--results", results, "--json")
    assert json.loads(shown.stdout)["run_id"] == run_id
    result = f"{records[0]['metrics']['test_accuracy']:.2%}, 95 % interval"
    assert result in msbench("show", run_id, "--results", results).stdout
    assert run_id in msbench("list", "runs", "--results", results).stdout
    explained = json.loads(msbench("explain", tiny_file, "--results", results, "--json").stdout)
    assert [row["action"] for row in explained] == ["keep", "keep"]

    reported = msbench(
        "report", tiny_file, "--results", results, "--csv", "--latex", "--html", "--out", results / "out"
    )
    assert reported.exit_code == 0, reported.stderr
    assert "root operator only" in reported.stdout
    assert "\x1b" not in reported.stdout
    assert list((results / "out").rglob("*.tex"))
    assert list((results / "out").rglob("*.csv"))
    page = (results / "out" / "report.html").read_text(encoding="utf-8")
    assert f'id="run-{run_id}"' in page
    command = f"msbench run {tiny_file} --model msssm-s6 --task listops-tiny --seed 0"
    assert f"{command} --threads {os.environ['OMP_NUM_THREADS']}</code>" in page


def test_a_dry_run_touches_nothing(tiny_file: Path, results: Path) -> None:
    bucketed = ("--set", "train.bucketing=true")
    done = msbench("run", tiny_file, "--results", results, "--dry-run", "--json", *bucketed)
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)
    assert all(row["parameters"] > 0 and row["steps"] == 24 for row in rows)
    assert "msbench: listops-tiny: msssm-s6: model.norm: batch on batches of similar length" in done.stderr
    assert not results.exists()


@pytest.mark.parametrize(
    ("more", "environment", "said"),
    [
        ([], {}, ["msbench: planning quick, lra"]),
        (["--quiet"], {}, []),
        ([], {"RANK": "0"}, ["msbench: planning quick, lra"]),
        ([], {"RANK": "1"}, []),
        ([], {"MSBENCH_LIFELINE": "1"}, []),  # its parent has said it
    ],
)
def test_a_run_says_something_before_anything_slow(
    more: list[str], environment: dict[str, str], said: list[str]
) -> None:
    words = ["msbench", "run", "quick", "lra", *more]
    lines = ("import sys", "from msbench.cli import main", "sys.modules['msbench.runs'] = None")
    text = "; ".join((*lines, f"sys.argv = {words}", "assert 'torch' not in sys.modules", "main()"))
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
    )
    shown = done.stderr.splitlines()
    assert [line for line in shown if line.startswith("msbench: ")] == said
    assert shown[-1].startswith("ModuleNotFoundError: ")


def test_a_dry_run_says_where_every_setting_comes_from(tiny_file: Path, results: Path) -> None:
    words = ("run", tiny_file, "--results", results, "--dry-run", "--set", "train.lr=2e-2")
    rows = json.loads(msbench(*words, "--json").stdout)
    settings = {row["model"]: row["settings"] for row in rows}
    assert settings["mamba"]["train.lr"] == {"value": 0.02, "from": "--set"}
    assert settings["mamba"]["model.kernel"] == {"value": 4, "from": "default"}
    assert settings["msssm-s6"]["model.levels"]["from"] == f"models.msssm-s6, {tiny_file}:16"
    text = msbench(*words).stdout
    assert "\nmamba on listops-tiny; all other settings are defaults\n" in text
    assert f"  families.mamba ({tiny_file}:13): model.state 5\n  --set: train.lr 0.02\n" in text


def test_several_suites_are_one_plan(tiny_file: Path, results: Path) -> None:
    other = tiny_file.with_name("other.yaml")
    other.write_text(tiny_file.read_text().replace("name: tiny", "name: other"))
    words = ("run", tiny_file, other, "--results", results, "--dry-run", "--model", "mamba")
    rows = json.loads(msbench(*words, "--json").stdout)
    assert [(row["suite"], row["model"]) for row in rows] == [("tiny", "mamba"), ("other", "mamba")]
    assert msbench(*words).stdout.startswith("suite ")
    done = msbench(*words, "--launcher", "slurm")
    assert done.exit_code == ExitCode.USAGE
    assert "--launcher slurm submits the runs of one suite" in done.stderr


def test_paper_stands_for_the_suites_of_all_its_tables(results: Path) -> None:
    words = ("run", "paper", "--results", results, "--dry-run", "--json", "--model", "msssm-mamba-init")
    rows = json.loads(msbench(*words).stdout)
    assert {row["suite"] for row in rows} >= {"listops", "ptbxl"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", "quik"), ExitCode.USAGE, "did you mean 'quick'"),
        (("run", "quick", "--model", "mambo"), ExitCode.USAGE, "did you mean 'mamba'"),
        (("run", "quick", "--task", "listops-shrt"), ExitCode.USAGE, "did you mean 'listops-short'"),
        (("run", "quick", "--set", "train.lrr=1"), ExitCode.USAGE, "lrr"),
        (("run", "quick", "--set", "train.lr=abc"), ExitCode.USAGE, "--set train.lr"),
        (("run", "quick", "--device", "cudo"), ExitCode.USAGE, "did you mean 'cuda'"),
        (("run", "quick", "--scan", "cpq"), ExitCode.USAGE, "did you mean 'cpp'"),
        (("run", "quick", "--scan", "mamba-ssm"), ExitCode.USAGE, "does not run on cpu"),
        (("run", "listops", "--set", "data.source=release"), ExitCode.DATA, "msbench setup listops --from"),
        (("list", "modles"), ExitCode.USAGE, "did you mean 'models'"),
        (("setup", "listop"), ExitCode.USAGE, "listop"),
        (("show", "abc"), ExitCode.USAGE, "msbench list runs"),
        (
            ("show", "a" * 300),
            ExitCode.USAGE,
            "File name too long; make it accessible, or choose another path",
        ),
        (("report", "quick", "--csv", "--out", "a" * 300), ExitCode.USAGE, "aaa: File name too long"),
        (("report", "quick"), ExitCode.UNDECIDED, "msbench run quick"),
        (("report", "ablaton"), ExitCode.USAGE, "did you mean 'ablation'"),
        (("report",), ExitCode.UNDECIDED, "msbench run"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_message(
    arguments: tuple[str, ...], code: ExitCode, words: str, results: Path
) -> None:
    where = () if arguments[0] in ("setup",) else ("--results", results)
    done = msbench(*arguments, *where)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr
    assert done.stdout == "" or code == ExitCode.DATA
    assert "Traceback" not in done.stderr


def test_one_damaged_record_leaves_the_others_going(tiny_file: Path, results: Path) -> None:
    msbench("run", tiny_file, "--results", results, "--model", "msssm-s6")
    (path,) = results.rglob("run.json")
    path.write_text("{", encoding="utf-8")
    done = msbench("run", tiny_file, "--results", results)
    assert done.exit_code == ExitCode.RUN_FAILED
    assert "not a run record" in done.stderr
    assert "mamba" in done.stdout
    assert msbench("explain", tiny_file, "--results", results).exit_code == 0


def test_the_papers_tables_are_written_without_any_run(results: Path) -> None:
    done = msbench("report", "paper", "--results", results, "--csv", "--latex", "--out", results / "out")
    assert done.exit_code == ExitCode.UNDECIDED
    assert "'msbench run SUITE' makes runs" in done.stderr
    assert [f"Table {number}: " in done.stdout for number in range(1, 8)] == [True] * 7
    assert len(list((results / "out").glob("*.csv"))) == 14
    assert len(list((results / "out").glob("*.tex"))) == 22
    one = msbench("report", "table-5", "--results", results, "--json")
    assert (one.exit_code, json.loads(one.stdout)[0]["id"]) == (ExitCode.UNDECIDED, "ablation")
    assert "report paper" not in one.stderr


def test_a_report_of_nothing_measured_says_so(tiny_file: Path, results: Path) -> None:
    msbench("run", tiny_file, "--results", results, "--set", "train.epochs=1")
    done = msbench("report", tiny_file, "--results", results, "--csv", "--out", results / "out")
    assert done.exit_code == ExitCode.UNDECIDED
    assert "nothing was measured" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_bug() -> None:
    process = spawn("list", "suites", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_a_signal_ends_the_wait_for_another_process(tiny_file: Path, results: Path) -> None:
    msbench("run", tiny_file, "--results", results, "--model", "mamba")
    (record,) = results.rglob("run.json")
    record.unlink()
    with store.lock_run(record.parent, wait=False) as mine:
        assert mine
        process = spawn("run", tiny_file, "--results", results, "--model", "mamba")
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting for another process" in line:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 143


def test_a_failed_run_leaves_the_others_going(
    tiny_file: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.run

    def run(self: Trainer) -> None:
        if self.spec.model_name == "msssm-s6":
            raise RuntimeError("[/s4] broke")
        original(self)

    monkeypatch.setattr(Trainer, "run", run)
    done = msbench("run", tiny_file, "--results", results)
    assert done.exit_code == ExitCode.RUN_FAILED
    assert "failed: [/s4] broke" in done.stdout
    assert [record.status for record in store.read_records(results)[0]] == ["finished", "failed"]


def test_machine_output_has_no_escapes_whatever_the_colours(tiny_file: Path, results: Path) -> None:
    process = spawn("run", tiny_file, "--results", results, "--json", FORCE_COLOR="1", GITHUB_ACTIONS="true")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(json.loads(out)) == 2


def test_other_alphabets_survive_an_ascii_terminal(results: Path) -> None:
    process = spawn(
        "run", "модель→", "--results", results, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.USAGE
    assert "unknown suite" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_same_command_resumes(
    tiny_file: Path, results: Path, number: signal.Signals, code: int
) -> None:
    command = ("run", tiny_file, "--results", results, "--set", "train.epochs=400", "--model", "mamba")
    process = spawn(*command)
    wait_for(results, "metrics.csv", process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "same command resumes" in err
    (record,), _ = store.read_records(results)
    assert (record.status, record.metrics) == ("interrupted", {})
    rows = json.loads(msbench("explain", *command[1:], "--json").stdout)
    assert rows[0]["action"] == "resume"


def wait_for(results: Path, name: str, process: "subprocess.Popen[str]") -> None:
    for _ in range(600):
        if list(results.rglob(name)):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"no {name} within 30 s")


@pytest.mark.parametrize("option", ["--threads", "--jobs", "--devices"])
def test_more_processes_than_any_machine_has_are_a_usage_error(
    tiny_file: Path, results: Path, option: str
) -> None:
    done = msbench("run", tiny_file, "--results", results, option, str(2**63))
    assert done.exit_code == ExitCode.USAGE
    assert f"Invalid value for '{option}'" in done.stderr
    assert not results.exists()


def test_a_row_for_each_run_is_written(tiny_file: Path, results: Path) -> None:
    msbench("run", tiny_file, "--results", results)
    msbench("run", tiny_file, "--results", results, "--model", "mamba", "--set", "train.epochs=1")
    out = results.parent / "out"
    done = msbench("report", tiny_file, "--results", results, "--by-run", "--out", out)
    assert done.exit_code == 0, done.stderr
    with (out / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["run_id"]: row for row in csv.DictReader(file)}
    records = {record.run_id: record for record in store.read_records(results)[0]}
    assert rows.keys() == records.keys()
    for run_id, row in rows.items():
        assert float(row["result"]) == records[run_id].result
        assert row["train.epochs"] == str(records[run_id].spec["train"]["epochs"])
        assert row["shown"] == ("true" if row["train.epochs"] == "3" else "false")
        assert row["failure"] == ""
    words = ("report", tiny_file, "--results", results, "--by-run", "--validation")
    assert "--by-run: shows test results" in msbench(*words).stderr


def test_a_dry_run_reports_every_model_that_cannot_be_built(tiny_file: Path, results: Path) -> None:
    text = tiny_file.read_text(encoding="utf-8")
    own = "  first: {use: './own.py:build'}\n  second: {use: './own.py:build_too'}\n"
    tiny_file.write_text(text + own, encoding="utf-8")
    code = (
        "from msbench.config.base import ClassifierConfig\n"
        "def build(config: ClassifierConfig, info):\n    raise ValueError('one')\n"
        "def build_too(config: ClassifierConfig, info):\n    raise ValueError('two')\n"
    )
    (tiny_file.parent / "own.py").write_text(code, encoding="utf-8")
    done = msbench("run", tiny_file, "--dry-run", "--results", results)
    assert done.exit_code == ExitCode.USAGE
    lines = done.stderr.splitlines()
    assert sum("tiny.yaml:18: model.use" in line and "ValueError: one" in line for line in lines) == 1
    assert sum("tiny.yaml:19: model.use" in line and "ValueError: two" in line for line in lines) == 1
    assert not results.exists()
