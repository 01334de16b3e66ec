import math
import statistics

import pytest

from msbench.reporting.tables.cells import Cell, CellStatus
from msbench.reporting.tables.measure import average_cells


def measured(value: float, sd: float | None = None, n: int = 1, planned: int = 1, run: str = "r") -> Cell:
    return Cell(measured=value, sd=sd, n=n, n_planned=planned, status="measured", run_ids=(run,))


def test_a_mean_over_tasks_with_the_runs_of_all() -> None:
    cell = average_cells("AVG.", [("Text", measured(80.0, run="a")), ("Image", measured(90.0, run="b"))])
    assert (cell.measured, cell.sd, cell.n, cell.status) == (85.0, None, 1, "measured")
    assert cell.run_ids == ("a", "b")


def test_the_spread_is_that_of_an_average_of_one_run_a_task() -> None:
    cell = average_cells("AVG.", [("Text", measured(80.0, 3.0, 3, 3)), ("Image", measured(90.0, 4.0, 3, 3))])
    assert cell.sd == pytest.approx(2.5)
    assert cell.sd == pytest.approx(math.sqrt((3.0**2 + 4.0**2) / 2**2))


def test_the_spread_agrees_with_averages_of_all_pairings_of_seeds() -> None:
    """Seeds of two tasks have no business with each other: over all pairings, the variances add up."""
    text, image = [80.0, 82.0, 87.0], [60.0, 66.0, 69.0]
    pairs = [(a + b) / 2 for a in text for b in image]
    parts = [("t", measured(80.0, statistics.pstdev(text))), ("i", measured(90.0, statistics.pstdev(image)))]
    assert average_cells("AVG.", parts).sd == pytest.approx(statistics.pstdev(pairs))


def test_one_task_without_a_spread_leaves_none() -> None:
    parts = [("Text", measured(80.0, 3.0, 3, 3)), ("Image", measured(90.0, None, 1, 3))]
    cell = average_cells("AVG.", parts)
    assert (cell.sd, cell.n, cell.n_planned) == (None, 1, 3)


@pytest.mark.parametrize("status", ["missing", "diverged", "out-of-memory"])
def test_a_task_that_lacks_leaves_a_hole_that_says_which(status: CellStatus) -> None:
    parts = [("Text", measured(80.0)), ("Path-X", Cell(n_planned=1, status=status))]
    cell = average_cells("AVG.", parts)
    assert (cell.measured, cell.status, cell.n, cell.run_ids) == (None, "missing", 0, ())
    assert cell.notes == (f"AVG. is not computed: Path-X {status}",)


def test_nothing_measured_needs_no_word() -> None:
    assert average_cells("AVG.", [("Text", Cell()), ("Image", Cell())]) == Cell()
    assert average_cells("AVG.", []) == Cell()
