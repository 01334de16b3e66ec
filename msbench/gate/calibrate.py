"""The smallest margin that a correct result passes reliably, from the spread of seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from msbench.runs.suite_gate import WIDEST_MARGIN
from msbench.stats import decision_power, pooled_sd

CONFIDENCE = 0.95
RELIABLY = 0.95
"""Probability with which a result as good as expected should pass."""
STEP = 0.005
"""Margins are rounded up to half a point: few seeds do not allow more precision."""


@dataclass(frozen=True)
class Calibration:
    """Calibration of one task, in fractions.

    `sd` is the spread of seeds shared by all models, with `degrees` of freedom. A run of `n` seeds is
    compared with `n_expected`. At `margin`, a result as good as the expected one passes with probability
    `passes` and fails with `fails`; one that is worse by twice the margin fails with `fails_at_twice`.
    `margin` is None if even the widest allowed margin passes too seldom.
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
    """Probabilities of the three states at a given true gap."""

    above: float
    below: float

    @property
    def undecided(self) -> float:
        """Return the remaining probability."""
        return 1 - self.above - self.below


def chances(room: float, error: float, degrees: float) -> Chances:
    """Compute the probabilities of the three states in theory.

    `room` is how far the true mean is above the bound, `error` the standard error of the compared difference.
    T = (mean - bound) / estimated error is noncentral t with shift room / error: above is T >= t, below T <
    -t.
    """
    return Chances(
        above=decision_power(room, error, degrees, CONFIDENCE),
        below=decision_power(-room, error, degrees, CONFIDENCE),
    )


def calibrate(groups: Sequence[Sequence[float]], n: int, n_expected: int) -> Calibration | None:
    """Return the margin for runs of `n` seeds against an expectation from `n_expected` (0: taken as exact).

    `groups` are the results of seeds, one group per model. None if they show no spread: no group has two
    seeds, or all seeds agree.
    """
    spread = pooled_sd(groups)
    if spread is None or not spread.sd:
        return None
    error = spread.sd * math.sqrt(1 / n + (1 / n_expected if n_expected else 0))
    # Against the paper only the stated spread counts; against a baseline the run's own seeds are added.
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
