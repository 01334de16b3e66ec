"""S4D and DSS against scipy's simulation of their systems, and against their sums written out."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from linear_cases import LENGTHS, double_block
from model_cases import layer_of, model_of
from scipy.signal import cont2discrete, dlsim, lfilter

from msbench import models
from msbench.models.dss import EPSILON
from msbench.models.lti import compute_legs


def complex_numbers(pairs: Any) -> Any:
    return torch.view_as_complex(pairs.detach().contiguous()).numpy()


def continuous(system: Any, channel: int) -> tuple[Any, Any, Any]:
    """Poles, B and C of one channel."""
    copy = channel % len(system.A_log)
    decay = -np.exp(system.A_log.detach().numpy()[copy])
    if system.A_imag is None:
        return decay, system.B.detach().numpy()[copy], system.C.detach().numpy()[0, channel]
    poles = decay + 1j * system.A_imag.detach().numpy()[copy]
    return poles, complex_numbers(system.B)[copy], complex_numbers(system.C)[0, channel]


@pytest.mark.parametrize("name", ["s4d-lin", "s4d-inv", "s4d-legs"])
@pytest.mark.parametrize("method", ["zoh", "bilinear"])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_kernel_is_the_impulse_response_of_scipy(name: str, method: str, length: int) -> None:
    system = double_block(name, discretisation=method, copies=3).core.system
    kernel = system.compute_kernel(length).detach().numpy()
    for channel in range(6):
        (A, B, C), dt = continuous(system, channel), math.exp(system.log_dt[channel].item())
        # Real and imaginary parts as a real system, for dlsim knows no complex one.
        real = np.block([[np.diag(A.real), -np.diag(A.imag)], [np.diag(A.imag), np.diag(A.real)]])
        inputs = np.concatenate([B.real, B.imag])[:, None]
        outputs = 2 * np.concatenate([C.real, -C.imag])[None]
        a, b, *_ = cont2discrete((real, inputs, outputs, 0), dt, method=method)
        impulse = np.zeros(length)
        impulse[0] = 1
        # dlsim reads the state before the input enters it: C A and C B make up for that step.
        _, response, _ = dlsim((a, b, outputs @ a, outputs @ b, dt), impulse)
        np.testing.assert_allclose(kernel[:, 0, channel], response[:, 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
def test_real_poles_are_filters(length: int) -> None:
    system = double_block("s4d-real", state=5).core.system
    kernel, impulse = system.compute_kernel(length).detach().numpy(), np.zeros(length)
    impulse[0] = 1
    for channel in range(6):
        (A, B, C), dt = continuous(system, channel), math.exp(system.log_dt[channel].item())
        response = np.zeros(length)
        for pole, b, c in zip(A, B, C, strict=True):
            response += (
                2 * c * b * (np.exp(dt * pole) - 1) / pole * lfilter([1], [1, -np.exp(dt * pole)], impulse)
            )
        np.testing.assert_allclose(kernel[:, 0, channel], response, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "imaginary"),
    [
        ("s4d-lin", [math.pi * n for n in range(4)]),
        ("s4d-inv", [8 / math.pi * (8 / (2 * n + 1) - 1) for n in range(4)]),
        ("s4d-legs", compute_legs(8).poles.imag.tolist()),
    ],
)
def test_complex_spectra_at_the_start(name: str, imaginary: list[float]) -> None:
    system = layer_of(model_of(name, state=8)).core.system
    torch.testing.assert_close(-system.A_log.detach().exp(), torch.full((8, 4), -0.5))
    torch.testing.assert_close(system.A_imag.detach(), torch.tensor(imaginary).expand(8, 4))
    expected = compute_legs(8).b.real.clamp(max=2).float() if name == "s4d-legs" else torch.ones(4)
    torch.testing.assert_close(system.B.detach()[..., 0], expected.expand(8, 4))
    assert not system.B.detach()[..., 1].any()


def test_real_spectrum_at_the_start() -> None:
    system = layer_of(model_of("s4d-real", state=5)).core.system
    torch.testing.assert_close(system.A_log.detach().exp(), torch.arange(1.0, 6).expand(8, 5))
    wide = layer_of(model_of("s4d-real", d_model=64, state=64)).core.system
    # The source's C is the real part of a complex number of variance 1, and its kernels keep the factor 2.
    assert float(wide.C.detach().var()) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("name", ["s4d-lin", "s4d-real"])
@pytest.mark.parametrize("copies", [1, None])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_s4d_has_the_parameters_of_its_formula(name: str, copies: int | None, bidirectional: bool) -> None:
    d, state, s = 8, 6, 1 + bidirectional
    model = model_of(name, state=state, copies=copies, bidirectional=bidirectional, layers=1)
    system = 2 * (copies or d) * state + s * d * state + d
    assert models.count_parameters(layer_of(model)) == system + d + 2 * d * (d + 1)


def dss_by_hand(system: Any, length: int) -> Any:
    """The paper's formulas with the whole matrix P (d, n, length), softmax over the horizon."""
    W, dt = complex_numbers(system.W)[0], np.exp(system.log_dt.detach().numpy())
    if system.version == "softmax":
        poles = complex_numbers(system.A)
    else:
        poles = -np.exp(system.A_log.detach().numpy()) + 1j * system.A_imag.detach().numpy()
    step = dt[:, :1] * poles.real + 1j * dt[:, -1:] * poles.imag
    P = step[..., None] * np.arange(max(length, system.horizon))
    if system.version == "exp-no-scale":
        rows, weights = np.exp(P), W
    elif system.version == "exp":
        rows, weights = np.exp(P), W * (np.exp(step) - 1) / poles
    else:
        within = P[..., : system.horizon]
        largest = within[np.arange(6)[:, None], np.arange(4), within.real.argmax(-1)]
        total = np.exp(within - largest[..., None]).sum(-1)
        rows = np.exp(P - largest[..., None]) * (total.conj() / (abs(total) ** 2 + EPSILON))[..., None]
        weights = W / poles
    return (weights[..., None] * rows).sum(1).real.T[:length]


@pytest.mark.parametrize("version", ["softmax", "exp", "exp-no-scale"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_dss_is_its_closed_sum(version: str, separate: bool, length: int) -> None:
    system = double_block(f"dss-{version}", separate_steps=separate, horizon=100).core.system
    if version == "softmax":
        with torch.no_grad():
            system.A[1, 0] = 0.3  # a mode that grows: the softmax takes off the end of the horizon
    kernel = system.compute_kernel(length)[:, 0].detach().numpy()
    np.testing.assert_allclose(kernel, dss_by_hand(system, length), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("version", ["softmax", "exp", "exp-no-scale"])
def test_dss_without_its_gate_ends_in_a_plain_linear_map(version: str) -> None:
    block = layer_of(model_of(f"dss-{version}", state=6, gate="none"))
    x = torch.randn(2, 9, 8, generator=torch.Generator().manual_seed(0))
    assert block.channels.weight.shape == (8, 8)
    expected = block.channels(torch.nn.functional.gelu(block.core(x)))
    torch.testing.assert_close(block(x, torch.tensor([9, 9])), expected)


def test_the_horizon_is_the_task_s_longest() -> None:
    assert layer_of(model_of("dss-softmax", state=8)).core.system.horizon == 40
    assert layer_of(model_of("dss-softmax", state=8, horizon=7)).core.system.horizon == 7


def test_dss_at_the_start() -> None:
    system = layer_of(model_of("dss-softmax", d_model=64, state=64)).core.system
    torch.testing.assert_close(
        torch.view_as_complex(system.A.detach()), compute_legs(64).poles.to(torch.complex64)
    )
    assert float(system.W.detach().var()) == pytest.approx(1, rel=0.1)
    assert torch.equal(system.log_dt[:, 0], system.log_dt[:, 1])


@pytest.mark.parametrize("version", ["softmax", "exp", "exp-no-scale"])
@pytest.mark.parametrize("separate", [False, True])
def test_dss_has_the_parameters_of_its_formula(version: str, separate: bool) -> None:
    d, state = 8, 6
    model = model_of(f"dss-{version}", state=state, separate_steps=separate, layers=1)
    system = state + d * state + d * (1 + separate)
    assert models.count_parameters(layer_of(model)) == system + d + 2 * d * (d + 1)
