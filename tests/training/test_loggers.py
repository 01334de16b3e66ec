"""Loggers of other programs: each point once, whatever happens to the run; a failing one costs no result."""

import csv
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import wandb
from logged_curves import read_tensorboard, read_wandb
from typer.testing import CliRunner

from msbench.cli import app
from msbench.config import RunSpec
from msbench.errors import ConfigError, ExitCode, Interrupted, UnknownName
from msbench.results.record import RunRecord
from msbench.runs.execution import RunContext, execute
from msbench.runs.launchers import RunOptions
from msbench.runs.suite import Suite, resolve_specs
from msbench.training import loggers
from msbench.training.loggers import REQUIREMENTS, LoggedRun, RunLoggers, check_loggers
from msbench.training.metrics import EpochRow, ProgressCallback
from msbench.training.signals import SignalFlag

ROWS: list[dict[str, Any]] = [
    {"epoch": 0, "step": 4, "train_loss": 2.0},
    {"epoch": 0, "step": 8, "train_loss": 1.5, "validation_loss": 1.0, "auxiliary_loss": None},
]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # no settings or keys of whoever runs the tests
    monkeypatch.setenv("WANDB_MODE", "offline")
    yield
    wandb.teardown()


@pytest.fixture
def spec(tiny: Suite) -> RunSpec:
    return resolve_specs(tiny, ["mamba"])[0]


class Stopped(ProgressCallback):
    """Sends a signal after the first epoch."""

    def __init__(self, flag: SignalFlag) -> None:
        self.flag = flag

    def epoch(self, row: EpochRow) -> None:
        if row.epoch == 1:
            self.flag.received = signal.SIGTERM


class Warned(ProgressCallback):
    """Keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def train(
    spec: RunSpec, results: Path, data: Path, *names: str, listener: ProgressCallback | None = None
) -> tuple[RunRecord, Path]:
    place = RunContext(results, data, "cpu", SignalFlag(), loggers=names)
    record = execute(spec, place, listener or ProgressCallback())
    assert record is not None
    return record, results / record.suite / record.task / record.model / record.run_id


def test_a_resumed_run_has_each_point_once_and_its_result(
    spec: RunSpec, tmp_path: Path, data_folder: Path
) -> None:
    plain, plain_folder = train(spec, tmp_path / "plain", data_folder)
    flag = SignalFlag()
    place = RunContext(tmp_path / "results", data_folder, "cpu", flag, loggers=("tensorboard", "wandb"))
    with pytest.raises(Interrupted):
        execute(spec, place, Stopped(flag))
    record, folder = train(spec, tmp_path / "results", data_folder, "tensorboard", "wandb")

    assert record.resumed == 1
    assert (record.run_id, record.metrics) == (plain.run_id, plain.metrics)
    predictions = [path / "predictions.parquet" for path in (folder, plain_folder)]
    assert predictions[0].read_bytes() == predictions[1].read_bytes()

    with open(folder / "metrics.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    expected: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        kind = "epoch" if row["validation_loss"] else "step"
        for name in [name for name in row if row[name] and name not in ("epoch", "step")]:
            expected.setdefault(f"{kind}/{name}", []).append((int(row["step"]), float(row[name])))
    assert [len(expected[f"{kind}/train_loss"]) for kind in ("epoch", "step")] == [3, 24]

    curves, found = read_tensorboard(folder)
    results = {name: curves.pop(name) for name in list(curves) if name.startswith("result/")}
    assert curves == {name: [(step, float(np.float32(y))) for step, y in c] for name, c in expected.items()}
    assert results["result/test_accuracy"] == [(24, float(np.float32(record.metrics["test_accuracy"])))]
    assert len(list((folder / "tensorboard").iterdir())) == 1
    (text,) = found.Tensors("settings/text_summary")
    assert b"| train.lr | 0.01 |" in text.tensor_proto.string_val[0]
    hyperparameters = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"train.lr" in hyperparameters
    assert record.run_id.encode() in hyperparameters

    curves, about = read_wandb(folder)
    assert curves == expected
    assert (about["id"], about["project"], about["code"]) == (record.run_id, "msbench", 0)
    assert about["config"]["train.lr"] == 0.01
    assert about["config"]["parameters"] == record.parameters
    assert about["summary"]["result/test_accuracy"] == record.metrics["test_accuracy"]


def test_a_logger_that_is_added_on_resumption_has_the_whole_curve(
    spec: RunSpec, tmp_path: Path, data_folder: Path
) -> None:
    flag = SignalFlag()
    place = RunContext(tmp_path / "results", data_folder, "cpu", flag)
    with pytest.raises(Interrupted):
        execute(spec, place, Stopped(flag))
    _, folder = train(spec, tmp_path / "results", data_folder, "tensorboard")
    curves, _ = read_tensorboard(folder)
    assert [step for step, _ in curves["epoch/train_loss"]] == [8, 16, 24]


def test_rows_within_epochs_are_curves_of_their_own(tmp_path: Path) -> None:
    made = RunLoggers(["tensorboard"], LoggedRun(tmp_path, "id", "a run", {"a": 1}, pytest.fail))
    made.log(ROWS[:1])
    made.log(ROWS)
    made.log(ROWS)
    made.end({}, finished=False)
    curves, _ = read_tensorboard(tmp_path)
    assert curves == {
        "step/train_loss": [(4, 2.0)],
        "epoch/train_loss": [(8, 1.5)],
        "epoch/validation_loss": [(8, 1.0)],
    }


def test_without_a_first_row_earlier_points_stay(tmp_path: Path) -> None:
    made = RunLoggers(["tensorboard"], LoggedRun(tmp_path, "id", "a run", {}, pytest.fail))
    made.log(ROWS)
    made.end({}, finished=False)
    RunLoggers(["tensorboard"], LoggedRun(tmp_path, "id", "a run", {}, pytest.fail)).end({}, finished=False)
    assert read_tensorboard(tmp_path)[0]["epoch/train_loss"] == [(8, 1.5)]


def test_a_server_that_has_the_first_rows_gets_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[dict[str, Any]] = []
    run = SimpleNamespace(
        starting_step=1,
        dir=str(tmp_path / "run-1" / "files"),
        log=logged.append,
        define_metric=lambda *_, **__: 0,
    )
    monkeypatch.setattr(wandb, "init", lambda **_: run)
    RunLoggers(["wandb"], LoggedRun(tmp_path, "id", "a run", {}, pytest.fail)).log(ROWS)
    assert logged == [{"epoch/train_loss": 1.5, "epoch/validation_loss": 1.0, "step": 8}]


def test_without_a_key_a_run_is_logged_offline_and_a_warning_says_how_to_send_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    warnings: list[str] = []
    made = RunLoggers(["wandb"], LoggedRun(tmp_path, "abc", "a run", {}, warnings.append))
    made.log(ROWS)
    made.end({"test_accuracy": 0.5}, finished=True)
    assert len(warnings) == 1, warnings
    (warning,) = warnings
    (folder,) = tmp_path.glob("wandb/offline-run-*-abc")
    assert warning.startswith("wandb logs offline: not logged in")
    assert f"wandb sync {folder}" in warning
    assert read_wandb(tmp_path)[0]["epoch/train_loss"] == [(8, 1.5)]


def test_msbench_offline_is_offline_for_wandb_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("MSBENCH_OFFLINE", "1")
    given: list[Any] = []
    monkeypatch.setattr(wandb, "init", lambda **options: given.append(options["mode"]))
    RunLoggers(["wandb"], LoggedRun(tmp_path, "id", "a run", {}, lambda _: None))
    assert given == ["offline"]


@pytest.mark.parametrize("method", ["__init__", "log", "end"])
def test_a_logger_that_fails_is_reported_and_costs_no_result(
    spec: RunSpec, tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loggers.TensorBoardCurves, method, fail)
    listener = Warned()
    record, folder = train(spec, tmp_path / "results", data_folder, "tensorboard", listener=listener)
    assert record.status == "finished"
    (warning,) = listener.warnings
    assert "mamba · seed 0: tensorboard has stopped: [Errno 28] No space left on device" in warning
    assert f"warning: {warning}" in (folder / "run.log").read_text()


def test_event_files_that_cannot_be_written_are_reported(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file in place of the folder")
    warnings: list[str] = []
    made = RunLoggers(["tensorboard"], LoggedRun(tmp_path, "id", "a run", {}, warnings.append))
    made.log(ROWS)
    made.log(ROWS)
    assert len(warnings) == 1
    assert warnings[0].startswith("tensorboard has stopped: ")


def test_a_server_that_does_not_answer_at_the_end_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(**_: object) -> None:
        raise TimeoutError

    run = SimpleNamespace(
        starting_step=0,
        dir=str(tmp_path / "run-1" / "files"),
        summary={},
        finish=finish,
        define_metric=lambda *_, **__: 0,
    )
    monkeypatch.setattr(wandb, "init", lambda **_: run)
    warnings: list[str] = []
    RunLoggers(["wandb"], LoggedRun(tmp_path, "id", "a run", {}, warnings.append)).end(
        {"a": 1.0}, finished=True
    )
    assert f"`wandb sync {tmp_path / 'run-1'}` sends the rest" in warnings[0]
    assert run.summary == {"result/a": 1.0}


def test_an_unknown_logger_and_a_missing_package_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    check_loggers(["tensorboard", "wandb"])
    with pytest.raises(UnknownName, match="--log: unknown logger 'tensorbord'; did you mean 'tensorboard'"):
        check_loggers(["tensorbord"])
    monkeypatch.setattr(loggers, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"wandb is not installed: pip install 'wandb>=[0-9.]+'$"):
        check_loggers(["wandb"])


def test_the_command_names_what_is_missing_before_anything_is_done(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda _name: None)
    words = ["run", str(tiny_file), "--results", str(tmp_path / "results"), "--log", "tensorboard"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == ExitCode.USAGE
    assert "--log tensorboard: the package tensorboard is not installed: pip install '" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("option", ["--jobs", "--devices"])
def test_processes_of_the_command_log_and_only_the_first_of_a_run(
    tiny_file: Path, tmp_path: Path, option: str
) -> None:
    words = ["run", str(tiny_file), "--results", str(tmp_path / "results"), "--model", "mamba", option, "2"]
    command = [sys.executable, "-m", "msbench", *words, "--log", "tensorboard", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (folder,) = tmp_path.glob("results/tiny/*/mamba/*")
    assert len(list((folder / "tensorboard").iterdir())) == 1
    assert [step for step, _ in read_tensorboard(folder)[0]["epoch/train_loss"]] == [8, 16, 24]
    assert (folder / "run.log").read_text().count(" epoch 3/3, step 24: ") == 1


def test_a_job_logs_as_its_command(tiny: Suite, tiny_file: Path) -> None:
    options = RunOptions(suites=("tiny",), loggers=("tensorboard", "wandb"))
    words = options.build_run_command(resolve_specs(tiny, ["mamba"])[0], tiny_file)
    assert "--log tensorboard --log wandb" in " ".join(words)


def test_a_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "absent_logger").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(REQUIREMENTS, "absent_logger", "absent_logger")
    with pytest.raises(ConfigError, match="absent_logger is not installed"):
        check_loggers(["absent_logger"])


def test_the_named_packages_are_the_extras() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert {name: extras[name] for name in REQUIREMENTS} == {
        name: [text] for name, text in REQUIREMENTS.items()
    }
    assert set(REQUIREMENTS.values()) <= set(extras["dev"])
