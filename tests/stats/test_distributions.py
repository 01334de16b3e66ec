import math
import subprocess
import sys

import pytest
from scipy import stats

from msbench.stats import distributions as ours


@pytest.mark.parametrize("degrees", [1, 2, 3.7, 30, 1e4, math.inf])
@pytest.mark.parametrize("probability", [0.05, 0.5, 0.95, 0.999])
def test_quantiles_of_t(probability: float, degrees: float) -> None:
    assert ours.t_quantile(probability, degrees) == pytest.approx(
        stats.t.ppf(probability, degrees), abs=1e-12
    )


@pytest.mark.parametrize("t", [-40.0, -2.0, 0.0, 1e-3, 3.0, 1e6])
def test_both_tails_of_t(t: float) -> None:
    assert ours.t_two_sided(t, 2.5) == pytest.approx(2 * stats.t.sf(abs(t), 2.5), rel=1e-12)


@pytest.mark.parametrize("degrees", [1, 2, 5.5, 40])
@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0, 12.0, 80.0])
def test_tail_of_noncentral_t(shift: float, degrees: float) -> None:
    assert ours.noncentral_t_above(2.1, degrees, shift) == pytest.approx(
        stats.nct.sf(2.1, degrees, shift), abs=1e-10
    )


def test_noncentral_t_of_a_known_spread_is_a_shifted_normal() -> None:
    assert ours.noncentral_t_above(1.6, math.inf, 0.4) == pytest.approx(stats.norm.sf(1.2), rel=1e-12)
    assert ours.noncentral_t_above(1.6, math.inf, 0.4) == pytest.approx(
        ours.noncentral_t_above(1.6, 1e7, 0.4), rel=1e-5
    )


@pytest.mark.parametrize(("below", "n"), [(0, 0), (0, 1), (3, 10), (5, 10), (10, 10), (24_000, 50_000)])
def test_fair_coins(below: int, n: int) -> None:
    assert ours.half_binomial_below(below, n) == pytest.approx(stats.binom.cdf(below, n, 0.5), rel=1e-9)


def test_the_package_leaves_scipy_alone_until_it_is_asked() -> None:
    code = "import sys, msbench.stats; print(sorted({'scipy', 'pandas', 'torch'} & set(sys.modules)))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"
