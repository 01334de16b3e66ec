"""Logs of epochs as a report reads them."""

from pathlib import Path

import pytest

from msbench.results.metrics_log import read_log
from msbench.training.metrics import EpochRow, write_metrics


def test_logs_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = [
        EpochRow(epoch, 5, 0.1, 1.5, 0.3, 1.4, score, 1.0, 9.0, 0.0) for epoch, score in ((0, 0.25), (1, 0.5))
    ]
    write_metrics(tmp_path / "metrics.csv", log)
    rows, problem = read_log(tmp_path)
    assert problem == ""
    assert [row["validation_accuracy"] for row in rows] == ["0.25", "0.5"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        (b"", "no epoch"),
        (b"epoch,train_loss\n", "no epoch"),
        (b"epoch,train_loss\nx,1\n", "no epoch"),
        (b"\xff\xfe\x00", "decode"),
        (b"\x00\x01", "metrics.csv"),
    ],
)
def test_a_log_that_is_none_is_reported(content: bytes | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metrics.csv").write_bytes(content)
    rows, message = read_log(tmp_path)
    assert not rows
    assert str(tmp_path / "metrics.csv") in message
    assert problem in message
