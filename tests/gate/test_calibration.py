"""Margins from the spread of seeds, and the command that prints them."""

import json
import math
from pathlib import Path

import pytest
from check_runs import SETTLED, msbench, run_all, suite_file
from scipy import stats
from simulation import compute_chances

from msbench.config.layers import parse_yaml, validate
from msbench.errors import ExitCode
from msbench.gate.calibration import RELIABLY, STEP, calibrate_margin
from msbench.runs.suite_file import WIDEST_MARGIN, GateSettings

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
def test_seeds_without_a_spread_show_nothing(groups: list[tuple[float, ...]]) -> None:
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


MAMBA, GRIFFIN = SETTLED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return suite_file(tmp_path)


def test_what_it_prints_can_stand_in_the_suite(path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, MAMBA, GRIFFIN)
    before = path.read_bytes()
    done = msbench("check", path, "--calibrate", "--results", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert path.read_bytes() == before
    suggested = done.stdout.split("\n\n", 1)[1]
    gate = validate(GateSettings, parse_yaml(suggested, "suggested").at("gate"))
    layer = gate.for_cell("listops", "mamba")
    assert layer.margin == pytest.approx(0.01)
    assert layer.sd == pytest.approx(0.00227, abs=1e-5)
    assert layer.degrees == 4
    assert "3 against 3 seeds" in str(layer.reason)
    suite_file(tmp_path, suggested)
    assert msbench("check", path, "--calibrate", "--results", tmp_path).exit_code == 0


def test_against_the_paper_only_own_seeds_vary(path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, MAMBA, GRIFFIN)
    done = msbench("check", path, "--calibrate", "--against", "paper", "--results", tmp_path, "--json")
    (learned,) = json.loads(done.stdout)
    assert learned["calibration"]["n_expected"] == 0
    assert set(learned["models"]) == {"mamba", "griffin"}


@pytest.mark.parametrize(
    ("mamba", "words"),
    [
        ((0.6,), "at least two seeds of one model are needed"),
        ((0.6, 0.6), "they must differ"),
        ((0.2, 0.9), "not even a margin of 20% passes reliably"),
    ],
)
def test_seeds_that_allow_no_margin(mamba: tuple[float, ...], words: str, path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, mamba, ())
    done = msbench("check", path, "--calibrate", "--results", tmp_path)
    assert done.exit_code == 0
    assert words in done.stdout


def test_without_results_there_is_nothing_to_learn(path: Path, tmp_path: Path) -> None:
    done = msbench("check", path, "--calibrate", "--results", tmp_path)
    assert done.exit_code == ExitCode.UNDECIDED


def test_a_misspelt_reference_is_none(path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, MAMBA, GRIFFIN)
    done = msbench("check", path, "--calibrate", "--against", "papr", "--results", tmp_path)
    assert done.exit_code == ExitCode.USAGE
    assert "did you mean 'paper'" in done.stderr


def test_it_takes_no_option_of_a_check(path: Path, tmp_path: Path) -> None:
    done = msbench("check", path, "--calibrate", "--strict", "--results", tmp_path)
    assert done.exit_code == ExitCode.USAGE
    assert "--calibrate judges nothing" in done.stderr


def test_the_model_of_fewest_seeds_is_what_a_baseline_bears(path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, MAMBA, GRIFFIN[:2])
    done = msbench("check", path, "--calibrate", "--results", tmp_path, "--json")
    (learned,) = json.loads(done.stdout)
    assert learned["calibration"]["n_expected"] == 2
