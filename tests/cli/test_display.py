"""What a run shows while it trains."""

import sys
from dataclasses import replace

import pytest

from msbench.cli.display import BarProgress, LogProgress, show_progress
from msbench.config import RunSpec
from msbench.runs.suite import Suite, resolve_specs
from msbench.training.metrics import EpochRow, ProgressCallback, StepReport

ROW = EpochRow(1, 16, 1e-3, 1.5, 0.25, 1.25, 0.5, 2.0, 12345.6, 0.1)


@pytest.fixture
def spec(tiny: Suite) -> RunSpec:
    return resolve_specs(tiny, ["mamba"])[0]


def test_a_log_gets_a_line_an_epoch(spec: RunSpec, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(spec, quiet=False) as listener:
        assert type(listener) is LogProgress
        listener.step(StepReport(1, 3, 5, 24, 1.0, 0.5, 1000.0))
        listener.epoch(ROW)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "listops-tiny · mamba · seed 0: epoch 2/3, step 16: train loss 1.5000, accuracy 25.00%; "
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
        listener.step(StepReport(1, 3, 5, 24, 1.0, 0.5, 1000.0))
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
