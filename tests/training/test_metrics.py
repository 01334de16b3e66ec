"""metrics.csv: one header, a row an epoch."""

from pathlib import Path

import pandas as pd

from msbench.training.metrics import EpochRow, write_metrics


def row(epoch: int, auroc: float | None = None) -> EpochRow:
    return EpochRow(epoch, 10 * epoch, 1e-3, 1 / 3, 0.5, 0.25, 0.75, 2.0, 1000.0, 0.1, auroc)


def test_rows_are_rewritten_whole_and_unrounded(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    write_metrics(path, [row(0)])
    write_metrics(path, [row(0), row(1), row(2)])
    frame = pd.read_csv(path)
    assert list(frame["epoch"]) == [0, 1, 2]
    assert frame["train_loss"][0] == 1 / 3
    assert b"\r" not in path.read_bytes()
    assert "validation_macro_auroc" not in frame


def test_a_metric_that_comes_later_leaves_earlier_rows_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    write_metrics(path, [row(0)])
    write_metrics(path, [row(0), row(1, 1 / 7)])
    frame = pd.read_csv(path)
    assert frame["validation_macro_auroc"].isna().tolist() == [True, False]
    assert frame["validation_macro_auroc"][1] == 1 / 7
    assert frame["padding"].tolist() == [0.1, 0.1]


def test_an_epoch_is_chosen_by_the_metric_of_the_task() -> None:
    assert (row(0).score, row(0, 0.6).score) == (0.75, 0.6)
