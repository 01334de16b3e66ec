"""The choice of the compiled recurrences: every instruction set, and what is wrong is left out."""

from typing import Any

import pytest
import torch
from torch import Tensor

from msbench.ops import linear_scan, lti_scan, recurrence_kernels, recurrences_native, scan_native
from msbench.ops.recurrence_kernels import Engines, native_for, self_check

pytestmark = pytest.mark.skipif(scan_native.library() is None, reason="built without a C++ compiler")
LINEAR, LTI = recurrences_native.LINEAR, recurrences_native.LTI


@pytest.mark.parametrize("instructions", [1, 2, 3])
def test_every_instruction_set_passes_the_check(instructions: int) -> None:
    linear, lti = recurrences_native.Linear(instructions), recurrences_native.Lti(instructions)
    assert self_check(Engines(linear, lti)) == ""


@pytest.mark.parametrize("instructions", [1, 2, 3])
@pytest.mark.parametrize("rate", [1e-6, 9e-4, 1.1e-3, 0.02])
def test_every_instruction_set_keeps_slow_decays(instructions: int, rate: float) -> None:
    source = torch.Generator().manual_seed(0)
    u, weight = torch.rand(1, 16_384, 1, 19, generator=source), torch.ones(1, 19, 3)
    log_decay = -rate * torch.tensor([1.0, 2.0, 300.0]).expand(1, 19, 3)
    out, _ = recurrences_native.Lti(instructions).forward((u, log_decay, weight, None, None), keep=False)
    truth = lti_scan(u.double(), log_decay.double(), weight.double())
    assert float((out - truth).abs().max() / truth.abs().max()) < 3e-6


@pytest.mark.parametrize("part", ["forward", "backward 0", "backward 1"])
def test_the_check_sees_a_wrong_linear_scan(part: str) -> None:
    class Wrong(recurrences_native.Linear):
        def forward(self, a: Tensor, x: Tensor) -> Tensor:
            return super().forward(a, x) * (1.001 if part == "forward" else 1)

        def backward(self, gh: Tensor, a: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            ga, gx = super().backward(gh, a, h)
            return ga * (1.001 if part == "backward 0" else 1), gx * (1.001 if part == "backward 1" else 1)

    assert "linear: output or gradient" in self_check(Engines(Wrong(), LTI))


@pytest.mark.parametrize("position", range(6))
def test_the_check_sees_a_wrong_lti_scan(position: int) -> None:
    class Wrong(recurrences_native.Lti):
        def forward(self, tensors: Any, *, keep: bool) -> tuple[Tensor, Tensor]:
            out, kept = super().forward(tensors, keep=keep)
            return out * (1.001 if position == 0 else 1), kept

        def backward(self, gout: Tensor, tensors: Any, kept: Tensor) -> Any:
            found = super().backward(gout, tensors, kept)
            return tuple(x if x is None or i + 1 != position else x * 1.001 for i, x in enumerate(found))

    assert f"lti: output or gradient {position} is off by" in self_check(Engines(LINEAR, Wrong()))


def test_wrong_kernels_are_left_out_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "auto")
    monkeypatch.setattr(recurrences_native, "LINEAR", None)  # what fails is wrong as well
    recurrence_kernels._right.cache_clear()
    with pytest.warns(RuntimeWarning, match="the C\\+\\+ recurrences are left out: linear: ") as caught:
        h = linear_scan(torch.ones(1), torch.ones(1, 3, 1))
    assert h.flatten().tolist() == [1, 2, 3]
    assert not native_for(h)
    assert len(caught) == 1
    recurrence_kernels._right.cache_clear()


def test_the_environment_decides_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "torch")
    assert not native_for(torch.ones(1))
    monkeypatch.setenv("MSBENCH_SCAN", "cpp")
    assert native_for(torch.ones(1))
    assert native_for(torch.ones(1, dtype=torch.complex64))
    assert not native_for(torch.ones(0))
