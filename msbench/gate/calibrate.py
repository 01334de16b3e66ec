"""What margin seeds can bear: from their spread, the smallest that a correct result passes reliably."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from msbench.runs.suite_gate import WIDEST_MARGIN
from msbench.stats import pooled_sd
from msbench.stats.distributions import noncentral_t_above, t_quantile

CONFIDENCE = 0.95
RELIABLY = 0.95
"""How often a result that is as expected is to pass."""
STEP = 0.005
"""Margins are rounded up to half a point: what is learned from few seeds is not known better."""


@dataclass(frozen=True)
class Calibration:
    """What was learned of one task, in fractions.

    `sd` is the spread of seeds that all models share, known with `degrees` of freedom. A run of `n` seeds is
    held against `n_expected`. At `margin`, a result as good as the expected one passes with probability
    `passes` and fails with `fails`; one that is worse by twice the margin fails with `fails_at_twice`.
    `margin` is None where even the widest that a suite may have passes too seldom.
    """

    sd: float
    degrees: int
    n: int
    n_expected: int
    margin: float | None
    passes: float
    fails: float
    fails_at_twice: float


@dataclass(frozen=True)
class Chances:
    """How probable the states are at a given true gap."""

    above: float
    below: float

    @property
    def undecided(self) -> float:
        """The rest."""
        return 1 - self.above - self.below


def chances(room: float, error: float, degrees: float) -> Chances:
    """Theory of the three states.

    `room` is how far the true mean is above the bound, `error` the standard error of what is compared.
    T = (mean - bound) / estimated error is noncentral t with shift room / error: above is T >= t, below
    T < -t.
    """
    t, shift = t_quantile(CONFIDENCE, degrees), room / error
    return Chances(above=noncentral_t_above(t, degrees, shift), below=noncentral_t_above(t, degrees, -shift))


def calibrate(groups: Sequence[Sequence[float]], n: int, n_expected: int) -> Calibration | None:
    """The margin for runs of `n` seeds against an expectation from `n_expected` (0: taken as exact).

    `groups` are the results of seeds, a group a model. None where they tell no spread: no group has two
    seeds, or all seeds agree.
    """
    spread = pooled_sd(groups)
    if spread is None or not spread.sd:
        return None
    error = spread.sd * math.sqrt(1 / n + (1 / n_expected if n_expected else 0))
    # Against the paper the stated spread counts alone; against a baseline the run's own seeds join it.
    degrees = spread.degrees + (n - 1 if n_expected else 0)
    margin = next(
        (
            step * STEP
            for step in range(1, round(WIDEST_MARGIN / STEP) + 1)
            if chances(step * STEP, error, degrees).above >= RELIABLY
        ),
        None,
    )
    used = WIDEST_MARGIN if margin is None else margin
    even, twice = chances(used, error, degrees), chances(-used, error, degrees)
    return Calibration(spread.sd, spread.degrees, n, n_expected, margin, even.above, even.below, twice.below)
