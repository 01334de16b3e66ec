"""How often the gate errs: drawn, in theory, and in docs/gate.md."""

import math
from pathlib import Path

import pytest
from simulation import DRAWS, HEADER, MARGIN, SETTINGS, Setting, draw, row, simulated, states

from msbench.stats.noninferiority import decide_noninferiority
from msbench.stats.summary import Pooled

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "gate.md"


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_arrays_say_what_the_gate_says(setting: Setting) -> None:
    values = draw(setting, 40)
    pooled = Pooled(setting.sd, 10**9) if setting.spread == "known" else None
    said = [decide_noninferiority(list(seeds), -MARGIN, pooled=pooled).state for seeds in values]
    assert said == list(states(setting, values))


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_rates_are_those_of_the_noncentral_t(setting: Setting) -> None:
    found, theory = simulated(setting), setting.theory
    for drawn, rate in ((found.above, theory.above), (found.below, theory.below)):
        error = math.sqrt(rate * (1 - rate) / DRAWS)
        assert abs(drawn - rate) < 4 * error + 2 / DRAWS


def test_errors_stay_within_five_percent() -> None:
    """At the margin's edge and beyond it, a pass is false; at no gap and up to the edge, a fail is."""
    for setting in SETTINGS:
        if setting.gap >= MARGIN:
            assert setting.theory.above <= 0.05 + 1e-9
        if setting.gap <= MARGIN:
            assert setting.theory.below <= 0.05 + 1e-9


def test_the_document_has_these_numbers() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert HEADER in text
    body = text.split(HEADER)[1].split("\n\n")[0].strip().splitlines()
    assert body[1:] == [row(setting) for setting in SETTINGS]
