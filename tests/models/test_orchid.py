"""Orchid against transforms and circulant matrices written out, one sequence at a time."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, groups_of, layer_of, model_of, shaken, tokens
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.config.baselines import OrchidConfig
from msbench.models.orchid import ConditioningNetwork, OrchidOperator, StaticConv

D, WIDTH, LONGEST = 4, 5, 30


def options(**others: Any) -> OrchidConfig:
    config = config_of("orchid", **{"d_model": D, "kernel_width": WIDTH, "frequency": 3.0, **others})
    assert isinstance(config, OrchidConfig)
    return config


def operator(seed: int = 0, longest: int = LONGEST, **others: Any) -> OrchidOperator:
    torch.manual_seed(seed)
    return shaken(OrchidOperator(options(**others), longest).double(), 0.2)


def signal(*size: int, seed: int = 1) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normalise(x: Tensor, norm: Any) -> Tensor:
    scaled: Tensor = (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    y: Tensor = scaled * norm.weight + norm.bias
    return y


def static_kernel(conv: StaticConv, n: int) -> Tensor:
    network: Any = conv.network.layers[0]
    rows = []
    for lag in range(n):
        t = lag / (LONGEST - 1)
        bands = (
            [1e-4]
            if conv.bands == 1
            else [1e-4 + (conv.bands - 1 - 1e-4) * band / (conv.bands - 1) for band in range(conv.bands)]
        )
        angles = [2 * math.pi * lag / LONGEST * band for band in bands]
        x = torch.tensor([t, *map(math.cos, angles), *(-math.sin(a) for a in angles)], dtype=torch.float64)
        for linear in network.maps:
            x = torch.sin(network.frequency * (linear.weight @ x + linear.bias))
        fast, slow = math.log(100) / 0.3, math.log(100) / 1.5
        rates = torch.tensor([slow + (fast - slow) * c / (D - 1) for c in range(D)], dtype=torch.float64)
        rows.append(torch.exp(-rates * t) * (network.last.weight @ x))
    return torch.stack(rows)


def dynamic_kernel(network: ConditioningNetwork, z: Tensor) -> Tensor:
    """z (n, d), without padding."""
    n, size = len(z), 2 * LONGEST
    taps = network.time.weight[:, 0]
    near = functional.pad(z, (0, 0, 1, 1))
    assert network.time.bias is not None
    local = sum((taps[:, j] * near[j : j + n] for j in range(3)), network.time.bias)
    local = normalise(local, network.time_norm)
    angle = 2 * math.pi / size * torch.outer(torch.arange(LONGEST + 1), torch.arange(n)).double()
    power = ((angle.cos() @ local) ** 2 + (angle.sin() @ local) ** 2) / size
    near = functional.pad(power, (0, 0, 1, 1)).repeat_interleave(2, dim=1)
    taps = network.frequency.weight[:, 0]
    assert network.frequency.bias is not None
    response = sum((taps[:, j] * near[j : j + LONGEST + 1] for j in range(3)), network.frequency.bias)
    response = normalise(response, network.frequency_norm)
    # Of the constant and the highest frequency only the real part counts, of all others both signs.
    weights = torch.full((LONGEST + 1, 1), 2.0, dtype=torch.float64)
    weights[0] = weights[-1] = 1
    real, imaginary = weights * response[:, 0::2], weights * response[:, 1::2]
    kernel: Tensor = (angle.cos().T @ real - angle.sin().T @ imaginary) / math.sqrt(size)
    return kernel


def circulant(kernel: Tensor, x: Tensor) -> Tensor:
    """kernel and x (n, d)."""
    n = len(x)
    lags = (torch.arange(n).unsqueeze(1) - torch.arange(n)) % n
    return torch.einsum("tsd,sd->td", kernel[lags], x)


def by_hand(layer: OrchidOperator, x: Tensor) -> Tensor:
    """x (n, d): one sequence without padding."""
    n, taps = len(x), layer.short.weight
    p = x @ layer.in_proj.weight.T + layer.in_proj.bias
    assert layer.short.bias is not None
    short = layer.short.bias.expand(n, -1)
    for lag in range(taps.shape[1]):
        before = functional.pad(p, (0, 0, lag, 0))[:n]
        short = short + taps[:, lag] * before
    gate, key, value = short.split(D, dim=1)  # type: ignore[no-untyped-call]
    kernel = static_kernel(layer.static, n) + dynamic_kernel(layer.conditioning, p[:, 2 * D :])
    s, root = key * value, math.sqrt(LONGEST)
    y = gate * (circulant(kernel, s) / root + layer.static.skip * s)
    y = y + circulant(static_kernel(layer.remaining, n), x) / root + layer.remaining.skip * x
    out: Tensor = y @ layer.out_proj.weight.T + layer.out_proj.bias
    return out


@pytest.mark.parametrize("others", [{}, {"bands": 4, "kernel_depth": 1, "kernel": 5}])
def test_operator_and_gradients_equal_circulant_matrices(others: dict[str, Any]) -> None:
    """Each sequence alone, next to one ten times as long, and whatever the outputs in the padding are."""
    layer, lengths = operator(**others), [3, LONGEST, 1, 17]
    x, weights = signal(4, LONGEST, D), signal(4, LONGEST, D, seed=2)
    for row, length in enumerate(lengths):
        x[row, length:] = 0
        weights[row, length:] = 0
    x.requires_grad_()
    y = layer(x, torch.tensor(lengths))
    expected = [by_hand(layer, row[:n]) for row, n in zip(x, lengths, strict=True)]
    for row, n in enumerate(lengths):
        torch.testing.assert_close(y[row, :n], expected[row], rtol=1e-10, atol=1e-10)
    parameters = [x, *layer.parameters()]
    found = torch.autograd.grad((y * weights).sum(), parameters)
    total = torch.stack([(e * weights[row, : len(e)]).sum() for row, e in enumerate(expected)]).sum()
    for got, want in zip(found, torch.autograd.grad(total, parameters), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def test_more_padding_changes_nothing_even_beyond_the_longest() -> None:
    layer, x, lengths = operator(), signal(1, 9, D), torch.tensor([9])
    y = layer(x, lengths)
    for more in (1, 21, 100):
        padded = layer(functional.pad(x, (0, 0, 0, more)), lengths)[:, :9]
        torch.testing.assert_close(padded, y, rtol=1e-11, atol=1e-11)


def test_a_shifted_sequence_has_the_same_dynamic_kernel_and_another_one_has_not() -> None:
    """The power of a spectrum does not move; without biases, which act on the zeros around it too."""
    network, lengths = operator().conditioning, torch.tensor([LONGEST])
    with torch.no_grad():
        for bias in (network.time.bias, network.time_norm.bias):
            assert bias is not None
            bias.zero_()
    x, other = (torch.zeros(1, LONGEST, D, dtype=torch.float64) for _ in range(2))
    x[:, 5:20], other[:, 5:20] = signal(1, 15, D), signal(1, 15, D, seed=3)
    kernel = network(x, lengths)
    torch.testing.assert_close(network(x.roll(4, 1), lengths), kernel, rtol=1e-9, atol=1e-9)
    assert (network(other, lengths) - kernel).abs().max() > 1e-3 * kernel.abs().max()


def test_everything_is_seen_from_everywhere() -> None:
    layer, x, lengths = operator(), signal(1, 12, D), torch.tensor([12])
    jacobian = torch.func.jacrev(lambda x: layer(x, lengths)[0, 5])(x)[:, 0]
    assert bool((jacobian.abs().amax((0, 2)) > 1e-9).all())
    assert not models.find_family("orchid").is_causal(options())


def test_kernels_stay_in_full_precision_under_autocast() -> None:
    layer = operator().float()
    z, lengths = signal(2, LONGEST, D).float(), torch.tensor([LONGEST, 7])
    expected = layer.static.compute_kernel(9), layer.conditioning(z, lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer.static.compute_kernel(9), layer.conditioning(z, lengths)
        assert bool(layer(z, lengths).isfinite().all())
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)


@pytest.mark.parametrize("longest", [1, 2])
def test_tasks_of_one_position_have_kernels(longest: int) -> None:
    layer = operator(longest=longest)
    assert bool(layer(signal(2, longest, D), torch.tensor([1, longest])).isfinite().all())


def test_initial_values_survive_construction() -> None:
    layer = layer_of(model_of("orchid", d_model=64, kernel_width=32, frequency=10))
    for conv in (layer.static, layer.remaining):
        network = conv.network.layers[0]
        assert torch.equal(network.frequency, torch.full((32,), 10.0))
        assert float(conv.skip.detach().std()) == pytest.approx(1, rel=0.3)
        assert 0.9 * 32**-0.5 < float(network.last.weight.detach().abs().max()) <= 32**-0.5
    bound = 64**-0.5
    assert 0.98 * bound < float(layer.in_proj.weight.detach().abs().max()) <= bound


@pytest.mark.parametrize(
    ("d", "width", "depth", "bands", "kernel"), [(128, 64, 2, 1, 3), (16, 8, 1, 16, 5), (8, 4, 0, 2, 1)]
)
def test_number_of_parameters(d: int, width: int, depth: int, bands: int, kernel: int) -> None:
    """The source's, without the positions, which are fixed here: e of each of the longest, twice."""
    e = 1 + 2 * bands
    network = width * (e + 2) + depth * (width**2 + width) + width * d
    expected = 4 * d * d + 4 * d + 3 * d * (kernel + 1) + 2 * network + 2 * d + 18 * d
    shape = {"kernel_width": width, "kernel_depth": depth, "bands": bands, "kernel": kernel}
    model = model_of("orchid", d_model=d, layers=1, **shape)
    assert models.count_parameters(layer_of(model)) == expected
    longer = models.build(
        "orchid", config_of("orchid", d_model=d, layers=1, **shape), replace(INFO, longest=80), 0
    )
    assert models.count_parameters(layer_of(longer)) == expected


def test_matrices_decay_and_norms_skips_and_frequencies_do_not() -> None:
    groups = groups_of(model_of("orchid", layers=1, kernel_width=WIDTH, positions="none"))
    for name, group in groups.items():
        decays = name.endswith("weight") and "norm" not in name
        assert group == ("weights" if decays else "plain"), name


def test_checkpoints_hold_no_kernel_and_give_the_same_bits() -> None:
    model = shaken(model_of("orchid", kernel_width=WIDTH).eval(), 0.2)
    batch = tokens(9, INFO.longest, 1)
    expected = model(*batch)
    assert torch.equal(model(*batch), expected)
    other = model_of("orchid", kernel_width=WIDTH, seed=1).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(*batch), expected)
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize(
    ("given", "message"),
    [({"kernel": 0}, "kernel"), ({"bands": 0}, "bands"), ({"mlp_expand": 0.01}, "mlp_expand 0.01 times")],
)
def test_bad_configs_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("orchid", **given)
