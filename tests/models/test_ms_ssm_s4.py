"""MS-SSM (S4): constant systems against scipy's filters, and their initialisation."""

import numpy as np
import pytest
import torch
from model_cases import INFO, groups_of, model_of
from ms_ssm_cases import core_of, ms_config, signal
from numpy.typing import NDArray
from scipy.signal import cont2discrete, dlsim, lfilter

from msbench import models
from msbench.models.layers import compute_decays
from msbench.models.stream_ssms import ConstantSsms

Array = NDArray[np.float64]


def system_of(core: torch.nn.Module) -> ConstantSsms:
    return next(module for module in core.modules() if isinstance(module, ConstantSsms))


@torch.no_grad()
def s4d_real(system: ConstantSsms, stream: int, column: int, channel: int, u: Array) -> Array:
    """One stream of one channel: a sum of first-order filters, one a state, from `column` on."""
    assert system.D is not None
    dt = float(system.log_dt[stream, channel].exp())
    y = float(system.D[stream, channel]) * u
    for n in range(column, column + system.streams[stream]):
        a = -float(system.A_log[channel, n].exp())
        b = 1.0 if system.B is None else float(system.B[channel, n])
        b_bar = (np.exp(dt * a) - 1) / a * b
        y = y + lfilter([float(system.C[channel, n]) * b_bar], [1, -np.exp(dt * a)], u)
    return y


@pytest.mark.parametrize("learned_b", [False, True])
@pytest.mark.parametrize("levels", [0, 2])
def test_a_one_hot_mixer_on_the_signal_is_s4d_real(levels: int, learned_b: bool) -> None:
    core, x = core_of("msssm-s4", mixer="static", levels=levels, learned_b=learned_b), signal(200)
    system = system_of(core)
    with torch.no_grad():
        core.mixer.weight.copy_(torch.eye(4)[0, : len(system.streams)])
    z = core(x).detach().numpy()
    for row, channel in np.ndindex(2, 6):
        expected = s4d_real(system, 0, 0, channel, x[row, :, channel].numpy())
        np.testing.assert_allclose(z[row, :, channel], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("mixer_channels", ["shared", "per-channel"])
@pytest.mark.parametrize("state", [3, 8, 11])
def test_core_equals_the_equations(state: int, mixer_channels: str) -> None:
    core, x = core_of("msssm-s4", state=state, mixer_channels=mixer_channels), signal(50)
    system, streams, E = system_of(core), core.decomposition(x).detach(), core.mixer(x).detach()
    z = torch.zeros_like(x)
    column = 0
    for s, n in enumerate(system.streams):
        u = streams[:, :, s].numpy()
        for row, channel in np.ndindex(2, 6):
            y = torch.from_numpy(s4d_real(system, s, column, channel, u[row, :, channel]))
            z[row, :, channel] += (E[row, :, s] if E.ndim == 3 else E[row, :, s, channel]) * y
        column += n
    torch.testing.assert_close(core(x).detach(), z, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_the_hold_is_exact() -> None:
    """Against scipy's zero-order hold of the continuous system, which takes a matrix exponential."""
    core = core_of("msssm-s4", levels=0, state=4, dt_min=0.5, dt_max=2.0, skip=False)
    system, x = core.scan, signal(30)
    assert isinstance(system, ConstantSsms)
    y = system(x.unsqueeze(2), x, torch.ones(2, 30, 1, dtype=torch.float64))
    for channel in range(6):
        A, C = np.diag(-system.A_log[channel].exp().numpy()), system.C[[channel]].numpy()
        continuous = (A, np.ones((4, 1)), C, np.zeros((1, 1)))
        A_bar, B_bar, *_ = cont2discrete(continuous, float(system.log_dt[0, channel].exp()), method="zoh")
        # dlsim reads the state before its update: C A_bar and C B_bar make it ours.
        _, expected, _ = dlsim((A_bar, B_bar, C @ A_bar, C @ B_bar, 1), x[0, :, channel].numpy())
        np.testing.assert_allclose(y[0, :, channel].numpy(), expected[:, 0], rtol=1e-12, atol=1e-13)


def test_streams_with_fewer_states_pad_exactly() -> None:
    system = system_of(core_of("msssm-s4", state=11))
    log_decay, weight = system.discretise()
    assert system.streams == [2, 3, 3, 3]
    assert not log_decay[0, :, 2].any()
    assert not weight[0, :, 2].any()
    assert bool((log_decay[1:] < 0).all())


@torch.no_grad()
def test_starts_as_the_selective_ones_do() -> None:
    model = model_of("msssm-s4", d_model=64, layers=2, state=128, levels=3)
    systems = [module for module in model.modules() if isinstance(module, ConstantSsms)]
    assert len(systems) == 2
    for system in systems:
        rates = -compute_decays(system.A_log)
        torch.testing.assert_close(rates.sort(dim=1).values, torch.arange(1.0, 129).expand_as(rates))
        steps = system.compute_steps()
        assert steps.shape == (5, 128)
        assert 1e-4 <= float(steps.min()) <= 5e-3
        assert 0.05 <= float(steps.max()) <= 0.1 + 1e-6
        assert float(system.C.mean()) == pytest.approx(0, abs=0.05)
        assert float(system.C.std()) == pytest.approx(1, rel=0.05)
        assert system.B is None


def test_groups_of_the_optimiser() -> None:
    model = models.build("msssm-s4", ms_config("msssm-s4", learned_b=True), INFO, 0)
    for path, group in groups_of(model).items():
        name = path.split(".")[-1]
        assert (group == "ssm") == (name in ("A_log", "log_dt", "B", "D")), name
        assert name != "C" or group == "weights"


@pytest.mark.parametrize("d", [16, 128])
@pytest.mark.parametrize("learned_b", [False, True])
def test_parameters_of_its_formula(d: int, learned_b: bool) -> None:
    i, k, levels, state = 2 * d, 4, 3, 128
    m = levels + 2
    system = (2 + learned_b) * i * state + 2 * m * i
    expected = 2 * d * i + levels * 2 * k * i + system + (m * i + m) + i * d
    model = model_of("msssm-s4", d_model=d, layers=1, state=state, levels=levels, learned_b=learned_b)
    assert models.count_parameters(model.blocks[0].layer) == expected  # type: ignore[arg-type]


def test_no_cast_to_half_precision() -> None:
    model = model_of("msssm-s4").bfloat16()
    with pytest.raises(TypeError, match="keep the model in float32"):
        model(torch.ones(1, 3, dtype=torch.int64), torch.tensor([3]))


def test_it_is_time_invariant_but_for_its_mixer() -> None:
    core, x = core_of("msssm-s4", mixer="static"), signal(20)
    later = torch.cat([torch.zeros(2, 5, 6, dtype=torch.float64), x], dim=1)
    torch.testing.assert_close(core(later)[:, 5:], core(x), rtol=1e-12, atol=1e-12)
