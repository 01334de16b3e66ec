"""Learning curves read back and shortened."""

from pathlib import Path

import pytest
from made_runs import keep, write_curve

from msbench.errors import DataError
from msbench.reporting.compare.curve import BAR, ROWS, Epoch, bar, read_curve, thinned


def test_a_curve_is_that_of_the_metric(tmp_path: Path) -> None:
    found = keep(tmp_path, "0" * 12, metric="macro-auroc")
    assert read_curve(found.folder, "macro-auroc") == []
    write_curve(found, [0.25, 0.5])
    assert read_curve(found.folder, "macro-auroc") == [Epoch(0, 1.75, 2.75, 0.25), Epoch(1, 1.5, 2.5, 0.5)]


@pytest.mark.parametrize("text", ["epoch\n1\n", "epoch,train_loss\n1,x\n", "epoch\n\x00\n"])
def test_what_is_no_curve_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"metrics\.csv: not the metrics of a run"):
        read_curve(tmp_path, "accuracy")


@pytest.mark.parametrize("count", [0, 1, 2, ROWS, ROWS + 1, 35, 1000])
@pytest.mark.parametrize("keep", [(), (0,), (17,), (5, 9), (10**6,)])
def test_a_long_curve_keeps_its_ends_and_what_is_asked(count: int, keep: tuple[int, ...]) -> None:
    chosen = thinned(count, keep)
    assert len(chosen) <= ROWS
    assert chosen == sorted(set(chosen))
    assert {0, count - 1} <= set(chosen) or not count
    assert {index for index in keep if index < count} <= set(chosen)
    assert len(chosen) >= min(count, ROWS - 2)


def test_bars_are_in_proportion() -> None:
    assert [len(bar(value, 0.0, 1.0)) for value in (0.0, 0.5, 1.0)] == [1, 1 + round(0.5 * (BAR - 1)), BAR]
    assert len(bar(0.5, 0.5, 0.5)) == BAR
