import math

import pytest
from scipy import stats

from msbench.gate.calibration import RELIABLY, STEP, calibrate_margin, compute_chances
from msbench.runs.suite_gate import WIDEST_MARGIN

GROUPS = [(0.527, 0.537, 0.534), (0.507, 0.494, 0.474)]


def test_the_margin_is_the_smallest_that_passes_reliably() -> None:
    found = calibrate_margin(GROUPS, 1, 3)
    assert found is not None
    assert found.sd == pytest.approx(math.sqrt((0.00005266667 + 0.00055266667) / 4), rel=1e-6)
    assert found.degrees == 4
    assert found.margin == pytest.approx(0.06)
    error = found.sd * math.sqrt(4 / 3)
    t = stats.t.ppf(0.95, 4)
    assert found.passes == pytest.approx(stats.nct.sf(t, 4, 0.06 / error))
    assert found.passes >= RELIABLY > stats.nct.sf(t, 4, (0.06 - STEP) / error)
    assert found.fails < 1e-4
    assert found.fails_at_twice == pytest.approx(found.passes, abs=1e-6)


def test_against_the_paper_own_seeds_add_no_degrees() -> None:
    """There, the spread that a suite states stands alone, as `seed_spread` has it."""
    exact, both = calibrate_margin(GROUPS, 5, 0), calibrate_margin(GROUPS, 5, 3)
    assert exact is not None
    assert both is not None
    for found, degrees, share in ((exact, 4, 1 / 5), (both, 8, 1 / 5 + 1 / 3)):
        assert found.margin is not None
        shift = found.margin / (found.sd * math.sqrt(share))
        assert found.passes == pytest.approx(stats.nct.sf(stats.t.ppf(0.95, degrees), degrees, shift))


def test_more_seeds_bear_a_smaller_margin() -> None:
    margins = [
        found.margin
        for found in (
            calibrate_margin(GROUPS, n, expected) for n, expected in ((1, 3), (3, 3), (3, 10), (10, 0))
        )
        if found is not None and found.margin is not None
    ]
    assert len(margins) == 4
    assert margins == sorted(margins, reverse=True)


@pytest.mark.parametrize("groups", [[], [(0.5,)], [(0.5,), (0.6,)], [(0.5, 0.5, 0.5)]])
def test_seeds_without_a_spread_tell_nothing(groups: list[tuple[float, ...]]) -> None:
    assert calibrate_margin(groups, 1, 1) is None


def test_a_spread_too_wide_bears_no_margin() -> None:
    found = calibrate_margin([(0.3, 0.6)], 1, 1)
    assert found is not None
    assert found.margin is None
    assert found.passes < RELIABLY
    assert 3 * found.sd > WIDEST_MARGIN


def test_chances_at_the_edge_are_five_percent_each() -> None:
    found = compute_chances(0.0, 0.01, 4)
    assert (found.above, found.below) == pytest.approx((0.05, 0.05))
    assert found.undecided == pytest.approx(0.9)
