"""Properties of every linear model: steps, lengths, directions, precision, groups, starts, errors, HiPPO."""

import math
from typing import Any

import pytest
import torch
from linear_cases import CONVOLVED, LENGTHS, NAMES, double_block, legs_matrix, signal
from model_cases import config_of, known, layer_of, model_of, shaken, stepped, tokens
from pydantic import ValidationError

from msbench import models
from msbench.config import MODELS, TrainConfig
from msbench.models.layers import Recurrent, shift_earlier
from msbench.models.lti import compute_legs, compute_mode_kernel
from msbench.training.optimizer import make_parameter_groups

every = pytest.mark.parametrize("name", NAMES)


@every
@pytest.mark.parametrize("length", LENGTHS)
def test_steps_equal_the_whole_sequence(name: str, length: int) -> None:
    block, x = double_block(name), signal(length)
    with torch.no_grad():
        together = block(x, torch.tensor([length, length]))
        torch.testing.assert_close(stepped(block, x), together, rtol=1e-10, atol=1e-10)


@every
def test_steps_in_single_precision_stay_near(name: str) -> None:
    block = double_block(name).float()
    x = signal(1024).float()
    with torch.no_grad():
        together = block(x, torch.tensor([1024, 1024]))
        scale = float(together.abs().max())
        torch.testing.assert_close(stepped(block, x), together, rtol=0, atol=1e-4 * scale)


@every
def test_layers_are_recurrent(name: str) -> None:
    assert isinstance(double_block(name), Recurrent)


@every
def test_a_state_is_left_as_it_was(name: str) -> None:
    block, x = double_block(name), signal(4)
    state = block.start(x[:, 0])
    _, state = block.step(x[:, 0], state)
    first = block.step(x[:, 1], state)[0]
    assert torch.equal(block.step(x[:, 1], state)[0], first)


@pytest.mark.parametrize("name", CONVOLVED)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_kernel_is_the_start_of_every_longer_one(name: str, length: int) -> None:
    system = double_block(name, bidirectional=True).core.system
    with torch.no_grad():
        torch.testing.assert_close(
            system.compute_kernel(length), system.compute_kernel(300)[:length], rtol=1e-10, atol=1e-11
        )


@pytest.mark.parametrize("name", CONVOLVED)
def test_a_kernel_is_the_response_to_an_impulse(name: str) -> None:
    core = double_block(name).core
    impulse = torch.zeros(1, 40, 6, dtype=torch.float64)
    impulse[:, 0] = 1
    with torch.no_grad():
        kernel = core.system.compute_kernel(40)[:, 0]
        response = core(impulse)[0]
        response[0] -= core.D
        torch.testing.assert_close(response, kernel, rtol=1e-9, atol=1e-12)


@every
def test_two_directions_mirror_each_other(name: str) -> None:
    """With the same C for both, a mirrored input gives the mirrored output, but for the lag of the second."""
    core, x = double_block(name, bidirectional=True).core, signal(23)
    C = dict(core.named_parameters())
    with torch.no_grad():
        for key, value in C.items():
            if key.split(".")[-1] in ("C", "W"):
                value[1] = value[0]
        core.D.zero_()
        y, mirrored = core(x), core(x.flip(1)).flip(1)
        if name in CONVOLVED:
            one = double_block(name).core
            shared = {k: v[:1] if k.split(".")[-1] in ("C", "W") else v for k, v in core.state_dict().items()}
            one.load_state_dict(shared)
            ahead, back = one(x), one(x.flip(1)).flip(1)
            torch.testing.assert_close(y, ahead + shift_earlier(back))
            torch.testing.assert_close(mirrored, back + behind(ahead))
        else:
            torch.testing.assert_close(y, mirrored)


def behind(y: torch.Tensor) -> torch.Tensor:
    """y one step later."""
    return torch.cat([torch.zeros_like(y[:, :1]), y[:, :-1]], dim=1)


@pytest.mark.parametrize("length", [1, 2, 3, 10, 1023])
@pytest.mark.parametrize("growth", [-3.0, -1e-6, 0.01])
def test_the_sum_of_modes_is_that_of_its_definition(length: int, growth: float) -> None:
    source = torch.Generator().manual_seed(0)
    phase = 100 * torch.rand(3, 4, generator=source, dtype=torch.float64)
    r = torch.complex(torch.full_like(phase, growth), phase)
    w = torch.randn(2, 3, 4, generator=source, dtype=torch.complex128)
    t = torch.arange(length, dtype=torch.float64)
    expected = (w.unsqueeze(-1) * torch.exp(r.unsqueeze(-1) * t)).sum(2).real.movedim(-1, 0)
    tolerance = 1e-10 * float(expected.abs().max())
    torch.testing.assert_close(compute_mode_kernel(r, w, length), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", CONVOLVED)
def test_kernels_are_not_made_in_bfloat16(name: str) -> None:
    core = layer_of(model_of(name, state=8)).core
    exact = core.compute_kernels(50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(core.compute_kernels(50), exact)
    assert exact.dtype == torch.float32


@pytest.mark.parametrize("options", [{}, {"liquid_kernel": "kb"}])
@pytest.mark.parametrize("name", ["s4", "liquid-s4"])
def test_autocast_leaves_states_and_gains_alone(name: str, options: dict[str, Any]) -> None:
    core, x = layer_of(model_of(name, state=8, **known(name, **options)).eval()).core, signal(30, 8).float()
    with torch.no_grad():
        expected = core(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(core(x), expected)
            torch.testing.assert_close(stepped(core, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CONVOLVED)
def test_a_recomputed_kernel_has_the_same_gradients(name: str) -> None:
    core, x = layer_of(model_of(name, state=8)).core, signal(20, 8).float()
    gradients = []
    for training in (True, False):
        core.train(training)
        gradients.append(torch.autograd.grad(core(x).square().sum(), list(core.parameters())))
    for again, kept in zip(*gradients, strict=True):
        assert torch.equal(again, kept)


@every
@pytest.mark.parametrize("bidirectional", [False, True])
def test_groups_of_the_optimiser(name: str, bidirectional: bool) -> None:
    model = model_of(name, bidirectional=bidirectional, state=8)
    names = {id(value): key for key, value in model.named_parameters()}
    # With a rate of their own, step sizes are a group of their own.
    train = TrainConfig(lr=1e-2, ssm_lr=1e-3, dt_lr=2e-3, weight_decay=0.05)
    groups = make_parameter_groups(model, train)
    found: dict[str, str] = {}
    for group in groups:
        parameters: Any = group["params"]
        assert group["lr"] == {"ssm": 1e-3, "dt": 2e-3}.get(str(group["name"]), 1e-2)
        assert (group["weight_decay"] == 0.05) == (group["name"] == "weights")
        for parameter in parameters:
            key = names[id(parameter)]
            assert key not in found
            found[key] = str(group["name"])
    assert found.keys() == set(names.values())
    slow = {"A_log", "A_imag", "A", "P", "B", "W", "nu_log", "theta_log", "gamma_log"}
    for key, group_name in found.items():
        last = key.split(".")[-1]
        if ".core." in key:
            expected = "ssm" if last in slow else {"C": "weights", "D": "plain", "log_dt": "dt"}[last]
            assert group_name == expected, key


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lru"])
def test_step_sizes_start_log_uniform(name: str) -> None:
    model = model_of(name, d_model=64, state=128, dt_min=1e-3, dt_max=0.1)
    steps = layer_of(model, 1).core.state_dict()
    key = next(key for key in steps if key.endswith("log_dt"))
    exponents = steps[key]
    assert math.log(1e-3) <= float(exponents.min()) < math.log(1e-3) + 0.4
    assert math.log(0.1) - 0.4 < float(exponents.max()) <= math.log(0.1) + 1e-6
    assert float(exponents.mean()) == pytest.approx(math.log(1e-2), abs=0.5)


# The real parts of DSS with a softmax are free, as in the source.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "dss-softmax"])
def test_decays_stay_below_one_whatever_is_learned(name: str) -> None:
    """Noise as large as the parameters, and long impulses still die away."""
    model = model_of(name, d_model=8, state=8, layers=1).double().eval()
    core = shaken(layer_of(model).core, 1.0)
    with torch.no_grad():
        impulse = torch.zeros(1, 60_000, 8, dtype=torch.float64)
        impulse[:, 0] = 1
        y = core(impulse)[0].abs()
    assert torch.isfinite(y).all()
    assert float(y[-1].max()) < 0.5 * float(y[:100].max())


@every
def test_states_count_pairs_and_directions(name: str) -> None:
    count = models.count_states_per_channel
    both, one = (count(name, config_of(name, state=64, bidirectional=way)) for way in (True, False))
    assert both == 2 * one
    assert one == (8 if name in ("s5", "lru") else 64)
    assert not models.find_family(name).is_causal(config_of(name, bidirectional=True))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        *((name, {"state": 7}, "state 7 is odd.*even") for name in NAMES if name not in ("s4d-real", "s5")),
        ("s5", {"state": 7}, "even"),
        ("s5", {"state": 12, "blocks": 4}, "state 12 must be a multiple of 2 blocks, of 8"),
        ("s4", {"state": 0}, "state"),
        ("s4", {"copies": 3}, "copies 3 must divide d_model 8"),
        ("s4d-lin", {"dt_min": 0.2}, r"dt_min 0\.2 is above dt_max 0\.1"),
        ("lru", {"r_min": 0.9, "r_max": 0.9}, r"r_min 0\.9 must be below r_max 0\.9"),
        ("liquid-s4", {"degree": 1}, "degree"),
    ],
)
def test_configs_that_cannot_be_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of(name, **options)


@every
def test_a_model_cast_to_half_precision_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="use autocast"):
        model_of(name, state=8).bfloat16()(*tokens(5))


INSIDE = {"s4": (0.3, 0.3), "s5-none": (0.0, 0.0)}
"""Rates before and after the activation in the sources, where they are not one after it."""


@pytest.mark.parametrize("name", [*NAMES, "s5-none"])
def test_blocks_drop_whole_channels_where_the_sources_do(name: str) -> None:
    model, _, gate = name.partition("-none")
    options: dict[str, Any] = {"gate": "none"} if gate != name and name.endswith("-none") else {}
    block = layer_of(model_of(model, state=8, dropout=0.3, **options))
    assert (block.early_dropout.p, block.dropout.p) == INSIDE.get(name, (0.0, 0.3))
    for value in (0.0, 0.6):
        other = layer_of(model_of(model, state=8, dropout=0.3, inner_dropout=value, **options))
        assert (other.early_dropout.p, other.dropout.p) == (value if name == "s4" else 0.0, value)


@every
def test_dropout_inside_a_block_is_drawn_once_for_all_positions(name: str) -> None:
    """With a core that passes ones and a map that passes all, what is dropped is seen."""
    block = layer_of(model_of(name, d_model=64, state=128, dropout=0.5)).train()
    block.core, block.channels, block.gate = torch.nn.Identity(), torch.nn.Identity(), "linear"
    if name == "liquid-s4":
        block.core = First()
    torch.manual_seed(0)
    y = block(torch.ones(4, 9, 64), torch.tensor([9] * 4))
    assert torch.equal(y, y[:, :1].expand_as(y))
    share = float((y == 0).float().mean())
    assert share == pytest.approx(0.75 if name == "s4" else 0.5, abs=0.12)
    one = torch.ones(1, 1, 64)
    assert torch.equal(block.eval()(one, torch.tensor([1])), torch.nn.functional.gelu(one))


class First(torch.nn.Module):
    """A core that reads lengths too, and passes its inputs."""

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        assert len(lengths) == len(inputs)
        return inputs


def test_every_linear_model_is_here() -> None:
    families = {"s4", "s4d", "dss", "liquid-s4", "s5", "lru"}
    assert {name for name, entry in MODELS.items() if entry.family in families} == set(NAMES)


@pytest.mark.parametrize("states", [2, 4, 16, 64])
def test_the_eigenbasis_gives_legs_back(states: int) -> None:
    poles, p, b, V = compute_legs(states)
    whole = V @ torch.diag(poles) @ V.mH
    low = V @ p
    A = (whole + whole.conj()).real - torch.outer((low + low.conj()).real, (low + low.conj()).real)
    torch.testing.assert_close(A, legs_matrix(states), rtol=1e-10, atol=1e-9)
    B = (2 * torch.arange(states) + 1).double().sqrt()
    torch.testing.assert_close(2 * (V @ b).real, B, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("states", [2, 8, 64])
def test_kept_is_the_upper_half_of_orthonormal_vectors(states: int) -> None:
    poles, p, b, V = compute_legs(states)
    torch.testing.assert_close(poles.real, torch.full_like(poles.real, -0.5))
    assert bool((poles.imag > 0).all())
    assert bool((poles.imag.diff() > 0).all())
    identity = torch.eye(states // 2, dtype=torch.complex128)
    torch.testing.assert_close(V.mH @ V, identity, rtol=0, atol=1e-12)
    torch.testing.assert_close(V.mT @ V, torch.zeros_like(identity), rtol=0, atol=1e-12)
    assert bool((p.real > 0).all())
    assert not p.imag.any()
    torch.testing.assert_close(b, 2**0.5 * p)


def test_eigenvalues_of_the_diagonal_part() -> None:
    """The normal part's eigenvalues, by a solver that knows nothing of its structure."""
    p = (torch.arange(16) + 0.5).double().sqrt()
    found = torch.linalg.eigvals(legs_matrix(16) + torch.outer(p, p))
    upper = found[found.imag > 0]
    torch.testing.assert_close(upper[upper.imag.argsort()], compute_legs(16).poles, rtol=1e-10, atol=1e-10)
