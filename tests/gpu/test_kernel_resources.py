"""The Triton kernels compile for each kind of GPU, with no more registers and spills than are recorded."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from kernels import CAPABILITIES, CEILINGS, CELLS, KernelResources, read_ceilings, write_ceilings
from null_gpu import NullGpu
from traffic import describe_versions, read_versions

FEWER = 0.9
"""Ratio of registers below which fewer are recorded on purpose."""
WIDE, WIDE_ON = "lra/image/mamba", 90
LEADING, LEADING_ON = "listops/listops/msssm-s6", 90
"""The cell that launches every kernel, and the GPU that it is compiled for in an ordinary run."""
UPDATE = "`python tests/gpu/kernels.py --update` records what is compiled now"


def compare_kernels(old: Sequence[KernelResources], new: Sequence[KernelResources]) -> list[str]:
    """Return what is worse, better, or launched by one alone, with the values."""
    before, after = ({(x.cell, x.kernel): x for x in each} for each in (old, new))
    found = [f"{' '.join(key)}: not recorded" for key in after.keys() - before.keys()]
    found += [f"{' '.join(key)}: no longer launched" for key in before.keys() - after.keys()]
    for key in sorted(before.keys() & after.keys()):
        for name in ("variants", "registers", "stack", "shared"):
            was, now = getattr(before[key], name), getattr(after[key], name)
            if now > was:
                found.append(f"{' '.join(key)}: worse: {name} {was} -> {now}")
            elif now < (FEWER * was if name == "registers" else was):
                found.append(f"{' '.join(key)}: better: {name} {was} -> {now}")
    return found


def test_no_kernel_spills() -> None:
    """Registers that are spilled to memory are read and written in every step of a loop."""
    found = read_ceilings()
    assert {(x.capability, x.cell) for x in found} == {
        (each, cell) for each in CAPABILITIES for cell in CELLS
    }
    assert [x for x in found if x.stack] == []


def test_leading_kernels_take_what_is_recorded(null_gpu: NullGpu) -> None:
    check_kernels(null_gpu, LEADING_ON, [LEADING])


@pytest.mark.ceilings
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_kernels_take_what_is_recorded(null_gpu: NullGpu, capability: int) -> None:
    # A cell at the largest width takes as long to compile as the others together: one GPU has to do.
    cells = CELLS if capability == WIDE_ON else [cell for cell in CELLS if cell != WIDE]
    check_kernels(null_gpu, capability, cells)


def check_kernels(null_gpu: NullGpu, capability: int, cells: Sequence[str]) -> None:
    """Check that the kernels of these cells compile, and take what is recorded."""
    lines = null_gpu.run("kernels.py", *cells, timeout=1800, capability=capability)
    found = [KernelResources(**x) for x in lines]
    assert {x.cell for x in found} == set(cells)
    assert {x.capability for x in found} == {capability}
    if (here := describe_versions()) != (recorded := read_versions(CEILINGS)):
        pytest.skip(f"compiled, but recorded with {recorded}, this is {here}")
    recorded_here = [x for x in read_ceilings() if x.capability == capability and x.cell in cells]
    changed = compare_kernels(recorded_here, found)
    assert not changed, "\n".join([*changed, UPDATE])


OLD = KernelResources(90, "a/b/c", "scan", 2, 200, 0, 1024)


@pytest.mark.parametrize(
    ("new", "found"),
    [
        ([OLD], []),
        ([replace(OLD, registers=190)], []),
        ([replace(OLD, registers=170)], ["a/b/c scan: better: registers 200 -> 170"]),
        ([replace(OLD, registers=201)], ["a/b/c scan: worse: registers 200 -> 201"]),
        ([replace(OLD, stack=8)], ["a/b/c scan: worse: stack 0 -> 8"]),
        ([replace(OLD, variants=1)], ["a/b/c scan: better: variants 2 -> 1"]),
        ([replace(OLD, kernel="bank")], ["a/b/c bank: not recorded", "a/b/c scan: no longer launched"]),
    ],
)
def test_what_counts_as_a_change(new: list[KernelResources], found: list[str]) -> None:
    assert compare_kernels([OLD], new) == found


def test_ceilings_are_read_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr("kernels.CEILINGS", tmp_path_factory.mktemp("ceilings") / "ceilings.csv")
    kernels = [OLD, replace(OLD, capability=80)]
    write_ceilings(kernels)
    assert read_ceilings() == kernels
