"""False passes and false fails of the gate, drawn and in theory; run as a script, it prints the table.

A correct or a worse result is drawn many times, seed by seed, and judged as `noninferiority` judges; its own
formula is repeated here in arrays, and the tests hold one against the other.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from msbench.stats.noninferiority import compute_power

CONFIDENCE = 0.95
MARGIN = 1.0
"""Points, as all below."""
DRAWS = 10_000
GAPS, SDS, SEEDS, SPREADS = (0.0, 1.0, 2.0), (0.5, 1.0), (3, 5), ("own", "known")
HEADER = "| true gap | sd | seeds | spread | pass | fail | undecided | pass, theory | fail, theory |"


@dataclass(frozen=True)
class Chances:
    """Probabilities of the three states at a given true gap."""

    above: float
    below: float

    @property
    def undecided(self) -> float:
        return 1 - self.above - self.below


def compute_chances(room: float, error: float, degrees: float) -> Chances:
    """In theory, for a true mean that is `room` above the bound."""
    return Chances(compute_power(room, error, degrees), compute_power(-room, error, degrees))


@dataclass(frozen=True)
class Setting:
    """A result that is `gap` points worse than expected, from `n` seeds that vary by `sd`."""

    gap: float
    sd: float
    n: int
    spread: str

    @property
    def degrees(self) -> float:
        return math.inf if self.spread == "known" else self.n - 1

    @property
    def theory(self) -> Chances:
        return compute_chances(MARGIN - self.gap, self.sd / math.sqrt(self.n), self.degrees)


SETTINGS = [Setting(*each) for each in itertools.product(GAPS, SDS, SEEDS, SPREADS)]


def draw(setting: Setting, draws: int = DRAWS) -> NDArray[np.float64]:
    """Results, draws × seeds, in points from what is expected; the same for every call."""
    generator = np.random.default_rng([SETTINGS.index(setting), 20])
    return generator.normal(-setting.gap, setting.sd, (draws, setting.n))


def states(setting: Setting, values: NDArray[np.float64]) -> NDArray[np.str_]:
    """above, below or undecided for every draw."""
    sd = np.full(len(values), setting.sd) if setting.spread == "known" else values.std(axis=1, ddof=1)
    half = stdtrit(setting.degrees, CONFIDENCE) * sd / math.sqrt(setting.n)
    mean = values.mean(axis=1)
    low, high = mean - half, mean + half
    return np.where(low >= -MARGIN, "above", np.where(high < -MARGIN, "below", "undecided"))


def simulated(setting: Setting, draws: int = DRAWS) -> Chances:
    """How often each state came."""
    found = states(setting, draw(setting, draws))
    return Chances(float(np.mean(found == "above")), float(np.mean(found == "below")))


def row(setting: Setting) -> str:
    """The line of the table in docs/gate.md."""
    found, theory = simulated(setting), setting.theory
    rates = (found.above, found.below, found.undecided, theory.above, theory.below)
    cells = (f"{setting.gap:g}", f"{setting.sd:g}", str(setting.n), setting.spread)
    return f"| {' | '.join((*cells, *(f'{max(rate, 0):.1%}' for rate in rates)))} |"


if __name__ == "__main__":
    print(HEADER, f"|{'---|' * 9}", *map(row, SETTINGS), sep="\n")
