"""Every kernel of this machine against the loop in float64, over lengths, states and streams."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scan_cases import arguments, assert_close, gradients
from torch import Tensor

from msbench.ops.scan.dispatch import KERNELS, selective_scan
from msbench.ops.scan.reference import selective_scan_reference

HERE = [name for name in ("cpp", "torch") if not KERNELS[name].missing("cpu")]
SIZES = [
    *itertools.product([1, 2, 3, 31, 33, 100], [1, 16, 25, 26, 128, 256], [1, 5]),
    *itertools.product([1000, 1025], [1, 26], [1, 5]),
    (1025, 256, 1),
]
"""Lengths, states and streams."""
WIDTH = 17
"""One whole vector of any instruction set, and a part of one."""


def last_only(length: int) -> Tensor:
    """A loss on the last step of (2, length, WIDTH): what is carried over counts most."""
    weight = torch.zeros(2, length, WIDTH, dtype=torch.float64)
    weight[:, -1] = torch.linspace(-1, 1, WIDTH)
    return weight


def with_kernel(name: str, monkeypatch: pytest.MonkeyPatch, values: list[Tensor], *rest: Any) -> Any:
    monkeypatch.setenv("MSBENCH_SCAN", name)
    return gradients(selective_scan, values, *rest)


@pytest.mark.parametrize(("length", "n", "m"), SIZES)
def test_slow_decay_and_a_loss_on_the_last_step(
    length: int, n: int, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # dt |A| < 1e-3 for every state: nothing is forgotten, and no fault in what is carried over can hide.
    single = [x.float() for x in arguments(2, length, m, WIDTH, n, largest_dt=0.9e-3 / (n + 1))]
    weight = last_only(length)
    truth = gradients(selective_scan_reference, [x.double() for x in single], weight)
    for name in HERE:
        # A float32 decay is rounded by up to 2^-25, once a step, and sums of `length` steps are rounded too.
        assert_close(with_kernel(name, monkeypatch, single, weight), truth, max(1e-5, length * 2**-25))


@pytest.mark.parametrize(("length", "n", "m"), SIZES)
def test_fast_decay_in_float32_and_bfloat16(
    length: int, n: int, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rates are as steep as n, as those of the model: some states are forgotten within a step or two.
    half = [x.bfloat16() for x in arguments(2, length, m, WIDTH, n)]
    weight = torch.linspace(-1, 1, 2 * length * WIDTH).view(2, length, WIDTH).bfloat16()
    truth = gradients(selective_scan_reference, [x.double() for x in half], weight)
    for name in HERE:
        assert_close(with_kernel(name, monkeypatch, [x.float() for x in half], weight), truth, 1e-5)
        found = with_kernel(name, monkeypatch, half, weight)
        assert all(x.dtype == torch.bfloat16 for x in (found[0], *found[1]))
        assert_close(found, truth, 2**-8)


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("rate", [-50.0, -130.0, -1e4])
def test_decays_that_underflow(name: str, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    values = arguments(2, 64, 2, WIDTH, 3)
    values[1].fill_(1.0)
    values[2].fill_(rate)
    truth = gradients(selective_scan_reference, values)
    found = with_kernel(name, monkeypatch, [x.float() for x in values])
    # The decay itself is 0 in float32, and with it the gradient of its rate.
    assert_close((found[0], found[1][:1]), truth, 1e-5)
    assert all(torch.isfinite(x).all() for x in found[1])


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "sliced": lambda x: torch.stack([x, x + 1], dim=-1).flatten(-2)[..., ::2],
    "expanded": lambda x: x[:1].expand(x.shape),
}


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("view", VIEWS)
def test_views_equal_copies(name: str, view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = [x.float().requires_grad_() for x in arguments(2, 40, 5, WIDTH, 7)]
    # Through the views, so that they reach the kernel as they are.
    views = [VIEWS[view](x) for x in leaves]
    monkeypatch.setenv("MSBENCH_SCAN", name)
    out = selective_scan(*views)
    weight = torch.linspace(-1, 1, out.numel()).view_as(out)
    found = out.detach(), torch.autograd.grad((out * weight).sum(), views)
    truth = gradients(selective_scan_reference, [x.detach().double() for x in views], weight)
    assert_close(found, truth, 1e-5)
