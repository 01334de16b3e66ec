"""The time-invariant scan against scipy's filters and other operations, and its slow decays."""

from typing import Any

import numpy as np
import pytest
import torch
from lti_cases import arguments
from op_gradients import gradients
from scipy import signal
from torch import Tensor

from msbench.ops import native_library
from msbench.ops.convolution import long_convolution
from msbench.ops.lti_scan import lti_scan
from msbench.ops.scan.dispatch import selective_scan

built = pytest.mark.skipif(native_library.load_library() is None, reason="built without a C++ compiler")


@pytest.fixture(params=["torch", pytest.param("cpp", marks=built)], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here is run with each engine."""
    monkeypatch.setenv("MSBENCH_SCAN", request.param)


def filtered(u: Tensor, decay: Tensor, weight: Tensor) -> Any:
    """The output by scipy, one state after the other, in float64."""
    y = np.zeros(u.shape)
    for s, c, i in np.ndindex(*decay.shape):
        coefficients = [float(weight[s, c, i])], [1, -float(decay[s, c, i])]
        y[:, :, s, c] += signal.lfilter(*coefficients, u[:, :, s, c].double().numpy(), axis=1)
    return y


def test_equals_scipys_filters() -> None:
    u, log_decay, weight, skip, mix = arguments(length=600, n=3)
    expected = filtered(u, torch.exp(log_decay), weight)
    np.testing.assert_allclose(lti_scan(u, log_decay, weight), expected, rtol=1e-11, atol=1e-11)
    expected = ((expected + (skip * u).numpy()) * mix[..., None].numpy()).sum(2)
    np.testing.assert_allclose(lti_scan(u, log_decay, weight, skip, mix), expected, rtol=1e-11, atol=1e-11)


def test_many_states_are_scipys_discrete_system() -> None:
    u, log_decay, weight, *_ = arguments(b=1, length=200, m=1, d=1, n=4)
    a, w = np.diag(torch.exp(log_decay[0, 0]).numpy()), weight[0, 0].numpy()[None]
    system = (a, np.ones((4, 1)), w @ a, [[w.sum()]], 1.0)  # dlsim reads the state before its update
    _, expected, _ = signal.dlsim(system, u[0, :, 0, 0].numpy())
    np.testing.assert_allclose(lti_scan(u, log_decay, weight)[0, :, 0], expected, rtol=1e-11, atol=1e-11)


def test_equals_the_convolution_with_its_kernel_and_the_selective_scan_with_constant_steps() -> None:
    u, log_decay, weight, skip, mix = arguments(length=301, n=7)
    found = gradients(lti_scan, [u, log_decay, weight])

    def convolved(u: Tensor, log_decay: Tensor, weight: Tensor) -> Tensor:
        lags = torch.arange(301, dtype=torch.float64)
        return long_convolution(
            u, torch.einsum("mdn,mdnk->kmd", weight, torch.exp(log_decay[..., None] * lags))
        )

    for one, other in zip(gradients(convolved, [u, log_decay, weight]), found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    # There C is shared by the channels; with dt 1 and B 1 the rest is alike.
    shared = weight[:, :1].expand(-1, 4, -1)
    ones, C = torch.ones(2, 301, 3, 7, dtype=torch.float64), weight[:, 0].expand(2, 301, 3, 7)
    expected = selective_scan(u, torch.ones_like(u), log_decay, ones, C, skip, mix)
    torch.testing.assert_close(lti_scan(u, log_decay, shared, skip, mix), expected)


# What is left is the rounding of sums, once in 16 steps or not at all.
@pytest.mark.parametrize("rate", [1e-6, 3.3e-5, 1e-3, 0.01, 0.2, 1.0, 4.0])
def test_slow_decays_do_not_drift(rate: float) -> None:
    u, _, weight = arguments(b=1, length=16_384, m=1, d=2, n=2, dtype=torch.float32)[:3]
    log_decay = torch.tensor([-rate, -1.1 * rate]).expand(1, 2, 2)
    values = [u.abs(), log_decay, weight.abs()]
    wide = [x.double() for x in values]
    truth = gradients(lti_scan, wide)  # in double precision, which the loop has confirmed
    np.testing.assert_allclose(truth[0], filtered(wide[0], torch.exp(wide[1]), wide[2]), rtol=1e-11)
    for one, other in zip(gradients(lti_scan, values), truth, strict=True):
        error = float((one - other).abs().max() / other.abs().max())
        assert error < 1e-5


def test_rounded_decays_would_drift() -> None:
    u, rate = torch.ones(1, 16_384, 1, 1), torch.full((1, 1, 1), -1e-6)
    truth = filtered(u, torch.exp(rate.double()), torch.ones(1, 1, 1))
    rounded = filtered(u, torch.exp(rate), torch.ones(1, 1, 1))
    assert abs(rounded / truth - 1)[0, -1, 0, 0] > 1e-4
    assert abs(lti_scan(u, rate, torch.ones(1, 1, 1)).numpy() / truth - 1).max() < 1e-5


def test_the_first_step_reaches_the_last() -> None:
    u, rate = torch.zeros(1, 16_384, 1, 1), torch.tensor([[[-1e-6, -1e-5, -1e-4]]])
    u[0, 0] = 1
    last = lti_scan(u, rate, torch.ones(1, 1, 3))[0, -1, 0, 0].double()
    torch.testing.assert_close(last, torch.exp(16_383 * rate.double()).sum(), rtol=3e-6, atol=0)
