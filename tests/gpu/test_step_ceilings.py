"""Training steps at the suites' sizes launch, wait, copy, move and keep no more than is recorded.

A change that makes a step cheaper fails here too, until it is recorded on purpose: the file then shows what
was won, and later changes are held against it.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from null_gpu import NullGpu
from traffic import (
    CEILINGS,
    LEADING,
    StepMeasurement,
    describe_versions,
    list_cells,
    read_ceilings,
    read_versions,
    write_ceilings,
)

COUNTS = {"launches", "waits", "to_device", "to_host"}
WORSE, BETTER = 1.01, 0.97
"""Ratios to the recorded value from which another one is worse or better; of counts any increase is worse."""
SMALL_CARDS: dict[int, list[str]] = {
    24: ["lra/text/msssm-s6", "lra/text/mamba", "listops/listops/msssm-s6", "lra/image/msssm-s6"],
    40: ["lra/text/msssm-s6", "lra/text/msssm-s4", "lra/text/mamba"],
}
"""Cells of the suites that the largest batch of is measured on cards of so many GB too."""
LEADING_SMALL = SMALL_CARDS[24][:1]
UPDATE = "`python tests/gpu/traffic.py --update` records what is measured now"


def compare_steps(old: StepMeasurement, new: StepMeasurement) -> list[str]:
    """Return what is worse or better, with the values."""
    found = []
    for name in (each.name for each in fields(StepMeasurement)):
        before, after = getattr(old, name), getattr(new, name)
        if name in ("cell", "estimate") or before == after:
            continue
        if name == "recomputed":
            found.append("layers are computed twice now" if after else "layers are no longer computed twice")
        elif after > (before if name in COUNTS else WORSE * before):
            found.append(f"worse: {name} {before} -> {after}")
        elif after < BETTER * before:
            found.append(f"better: {name} {before} -> {after}")
    return found


def test_the_file_has_every_cell() -> None:
    assert list(read_ceilings()) == list_cells()


def test_leading_steps_cost_what_is_recorded(null_gpu: NullGpu) -> None:
    assert set(LEADING) <= set(list_cells())
    check_steps(null_gpu, LEADING)


@pytest.mark.ceilings
@pytest.mark.parametrize("suite", ["scifar", "imagenet", "listops", "ptbxl", "lra"])
def test_steps_cost_what_is_recorded(null_gpu: NullGpu, suite: str) -> None:
    check_steps(null_gpu, [cell for cell in list_cells() if cell.startswith(f"{suite}/")])


def check_steps(null_gpu: NullGpu, cells: Sequence[str]) -> None:
    """Check that steps cost what is recorded, and take the memory that was estimated."""
    if (here := describe_versions()) != (recorded := read_versions(CEILINGS)):
        pytest.skip(f"recorded with {recorded}, this is {here}")
    measured = [
        StepMeasurement(**each["step"])
        for each in null_gpu.run("traffic.py", *cells, timeout=1800, caching=True)
    ]
    ceilings = read_ceilings()
    changed = [
        f"{x.cell}: {'; '.join(found)}" for x in measured if (found := compare_steps(ceilings[x.cell], x))
    ]
    assert not changed, "\n".join([*changed, UPDATE])
    check_estimates(measured)


def check_estimates(steps: Sequence[StepMeasurement]) -> None:
    """Check that the memory of each step was known before, within 10 % and 100 MB."""
    wrong = [
        f"{step.cell}: {step.estimate} GB estimated, {step.peak} GB taken"
        for step in steps
        if abs(step.estimate - step.peak) > 0.1 * step.peak + 0.1
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("gigabytes", "cells"),
    [(24, LEADING_SMALL), *(pytest.param(*each, marks=pytest.mark.ceilings) for each in SMALL_CARDS.items())],
)
def test_a_small_card_recomputes_what_it_has_to(
    null_gpu: NullGpu, gigabytes: int, cells: Sequence[str]
) -> None:
    """A step that takes more than the card has raises an error there."""
    found = null_gpu.run("traffic.py", *cells, timeout=1800, memory=gigabytes * 10**9, caching=True)
    measured = [StepMeasurement(**each["step"]) for each in found]
    check_estimates(measured)
    whole = read_ceilings()
    for step in measured:
        peak = whole[step.cell].peak
        if not 0.8 * gigabytes < peak < 0.9 * gigabytes:
            assert step.recomputed == (peak > 0.85 * gigabytes)
        if step.recomputed:  # no more layers than it has to: each is a tenth of the whole at most
            assert 0.85 * gigabytes - 0.15 * peak < step.peak < 0.9 * gigabytes


OLD = StepMeasurement("a/b/c", 1000, 1, 3, 0, 50.0, 20.0, 1.5, False, 1.5)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"launches": 1001}, ["worse: launches 1000 -> 1001"]),
        ({"launches": 980}, []),
        ({"launches": 960}, ["better: launches 1000 -> 960"]),
        ({"to_host": 1}, ["worse: to_host 0 -> 1"]),
        ({"waits": 0}, ["better: waits 1 -> 0"]),
        ({"gigabytes": 50.4, "peak": 1.49}, []),
        ({"gigabytes": 50.6, "peak": 1.4}, ["worse: gigabytes 50.0 -> 50.6", "better: peak 1.5 -> 1.4"]),
        ({"recomputed": True}, ["layers are computed twice now"]),
    ],
)
def test_what_counts_as_a_change(change: dict[str, Any], found: list[str]) -> None:
    assert compare_steps(OLD, replace(OLD, **change)) == found


def test_ceilings_are_read_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("ceilings") / "ceilings.csv"
    monkeypatch.setattr("traffic.CEILINGS", path)
    steps = [OLD, replace(OLD, cell="a/b/d", recomputed=True, milliseconds=0.25)]
    write_ceilings(steps)
    assert list(read_ceilings().values()) == steps
    assert read_versions(path) == describe_versions()
