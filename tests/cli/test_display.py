"""What a run shows while it trains."""

import sys
from dataclasses import replace

import pytest
import torch

from msbench.cli.display import BarProgress, LogProgress, PoolBar, show_pool, show_progress
from msbench.config import RunSpec
from msbench.runs.duration import Campaign, Estimate, RunTimes
from msbench.runs.launchers import PoolProgress
from msbench.runs.plan import PlannedRun
from msbench.runs.suite import Suite, resolve_specs
from msbench.training.metrics import EpochRow, EpochSums, ProgressCallback, StepReport

ROW = EpochRow(1, 16, 1e-3, 1.5, 0.25, 1.25, 0.5, 2.0, 12345.6, 0.1)


def report(step: int) -> StepReport:
    """A report with a mean loss of 1, half of the decisions right, 1,000 tokens a second."""
    sums = EpochSums(torch.tensor(8.0), torch.tensor(0.0), torch.tensor(4), seen=8, tokens=2000, seconds=2.0)
    return StepReport(1, 3, step, 24, sums, decisions=1)


@pytest.fixture
def spec(tiny: Suite) -> RunSpec:
    return resolve_specs(tiny, ["mamba"])[0]


def test_a_log_gets_a_line_an_epoch(spec: RunSpec, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(spec, quiet=False) as listener:
        assert type(listener) is LogProgress
        listener.step(report(5))
        listener.epoch(ROW)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "listops-tiny · mamba · seed 0: epoch 1/3, step 16: train loss 1.5000, accuracy 25.00%; "
        "validation 50.00%; 12,346 tokens/s\n"
    )


def test_the_metric_that_chooses_the_epoch_is_named(
    spec: RunSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    LogProgress(spec).epoch(replace(ROW, validation_macro_auroc=0.75))
    assert "accuracy 25.00%; validation macro AUROC 75.00%; 12,346 tokens/s" in capsys.readouterr().err


def test_a_terminal_gets_a_bar(
    spec: RunSpec, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    assert type(show_progress(spec, quiet=False)) is LogProgress  # its cursor cannot be moved
    monkeypatch.setenv("TERM", "xterm")
    with show_progress(spec, quiet=False) as listener:
        assert isinstance(listener, BarProgress)
        listener.step(report(5))
        listener.note("[s4] resumed")
        text = "".join(column for column in map(str, listener.bar.get_renderables()))
        task = listener.bar.tasks[0]
    assert (task.completed, task.total) == (5, 24)
    assert task.fields["figures"] == "loss 1.000 acc 50.0% 1.0k tok/s"
    assert text
    assert "[s4] resumed" in capsys.readouterr().err


def test_quiet_says_nothing(spec: RunSpec, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(spec, quiet=True) as listener:
        assert type(listener) is ProgressCallback
        listener.epoch(ROW)
        listener.note("x")
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def campaign(tiny: Suite) -> Campaign:
    """Two runs of an hour each, by a clock that stands still."""
    specs = resolve_specs(tiny, ["mamba", "msssm-s6"])
    campaign = Campaign([PlannedRun(each, "train", "", None, None) for each in specs], hourly(), clock=float)
    assert campaign.count == 2
    return campaign


def hourly() -> RunTimes:
    class Hourly(RunTimes):
        def estimate(self, *_: object) -> Estimate:
            return Estimate(3600.0, "1 run")

    return Hourly((), "cpu", devices=1, threads=1)


def test_of_several_runs_it_says_which_and_what_is_left(
    spec: RunSpec, campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_progress(spec, campaign, quiet=False):
        campaign.end(spec)
    assert capsys.readouterr().err == "listops-tiny · mamba · seed 0: run 2 of 2, 2 h 0 min left\n"
    with show_progress(spec.model_copy(update={"seed": 9}), campaign, quiet=False):
        pass  # a run that is kept
    assert capsys.readouterr().err == ""


def test_a_second_bar_is_of_all_runs(
    spec: RunSpec, campaign: Campaign, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with show_progress(spec, campaign, quiet=False) as listener:
        assert isinstance(listener, BarProgress)
        now = [0.0]
        listener.bar.get_time = lambda: now[0]
        for step in range(1, 11):
            now[0] = 1e9 + step
            listener.step(report(step))
        mine, every = listener.bar.tasks
        assert mine.fields["left"] == "14 s left"
        assert (every.fields["name"], every.fields["left"]) == ("run 2 of 2", "1 h 0 min left")
        assert (every.completed, every.total) == (0, 2)
    shown = capsys.readouterr().err
    assert "listops-tiny · mamba · seed 0: run 2 of 2, 2 h 0 min left\n" in shown


def test_runs_in_parallel_get_one_bar(
    spec: RunSpec, campaign: Campaign, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(show_pool(quiet=False)) is PoolProgress  # lines
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    assert type(show_pool(quiet=True)) is PoolProgress
    with show_pool(quiet=False) as shown:
        assert isinstance(shown, PoolBar)
        campaign.end(spec)
        shown.move(campaign.ended, campaign.count, campaign.describe_left(), [spec])
        shown.note("[s4] ended")
        (task,) = shown.bar.tasks
    assert (task.completed, task.total) == (1, 2)
    assert (task.fields["figures"], task.fields["left"]) == ("mamba s0", "1 h 0 min left")
    text = capsys.readouterr().err
    assert "[s4] ended\n" in text
    assert "1/2" in text
