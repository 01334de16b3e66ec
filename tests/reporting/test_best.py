import pytest

from msbench.reporting.tables.build import mark_best
from msbench.reporting.tables.cells import Cell, Column, Row


@pytest.mark.parametrize(
    ("other", "marked"), [(93.0, True), (92.6, True), (92.4, False)], ids=["equal", "rounds to it", "below"]
)
def test_a_wide_spread_of_the_best_decides_what_prints_the_same(other: float, marked: bool) -> None:
    """93.4 ± 11 prints as 93, and so does 92.60 to as many decimals."""
    cells = [Cell(measured=93.4, sd=11.0, n=2), Cell(measured=other, sd=0.1, n=2)]
    rows = mark_best([Row(str(at), "", "m", (cell,)) for at, cell in enumerate(cells)], [Column("t", "T")])
    assert [row.cells[0].best for row in rows] == [True, marked]
