"""MS-SSM with S4D's or S4's systems: against dense matrices, against those models' layers, and its starts."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from linear_cases import full, legs_matrix, response
from model_cases import config_of, groups_of, layer_of, model_of, stepped
from ms_ssm_cases import core_of, ms_config, signal

from msbench import models
from msbench.config.linear import S4Config, S4dConfig
from msbench.models.lti import ConvolvedSystem, compute_legs
from msbench.models.s4 import DplrSystem
from msbench.models.s4d import S4dSystem
from msbench.models.stream_ssms import ComplexSsms
from msbench.models.streams import split_states

METHODS = {"msssm-s4d": "zoh", "msssm-s4-dplr": "bilinear"}
both = pytest.mark.parametrize("name", METHODS)


def scan_of(core: torch.nn.Module) -> ComplexSsms:
    return next(module for module in core.modules() if isinstance(module, ComplexSsms))


def start_of(name: str, width: int = 6, **options: Any) -> Any:
    """The systems of a layer, all else left out."""
    torch.manual_seed(0)
    return ComplexSsms(ms_config(name, **options), width)


def place(scan: ComplexSsms, stream: int, channel: int = 0) -> tuple[Any, int]:
    """The system that has a channel of a stream, and the channel's index there."""
    at, systems = stream * scan.width + channel, iter(scan.systems)
    system: Any = next(systems)
    while at >= len(system.log_dt):
        at, system = at - len(system.log_dt), next(systems)
    return system, at


def parameters_of(scan: ComplexSsms, stream: int) -> dict[str, torch.Tensor]:
    """Those of one stream's channels, as a system of its own has them."""
    system, at = place(scan, stream)
    rows = slice(at, at + scan.width)
    return {key: x[:, rows] if key == "C" else x[rows] for key, x in system.state_dict().items()}


def layer_of_its_own(name: str, state: int) -> ConvolvedSystem:
    """S4D's or S4's layer, from the same seed."""
    torch.manual_seed(0)
    size: dict[str, Any] = {"d_model": 6, "state": state}
    return ConvolvedSystem(
        S4dSystem(S4dConfig(**size)) if name == "msssm-s4d" else DplrSystem(S4Config(**size)), 6
    )


@both
@pytest.mark.parametrize("mixer_channels", ["shared", "per-channel"])
@pytest.mark.parametrize(("state", "sizes"), [(12, [2, 2, 4, 4]), (16, [4, 4, 4, 4])])
@torch.no_grad()
def test_core_equals_the_equations(name: str, state: int, sizes: list[int], mixer_channels: str) -> None:
    core, x = core_of(name, state=state, mixer_channels=mixer_channels), signal(40)
    scan, streams, E = scan_of(core), core.decomposition(x), core.mixer(x)
    assert (scan.streams, E.ndim) == (sizes, 3 if mixer_channels == "shared" else 4)
    assert scan.D is not None
    z = torch.zeros_like(x)
    for s, row, channel in np.ndindex(4, 2, 6):
        u = streams[row, :, s, channel]
        y = torch.from_numpy(response(*place(scan, s, channel), METHODS[name], u.numpy()))
        weight = E[row, :, s] if E.ndim == 3 else E[row, :, s, channel]
        z[row, :, channel] += weight * (y + scan.D[s, channel] * u)
    torch.testing.assert_close(core(x), z, rtol=1e-10, atol=1e-11)


@both
@pytest.mark.parametrize(("levels", "stream"), [(0, 0), (2, 0), (2, 2), (2, 3)])
@torch.no_grad()
def test_a_one_hot_mixer_is_the_layer_of_its_stream(name: str, levels: int, stream: int) -> None:
    core, x = core_of(name, mixer="static", levels=levels, state=16), signal(30)
    scan = scan_of(core)
    core.mixer.weight.copy_(torch.eye(4)[stream, : len(scan.streams)])
    layer = layer_of_its_own(name, scan.streams[stream]).double()
    assert scan.D is not None
    weights = {f"system.{key}": value for key, value in parameters_of(scan, stream).items()}
    layer.load_state_dict({**weights, "D": scan.D[stream]})
    u = core.decomposition(x)[:, :, stream]
    torch.testing.assert_close(core(x), layer(u), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(stepped(core, x), stepped(layer, u), rtol=1e-11, atol=1e-12)


@both
def test_without_levels_it_starts_as_the_model_that_it_is_named_after(name: str) -> None:
    ours = start_of(name, levels=0, state=16).state_dict()
    theirs = layer_of_its_own(name, 16).system.state_dict()
    assert torch.equal(ours.pop("D"), torch.ones(1, 6))
    assert ours.keys() == {f"systems.0.{key}" for key in theirs}
    assert all(torch.equal(ours[f"systems.0.{key}"], value) for key, value in theirs.items())


def rates_of(name: str, **options: Any) -> list[float]:
    """The one rate of decay that all poles of a stream have, for every stream."""
    found = []
    scan = start_of(name, **options)
    for stream in range(len(scan.streams)):
        rates = parameters_of(scan, stream)["A_log"].exp()
        torch.testing.assert_close(rates, rates[:1, :1].expand_as(rates))
        found.append(round(float(rates[0, 0]), 3))
    return found


@both
def test_decays_start_by_as_much_faster_as_coarser_streams_have_states(name: str) -> None:
    assert split_states(ms_config(name, state=128, levels=3)) == [24, 26, 26, 26, 26]
    assert rates_of(name, state=128, levels=3) == [104.5, 78.5, 52.5, 26.5, 0.5]
    small: dict[str, Any] = {"state": 14, "levels": 1}
    assert split_states(ms_config(name, **small)) == [4, 4, 6]
    assert rates_of(name, **small) == [10.5, 6.5, 0.5]
    assert rates_of(name, **small, raw_decays="slowest") == [0.5, 10.5, 4.5]
    assert rates_of(name, **small, decay_init="mamba") == [0.5] * 3
    assert rates_of(name, levels=1, state=4, state_per_stream=True) == [8.5, 4.5, 0.5]


def test_frequencies_start_anew_in_every_stream() -> None:
    scan = start_of("msssm-s4d", state=28)
    for stream, states in enumerate([6, 6, 8, 8]):
        expected = math.pi * torch.arange(states // 2, dtype=torch.float32)
        torch.testing.assert_close(parameters_of(scan, stream)["A_imag"], expected.expand(6, -1))


def test_dplr_starts_as_legs_with_the_papers_integers_on_its_diagonal() -> None:
    """In the basis of LegS, where A is triangular: its diagonal, -1 .. -N of all streams, is its spectrum."""
    scan, diagonals = start_of("msssm-s4-dplr", state=28, b_clip=None), []
    for s, (states, offset) in enumerate(zip([6, 6, 8, 8], [22, 16, 8, 0], strict=True)):
        _, A, B, *_ = full(*place(scan, s, 3))
        half = compute_legs(states).basis.numpy()
        basis = np.concatenate([half, half.conj()], axis=1)
        whole = legs_matrix(states).numpy() - offset * np.eye(states)
        np.testing.assert_allclose(basis @ A @ basis.conj().T, whole, atol=3e-5)
        np.testing.assert_allclose(basis @ B, np.sqrt(2 * np.arange(states) + 1), atol=1e-5)
        diagonals += sorted(-np.diag(whole), reverse=True)
    assert diagonals == list(range(28, 0, -1))


def test_dplr_starts_with_the_clipped_input_of_s4() -> None:
    scan = start_of("msssm-s4-dplr", state=28)
    for stream, states in enumerate([6, 6, 8, 8]):
        expected = compute_legs(states).b.real.clamp(max=2).float()
        assert int((expected == 2).sum()) == 1  # the fastest mode alone
        torch.testing.assert_close(parameters_of(scan, stream)["B"][..., 0], expected.expand(6, -1))


@both
def test_steps_and_outputs_start_as_those_of_the_other_flavours(name: str) -> None:
    for system in start_of(name, width=64, state=128, levels=3).systems:
        steps = system.log_dt.detach().exp()
        assert 1e-3 <= float(steps.min()) <= 2e-3
        assert 0.05 <= float(steps.max()) <= 0.1 + 1e-6
        assert float(system.C.detach().var()) == pytest.approx(0.5, rel=0.1)
    for system in start_of(name, state=12, dt_min=1e-7, dt_max=1e-6).systems:
        steps = system.log_dt.detach().exp()
        torch.testing.assert_close(steps, torch.full_like(steps, 1e-4))


@both
@torch.no_grad()
def test_poles_are_both_halves_of_pairs(name: str) -> None:
    scan = start_of(name, state=12, dt_min=0.2, dt_max=0.2)
    for s, poles in enumerate(scan.compute_poles()):
        dt, _, _, _, A, _ = full(*place(scan, s, 5))
        A_bar = np.exp(dt * A) if name == "msssm-s4d" else (1 + dt / 2 * A) / (1 - dt / 2 * A)
        assert poles.shape == (6, scan.streams[s])
        np.testing.assert_allclose(poles[5].numpy(), A_bar, rtol=1e-6)


@both
def test_groups_of_the_optimiser(name: str) -> None:
    groups = groups_of(model_of(name, state=10))
    names = {path.split(".")[-1] for path in groups}
    assert {"log_dt", "A_log", "A_imag", "B", "C", "D"} <= names
    for path, group in groups.items():
        last = path.split(".")[-1]
        assert (group == "ssm") == (last in ("log_dt", "A_log", "A_imag", "P", "B", "D")), path
        assert last != "C" or group == "weights"


@both
@pytest.mark.parametrize("d", [8, 24])
def test_parameters_of_its_formula(name: str, d: int) -> None:
    i, k, m, state = 2 * d, 4, 5, 30
    vectors = 3 if name == "msssm-s4d" else 4  # A, B, C, and P: two numbers a pair
    expected = 2 * d * i + 3 * 2 * k * i + vectors * i * state + 2 * m * i + (m * i + m) + i * d
    model = model_of(name, d_model=d, layers=1, state=state, levels=3)
    assert models.count_parameters(layer_of(model)) == expected


@both
@pytest.mark.parametrize(("state", "sizes"), [(28, [12, 12]), (32, [24]), (30, [6, 18])])
def test_streams_of_as_many_states_are_one_system(name: str, state: int, sizes: list[int]) -> None:
    assert [len(system.log_dt) for system in start_of(name, state=state).systems] == sizes


@both
def test_what_is_recorded_of_it(name: str) -> None:
    family = models.find_family(name)
    config = config_of(name, state=28, levels=2, bidirectional=True)
    assert models.count_states_per_channel(name, config) == 56
    assert (
        models.count_states_per_channel(name, config_of(name, state=6, state_per_stream=True, levels=1)) == 18
    )
    assert (family.name_kernel(config, "cpu"), family.count_scanned(config)) == ("torch", 0)
    assert not family.is_causal(config)


@both
@torch.no_grad()
def test_kernels_are_not_made_in_bfloat16(name: str) -> None:
    scan = scan_of(core_of(name, state=16)).float()
    u = torch.randn(2, 30, 4, 6, generator=torch.Generator().manual_seed(0))
    exact = scan(u, u, u.cos())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(scan(u, u, u.cos()), exact)


@both
def test_a_recomputed_kernel_has_the_same_gradients(name: str) -> None:
    core, x = core_of(name, state=16), signal(20)
    gradients = []
    for training in (True, False):
        core.train(training)
        gradients.append(torch.autograd.grad(core(x).square().sum(), list(core.parameters())))
    assert all(torch.equal(again, kept) for again, kept in zip(*gradients, strict=True))


@both
def test_no_cast_to_half_precision(name: str) -> None:
    with pytest.raises(TypeError, match="keep the model in float32"):
        model_of(name, state=10).bfloat16()(torch.ones(1, 3, dtype=torch.int64), torch.tensor([3]))


@both
def test_it_is_time_invariant_but_for_its_mixer(name: str) -> None:
    core, x = core_of(name, mixer="static", state=16), signal(20)
    later = torch.cat([torch.zeros(2, 5, 6, dtype=torch.float64), x], dim=1)
    torch.testing.assert_close(core(later)[:, 5:], core(x), rtol=1e-11, atol=1e-12)
