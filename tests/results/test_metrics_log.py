"""metrics.csv: one header, rows within and after epochs; read as a report reads it."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from msbench.results.metrics_log import parse_number, read_log, select_epochs, write_log
from msbench.training.metrics import EpochRow, StepRow


def row(epoch: int, auroc: float | None = None) -> EpochRow:
    return EpochRow(epoch, 10 * epoch, 1e-3, 1 / 3, 0.5, 0.25, 0.75, 2.0, 1000.0, 0.1, auroc)


def write(folder: Path, *rows: EpochRow | StepRow) -> None:
    write_log(folder, [asdict(each) for each in rows])


def test_rows_are_rewritten_whole_and_unrounded(tmp_path: Path) -> None:
    write(tmp_path, row(0))
    write(tmp_path, row(0), row(1), row(2))
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert list(frame["epoch"]) == [0, 1, 2]
    assert frame["train_loss"][0] == 1 / 3
    assert b"\r" not in (tmp_path / "metrics.csv").read_bytes()
    assert "validation_macro_auroc" not in frame


def test_a_metric_that_comes_later_leaves_earlier_rows_empty(tmp_path: Path) -> None:
    write(tmp_path, row(0))
    write(tmp_path, row(0), row(1, 1 / 7))
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert frame["validation_macro_auroc"].isna().tolist() == [True, False]
    assert frame["validation_macro_auroc"][1] == 1 / 7
    assert frame["padding"].tolist() == [0.1, 0.1]


def test_an_epoch_is_chosen_by_the_metric_of_the_task() -> None:
    assert (row(0).score, row(0, 0.6).score) == (0.75, 0.6)


def test_logs_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = [
        EpochRow(epoch, 5, 0.1, 1.5, 0.3, 1.4, score, 1.0, 9.0, 0.0) for epoch, score in ((0, 0.25), (1, 0.5))
    ]
    write(tmp_path, *log)
    rows, problem = read_log(tmp_path)
    assert problem == ""
    assert [row["validation_accuracy"] for row in rows] == ["0.25", "0.5"]


def test_rows_within_an_epoch_stand_before_its_own(tmp_path: Path) -> None:
    steps = [StepRow(epoch, step, 1e-3, 2.0, 0.5) for epoch, step in ((0, 5), (1, 15), (1, 20))]
    write(tmp_path, steps[0])
    assert (select_epochs(read_log(tmp_path)[0]), len(read_log(tmp_path)[0])) == ((), 1)
    write(tmp_path, *steps, row(1), row(2))
    rows, problem = read_log(tmp_path)
    found = [(each["epoch"], each["step"], each["validation_loss"]) for each in rows]
    assert found == [
        ("0", "5", ""),
        ("1", "10", "0.25"),
        ("1", "15", ""),
        ("1", "20", ""),
        ("2", "20", "0.25"),
    ]
    assert ([each["step"] for each in select_epochs(rows)], problem) == (["10", "20"], "")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        (b"", "no epoch"),
        (b"epoch,train_loss\n", "no epoch"),
        (b"epoch,train_loss\nx,1\n", "no epoch"),
        *(
            (b"epoch,train_loss\n%s,1\n" % epoch, "no epoch")
            for epoch in (b"1e308", b"-1e308", b"-1", b"0.5", b"inf")
        ),
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


def test_a_log_that_passed_through_a_spreadsheet_is_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_bytes("\ufeffepoch,train_loss\r\n0,1.5\r\n".encode())
    assert read_log(tmp_path) == (({"epoch": "0", "train_loss": "1.5"},), "")


def test_a_value_that_no_axis_can_hold_is_none() -> None:
    assert [parse_number({"loss": text}, "loss") for text in ("1e308", "-1e308", "nan", "", "1e99")] == [
        *(4 * [None]),
        1e99,
    ]
