"""metrics.csv: one header, a row an epoch."""

from pathlib import Path

import pandas as pd

from msbench.training.metrics import EpochRow, write_metrics


def row(epoch: int) -> EpochRow:
    return EpochRow(epoch, 10 * epoch, 1e-3, 1 / 3, 0.5, 0.25, 0.75, 2.0, 1000.0, 0.1)


def test_rows_are_rewritten_whole_and_unrounded(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    write_metrics(path, [row(0)])
    write_metrics(path, [row(0), row(1), row(2)])
    frame = pd.read_csv(path)
    assert list(frame["epoch"]) == [0, 1, 2]
    assert frame["train_loss"][0] == 1 / 3
    assert b"\r" not in path.read_bytes()
