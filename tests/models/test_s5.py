"""S5 against the package s5-pytorch, S5 and the LRU against plain loops, and how both start."""

import warnings
from typing import Any

import pytest
import torch
from linear_cases import LENGTHS, double_block, signal
from model_cases import config_of, known, layer_of, model_of
from torch import Tensor

from msbench import models
from msbench.models.blocks import GluBlock
from msbench.models.lti import compute_legs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # it is compiled by torch.jit
    from s5.s5_model import S5SSM


def peer(core: Any, *, bidirectional: bool, discretisation: str) -> Any:
    """The package's SSM with our parameters, in double."""
    n, d = len(core.log_dt), len(core.D)
    zeros, eye = torch.zeros(n, dtype=torch.complex128), torch.eye(n, dtype=torch.complex64)
    options = {"bcInit": "dense", "bidir": bidirectional, "discretization": discretisation}
    other = S5SSM(zeros, eye, eye, d, n, 1e-3, 0.1, **options)
    values = {
        "Lambda": torch.complex(-core.A_log.exp(), core.A_imag),
        "C": torch.cat([2 * torch.view_as_complex(C.contiguous()) for C in core.C], -1),
        "log_step": core.log_dt,
        "D": core.D,
    }
    for key, value in values.items():
        setattr(other, key, torch.nn.Parameter(value.detach()))
    # Its own cast of B ends in complex64.
    B = torch.view_as_complex(core.B.detach())
    other.get_BC_tilde = lambda: (B, other.C)
    return other


@pytest.mark.parametrize("length", [1, 2, 31, 64, 100])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
def test_s5_equals_the_package(length: int, bidirectional: bool, discretisation: str) -> None:
    core = double_block("s5", bidirectional=bidirectional, discretisation=discretisation).core
    other = peer(core, bidirectional=bidirectional, discretisation=discretisation)
    x = signal(length)
    with torch.no_grad():
        ours = core(x)
        for row in range(2):
            torch.testing.assert_close(ours[row], other(x[row]), rtol=1e-10, atol=1e-11)


def lru_by_hand(core: Any, u: Tensor) -> Tensor:
    """One sequence (l, d), step by step."""
    p = {key: value.detach() for key, value in core.named_parameters()}
    decay = torch.exp(torch.complex(-p["nu_log"].exp(), p["theta_log"].exp()))
    B, C = torch.view_as_complex(p["B"]), torch.view_as_complex(p["C"][0].contiguous())
    h, outputs = torch.zeros_like(decay), []
    for x in u:
        h = decay * h + p["gamma_log"].exp() * (B @ x.to(B.dtype))
        outputs.append((C @ h).real + p["D"] * x)
    return torch.stack(outputs)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_lru_equals_a_loop(length: int) -> None:
    core, x = double_block("lru").core, signal(length)
    with torch.no_grad():
        for row in range(2):
            torch.testing.assert_close(core(x)[row], lru_by_hand(core, x[row]), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("gate", ["full", "half-activated", "half", "linear", "none"])
def test_gates_are_those_of_s5(gate: Any) -> None:
    torch.manual_seed(0)
    block = GluBlock(config_of("s5", d_model=4), torch.nn.Identity(), gate=gate)
    y = torch.randn(2, 3, 4)
    g = torch.nn.functional.gelu(y)
    if gate == "none":
        expected = g
    else:
        assert block.channels is not None
        rows = g @ block.channels.weight.T + block.channels.bias
        left: Any = {"full": rows[..., :4], "half-activated": g, "half": y, "linear": 1}[gate]
        expected = rows if gate == "linear" else left * torch.sigmoid(rows[..., -4:])
    torch.testing.assert_close(block(y, torch.tensor([3, 3])), expected)


@pytest.mark.parametrize("name", ["s5", "lru"])
@pytest.mark.parametrize("gelu", ["exact", "tanh"])
def test_gelu_is_exact_or_that_of_flax(name: str, gelu: Any) -> None:
    block = layer_of(model_of(name, state=8, gelu=gelu, **known(name, gate="none")))
    block.core, y = torch.nn.Identity(), torch.linspace(-3, 3, 48).view(2, 3, 8)
    inner = 0.5 * y * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (y + 0.044715 * y**3)))
    expected = inner if gelu == "tanh" else torch.nn.functional.gelu(y)
    if name == "lru":
        expected = torch.nn.functional.glu(block.channels(expected), dim=-1)
    torch.testing.assert_close(block(y, torch.tensor([3, 3])), expected)


@pytest.mark.parametrize("name", ["s5", "lru"])
def test_linear_maps_start_as_those_of_flax(name: str) -> None:
    """The source's deviation at a width of 128 is 0.088; torch's own is 0.051, and biases are random."""
    for start, std in (("lecun", 0.0884), ("torch", 0.0510)):
        model = model_of(name, d_model=128, state=8, dense_init=start)
        maps = [model.head, *(layer_of(model, index).channels for index in range(2))]
        for part in maps[1:]:
            assert float(part.weight.detach().std()) == pytest.approx(std, rel=0.03)
            assert float(part.weight.detach().abs().max()) < 2.3 * std
        assert all(bool(part.bias.any()) == (start == "torch") for part in maps)
        assert model.encoder.embedding is not None
        assert float(model.encoder.embedding.weight.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_flax_changes_nothing_but_linear_maps() -> None:
    one, other = (
        model_of("s5", state=8).state_dict(),
        model_of("s5", state=8, dense_init="lecun").state_dict(),
    )
    changed = {key for key in one if not torch.equal(one[key], other[key])}
    assert {key.split(".")[-2] for key in changed} == {"channels", "head"}


def test_s5_starts_with_blocks_of_legs() -> None:
    core = layer_of(model_of("s5", d_model=32, state=48, blocks=3)).core
    expected = compute_legs(16).poles.repeat(3)
    torch.testing.assert_close(-core.A_log.detach().exp(), expected.real.float())
    torch.testing.assert_close(core.A_imag.detach(), expected.imag.float())


@pytest.mark.parametrize(
    ("kind", "variance"),
    [("truncated-normal", 1 / 64), ("lecun-normal", 1 / (64 * 96)), ("complex-normal", 0.5)],
)
def test_matrices_of_s5_start_with_the_variance_of_the_source(kind: str, variance: float) -> None:
    """A unitary half keeps the variance of what it takes to the eigenbasis; each part of B has half of it."""
    core = layer_of(model_of("s5", d_model=96, state=64, output_init=kind)).core
    assert float(core.B.detach().var()) == pytest.approx(1 / 64 / 2, rel=0.15)
    assert float(core.C.detach().var()) == pytest.approx(variance, rel=0.15)


def test_the_lru_starts_on_its_ring() -> None:
    core = layer_of(model_of("lru", d_model=32, state=4096, r_min=0.4, r_max=0.9, max_phase=0.5)).core
    radius, phase = torch.exp(-core.nu_log.detach().exp()), core.theta_log.detach().exp()
    assert 0.4 <= float(radius.min()) < 0.42
    assert 0.89 < float(radius.max()) <= 0.9
    assert float(radius.square().mean()) == pytest.approx((0.16 + 0.81) / 2, rel=0.02)
    assert 0 < float(phase.min()) < 0.01
    assert 0.49 < float(phase.max()) <= 0.5
    torch.testing.assert_close(core.gamma_log.detach().exp(), (1 - radius.square()).sqrt())
    assert float(core.B.detach().var()) == pytest.approx(1 / 64, rel=0.05)
    assert float(core.C.detach().var()) == pytest.approx(1 / 2048, rel=0.05)
    assert torch.isfinite(layer_of(model_of("lru", state=4096)).core.nu_log).all()
    edge = layer_of(model_of("lru", state=100_000, d_model=1, r_min=0.9999)).core
    assert all(torch.isfinite(part).all() for part in (edge.nu_log, edge.gamma_log))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("gate", "width"), [("full", 2), ("half", 1), ("half-activated", 1), ("none", 0)])
def test_s5_has_the_parameters_of_its_formula(bidirectional: bool, gate: str, width: int) -> None:
    d, state, s = 8, 6, 1 + bidirectional
    model = model_of("s5", state=state, gate=gate, bidirectional=bidirectional, layers=1)
    ssm = 3 * (state // 2) + state * d + s * state * d + d
    assert models.count_parameters(layer_of(model)) == ssm + width * d * (d + 1)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_lru_has_the_parameters_of_its_formula(bidirectional: bool) -> None:
    d, state, s = 8, 6, 1 + bidirectional
    model = model_of("lru", state=state, bidirectional=bidirectional, layers=1)
    ssm = 3 * (state // 2) + state * d + s * state * d + d
    assert models.count_parameters(layer_of(model)) == ssm + 2 * d * (d + 1)
