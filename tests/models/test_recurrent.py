"""HiPPO-RNN, UR-GRU and the Lipschitz RNN against loops written from their papers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from kind_cases import alone, examples, model_for
from model_cases import RECURRENT, config_of, groups_of, layer_of, model_of, stepped, tokens
from scipy.signal import cont2discrete
from torch import Tensor

from msbench import models
from msbench.config.layers import LocatedValues
from msbench.config.run import resolve_model
from msbench.errors import ConfigError
from msbench.models.classifier import DropoutBlock
from msbench.models.layers import Recurrent
from msbench.models.recurrent import RecurrentLoop, build_cell

every_network = pytest.mark.parametrize("name", RECURRENT)


def loop(name: str, seed: int = 0, **options: Any) -> RecurrentLoop:
    torch.manual_seed(seed)
    config: Any = config_of(name, **{"d_model": 5, **options})
    own = RecurrentLoop(build_cell(config)).double()
    # Far from the start, where the Lipschitz RNN's matrices are nearly zero.
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
    return own


def signal(length: int, width: int = 5, b: int = 3) -> Tensor:
    return torch.randn(b, length, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def legs(size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A and B of HiPPO-LegS, entry by entry (Gu et al. 2020, equation 3)."""
    A = np.zeros((size, size))
    for n in range(size):
        for k in range(n + 1):
            A[n, k] = -math.sqrt((2 * n + 1) * (2 * k + 1)) if n > k else -(n + 1)
    return A, np.sqrt(2 * np.arange(size) + 1)[:, None]


def linear(x: Tensor, layer: Any) -> Tensor:
    out: Tensor = x @ layer.weight.T + layer.bias
    return out


def run_hippo(own: Any, x: Tensor) -> Tensor:
    """With the matrices of each position from scipy."""
    cell, size = own.cell, own.cell.memory
    A, B = legs(size)
    h, m, outputs = x.new_zeros(len(x), x.shape[2]), x.new_zeros(len(x), size), []
    for t in range(x.shape[1]):
        u = linear(torch.cat((x[:, t], h), 1), cell.write)
        if t == 0:
            m = torch.cat((u, m[:, 1:]), 1)
        else:
            system = (A / t, B / t, np.zeros((1, size)), np.zeros((1, 1)))
            a, b = (torch.from_numpy(each) for each in cont2discrete(system, 1.0, method="bilinear")[:2])
            m = m @ a.T + u * b[:, 0]
        seen = torch.cat((x[:, t], m), 1)
        g = 1 / (1 + torch.exp(-linear(seen, cell.gate)))
        h = (1 - g) * h + g * torch.tanh(linear(seen, cell.hidden))
        outputs.append(h)
    return torch.stack(outputs, 1)


def run_ur_gru(own: Any, x: Tensor) -> Tensor:
    h, outputs = x.new_zeros(len(x), x.shape[2]), []
    for t in range(x.shape[1]):
        gates = linear(torch.cat((x[:, t], h), 1), own.cell.gates)
        f, r, s = (1 / (1 + torch.exp(-each)) for each in gates.chunk(3, 1))
        effective = f + f * (1 - f) * (2 * r - 1)
        candidate = torch.tanh(linear(torch.cat((x[:, t], s * h), 1), own.cell.candidate))
        h = effective * h + (1 - effective) * candidate
        outputs.append(h)
    return torch.stack(outputs, 1)


def run_lipschitz(own: Any, x: Tensor) -> Tensor:
    """Columns, as in the paper (equations 2 and 14)."""
    cell = own.cell
    d, beta, gamma, step = x.shape[2], cell.beta, cell.gamma, cell.euler_step
    A, W = (
        (1 - beta) * (M + M.T) + beta * (M - M.T) - gamma * torch.eye(d, dtype=x.dtype)
        for M in (cell.M_A, cell.M_W)
    )
    rows = []
    for sequence in x:
        h, outputs = x.new_zeros(d), []
        for position in sequence:
            z = cell.input.weight @ position + cell.input.bias
            h = h + step * (A @ h + torch.tanh(W @ h + z))
            outputs.append(h)
        rows.append(torch.stack(outputs))
    return torch.stack(rows)


WITNESSES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "hippo-rnn": run_hippo,
    "ur-gru": run_ur_gru,
    "lipschitz-rnn": run_lipschitz,
}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in RECURRENT),
    *(("hippo-rnn", {"memory": size}) for size in (1, 8)),
    ("lipschitz-rnn", {"beta": 0.6, "gamma": 0.2, "euler_step": 0.5}),
]


@pytest.mark.parametrize("length", [1, 2, 70])
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_outputs_and_gradients_are_those_of_the_papers_loop(
    name: str, options: dict[str, Any], length: int
) -> None:
    own, x = loop(name, **options), signal(length).requires_grad_()
    weights = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x)
    found, expected = own(x, torch.tensor([length] * 3)), WITNESSES[name](own, x)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    variables = [x, *own.parameters()]
    gradients = (torch.autograd.grad((each * weights).sum(), variables) for each in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_the_memory_reconstructs_the_past() -> None:
    """From 64 coefficients the 2,000 values that were written, by Legendre polynomials over all of them."""
    config: Any = config_of("hippo-rnn", d_model=2, memory=64)
    cell: Any = build_cell(config).double()
    with torch.no_grad():
        cell.write.weight.copy_(torch.tensor([[1.0, 0, 0, 0]]))
        cell.write.bias.zero_()
    x = torch.zeros(1, 2000, 2, dtype=torch.float64)
    x[0, :, 0] = torch.sin(torch.linspace(0, 12, 2000))
    state, weights = cell.start(x[:, 0]), cell.prepare()
    with torch.no_grad():
        for part in cell.project(x).unbind(1):
            _, state = cell.step(part, state, weights)
    assert float(state[2]) == 2000
    scale = np.sqrt(2 * np.arange(64) + 1)
    inside = np.linspace(-1, 1, 2000)
    found = np.polynomial.legendre.legval(inside, state[1][0].numpy() * scale)
    assert np.abs(found - x[0, :, 0].numpy())[20:-20].max() < 5e-3
    assert np.abs(found).max() > 0.9


def test_single_precision_solves_large_systems() -> None:
    x = signal(60, 8).float()
    config: Any = config_of("hippo-rnn", d_model=8, memory=512)
    own = RecurrentLoop(build_cell(config))
    lengths = torch.tensor([60] * 3)
    with torch.no_grad():
        found, exact = own(x, lengths), own.double()(x.double(), lengths)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2e-5)


@every_network
@pytest.mark.parametrize("length", [1, 30])
def test_steps_equal_the_whole(name: str, length: int) -> None:
    own, x = loop(name), signal(length)
    assert isinstance(own, Recurrent)
    expected = own(x, torch.tensor([length] * 3))
    torch.testing.assert_close(stepped(own, x), expected, rtol=1e-12, atol=1e-12)


@every_network
def test_the_future_and_padding_are_never_read(name: str) -> None:
    own, x = loop(name), signal(40)
    other = x.clone()
    other[:, 25:] = 1e3
    found, changed = (own(each, torch.tensor([25] * 3)) for each in (x, other))
    assert torch.equal(found[:, :25], changed[:, :25])
    assert (found[:, 25] - changed[:, 25]).abs().max() > 1e-3


@every_network
@pytest.mark.parametrize("kind", ["signal", "pairs"])
def test_an_example_is_the_same_next_to_one_ten_times_as_long(name: str, kind: str) -> None:
    model = model_for(kind, name).double().eval()
    inputs, lengths = examples(kind, 8, 80, 1, 13)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    together = model(inputs, lengths)
    for row in range(4):
        single = model(*alone(inputs, lengths, row))
        torch.testing.assert_close(together[row : row + 1], single, rtol=1e-12, atol=1e-13)


@every_network
def test_the_classifier_is_linear_in_the_last_state(name: str) -> None:
    model = model_of(name, layers=1).double()
    inputs, lengths = tokens(9, 4)
    assert [type(block) for block in model.blocks] == [DropoutBlock]
    assert model.final_norm is None
    states = layer_of(model)(model.encoder(inputs), lengths)
    last = torch.stack((states[0, 8], states[1, 3]))
    torch.testing.assert_close(model(inputs, lengths), model.head(last), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", [8, 64])
def test_parameter_counts(d: int) -> None:
    def count(name: str, **options: Any) -> int:
        return models.count_parameters(layer_of(model_of(name, d_model=d, **options)))

    for memory in (d, 24):
        assert count("hippo-rnn", memory=memory) == 2 * d * (d + memory) + 2 * d + 2 * d + 1
    assert count("ur-gru") == 4 * d * 2 * d + 4 * d
    assert count("lipschitz-rnn") == 2 * d * d + d * d + d


def test_states_are_those_of_a_step() -> None:
    expected = {"hippo-rnn": 2, "ur-gru": 1, "lipschitz-rnn": 1}
    for name, states in expected.items():
        assert models.count_states_per_channel(name, config_of(name)) == states
    assert models.count_states_per_channel("hippo-rnn", config_of("hippo-rnn", memory=17)) == 4


def start_of(name: str, **options: Any) -> Any:
    return layer_of(model_of(name, d_model=256, layers=1, **options)).cell


def test_forget_gates_start_uniform_and_refine_gates_opposite() -> None:
    cell = start_of("ur-gru")
    f, r, s = cell.gates.bias.detach().chunk(3)
    torch.testing.assert_close(r, -f)
    gates = f.sigmoid().sort().values
    assert 1 / 256 - 1e-6 < float(gates[0]) < 0.03
    assert 0.97 < float(gates[-1]) < 1 - 1 / 256 + 1e-6
    assert float((gates - torch.linspace(0, 1, 256)).abs().max()) < 0.12
    for part in (s, cell.gates.weight, cell.candidate.weight, cell.candidate.bias):
        assert 0.9 / 16 < float(part.detach().abs().max()) <= 1 / 16
    assert torch.isfinite(layer_of(model_of("ur-gru", d_model=1)).cell.gates.bias).all()


def test_a_lipschitz_rnn_starts_small() -> None:
    cell = start_of("lipschitz-rnn", init_std=0.5)
    for M in (cell.M_A, cell.M_W):
        assert float(M.detach().std()) == pytest.approx(0.5 / 256, rel=0.03)
    assert not torch.equal(cell.M_A, cell.M_W)


def test_a_hippo_rnn_starts_as_in_its_code() -> None:
    cell = start_of("hippo-rnn", memory=128)
    assert 0.95 < float(cell.write.weight.detach().abs().max()) / math.sqrt(3 / 512) <= 1
    for part in torch.split(cell.hidden.weight.detach(), [256, 128], dim=1):
        assert float(part.std()) == pytest.approx(math.sqrt(2 / (part.shape[1] + 256)), rel=0.02)
    assert float(cell.gate.weight.detach().std()) == pytest.approx(math.sqrt(1 / 384), rel=0.03)


def test_the_symmetric_part_has_one_minus_beta() -> None:
    """The other way round is a published mistake."""
    config: Any = config_of("lipschitz-rnn", d_model=4, beta=1, gamma=0.5, euler_step=1)
    cell: Any = build_cell(config)
    (both,) = cell.prepare()
    A, W = both.T[:4] - torch.eye(4), both.T[4:]
    for matrix in (A, W):
        torch.testing.assert_close(matrix + matrix.T, -2 * 0.5 * torch.eye(4))
        assert (matrix - matrix.T).abs().max() > 1e-3


@every_network
def test_matrices_decay_and_biases_do_not(name: str) -> None:
    for path, group in groups_of(model_of(name)).items():
        assert group == ("plain" if "bias" in path else "weights"), path


@every_network
def test_the_recurrence_keeps_its_precision_under_autocast(name: str) -> None:
    own, x, lengths = loop(name).float(), signal(40).float(), torch.tensor([40] * 3)
    expected = own(x, lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = own(x, lengths)
        step = own.step(x[:, 0], own.start(x[:, 0]))[0]
    assert torch.equal(actual, expected)
    torch.testing.assert_close(step, expected[:, 0])


@every_network
def test_half_precision_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="use autocast"):
        model_of(name).bfloat16()(*tokens(5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "mean"}, "pooling: 'mean' contradicts model 'ur-gru', which is pooling 'last'"),
        ({"prenorm": True}, "no norms around its layers"),
        ({"drop_path": 0.1}, "no residuals around its layers; set it to 0"),
    ],
)
def test_what_such_networks_do_not_have_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_model("ur-gru", LocatedValues(options, {}, "suite", ("model",)))


def test_one_layer_is_the_default() -> None:
    for name in RECURRENT:
        config = resolve_model(name, LocatedValues({}, {}, "suite"))
        assert (config.layers, config.pooling, config.prenorm, config.final_norm) == (1, "last", False, None)
