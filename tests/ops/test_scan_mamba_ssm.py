"""The mapping onto mamba-ssm, with a stand-in that scans in that package's layout."""

import importlib.util
import sys
from types import ModuleType

import pytest
import torch
from scan_cases import arguments, gradients
from torch import Tensor

from msbench.errors import ConfigError
from msbench.ops.scan import mamba_ssm
from msbench.ops.scan.reference import selective_scan_reference


def selective_scan_fn(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """u, delta (b, D, l), A (D, n), B and C (b, groups, n, l): as mamba-ssm documents its kernel."""
    b, channels, length = u.shape
    assert u.stride(2) == delta.stride(2) == B.stride(3) == C.stride(3) == 1
    repeat = channels // B.shape[1]
    B, C = (x.repeat_interleave(repeat, dim=1) for x in (B, C))
    h = u.new_zeros(b, channels, A.shape[1])
    outputs = []
    for t in range(length):
        step = delta[..., t, None]
        h = torch.exp(step * A) * h + step * B[..., t] * u[..., t, None]
        outputs.append((h * C[..., t]).sum(-1))
    return torch.stack(outputs, dim=-1)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(mamba_ssm.MODULE)
    module.selective_scan_fn = selective_scan_fn  # type: ignore[attr-defined]
    for name in ("mamba_ssm", "mamba_ssm.ops"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, mamba_ssm.MODULE, module)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("count", [5, 6, 7])
def test_streams_are_groups_of_channels(scaled: bool, count: int) -> None:
    values = arguments()[:count]
    missing = [None] * (7 - count)
    found = gradients(lambda *x: mamba_ssm.scan((*x, *missing), scaled=scaled), [x.float() for x in values])
    weight = torch.linspace(-1, 1, found[0].numel()).view_as(found[0])
    how = "euler" if scaled else "raw"
    expected = gradients(selective_scan_reference, values, weight.double(), discretisation=how)
    for one, other in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("stand_in")
def test_more_states_than_its_kernel_has_are_refused() -> None:
    u, dt, A, B, C, skip, mix = arguments(n=257)
    with pytest.raises(ConfigError, match="256 states a stream at most, not 257"):
        mamba_ssm.scan((u, dt, A, B, C, skip, mix), scaled=True)


def test_why_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not run on cpu" in mamba_ssm.find_missing("cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert mamba_ssm.find_missing("cuda") == "mamba-ssm is not installed"


def test_a_build_for_another_torch_is_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    def undefined(_name: str) -> None:
        raise ImportError("undefined symbol: _ZN3c10")

    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setattr(importlib, "import_module", undefined)
    assert "undefined symbol" in mamba_ssm.find_missing("cuda")
