"""SGConv against its kernel written out with PyTorch's interpolation, and the norm as a part of the model."""

import copy
import math
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, groups_of, layer_of, model_of, shaken, stepped, tokens
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.config.baselines import SgConvConfig
from msbench.config.layers import LocatedValues
from msbench.config.run import resolve_model
from msbench.errors import ConfigError
from msbench.models.sgconv import SgConv, count_scales, interpolate


def conv_of(longest: int = 40, seed: int = 0, **options: Any) -> SgConv:
    config = config_of("sgconv", **{"kernel_dim": 4, **options})
    assert isinstance(config, SgConvConfig)
    torch.manual_seed(seed)
    return SgConv(config, longest).double()


def signal(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def kernel_by_hand(weights: Tensor, fading: Tensor) -> Tensor:
    """weights (scales, k, d), fading (scales, d) -> the kernel before the norm, (reach, d)."""
    parts = []
    for i, weight in enumerate(weights * fading.unsqueeze(1)):
        factor = 2 ** max(0, i - 1)
        parts.append(functional.interpolate(weight.T.unsqueeze(0), scale_factor=factor, mode="linear")[0].T)
    return torch.cat(parts)


def by_hand(conv: SgConv, x: Tensor) -> Tensor:
    """x (b, l, d), as products with matrices of all pairs of steps."""
    length, y = x.shape[1], conv.D * x
    steps = torch.arange(length)
    lags = steps.unsqueeze(1) - steps
    for side, norm in enumerate(conv.norm):
        kernel = functional.pad(kernel_by_hand(conv.kernels[:, side], conv.fading) / norm, (0, 0, 0, length))
        seen = lags if side == 0 else -lags - 1
        matrix = torch.where((seen >= 0).unsqueeze(2), kernel[seen.clamp(min=0)], 0.0)
        y = y + torch.einsum("tsd,bsd->btd", matrix, x)
    return y


@pytest.mark.parametrize("factor", [1, 2, 4, 32])
@pytest.mark.parametrize("points", [1, 2, 5])
def test_interpolation_is_that_of_torch(factor: int, points: int) -> None:
    x = signal(2, points, 3)
    expected = functional.interpolate(x.mT, scale_factor=factor, mode="linear").mT
    torch.testing.assert_close(interpolate(x, factor), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("length", [1, 2, 7, 40, 64, 90])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layer_equals_the_equations(length: int, bidirectional: bool) -> None:
    conv, x = conv_of(decay_min=0.5, decay_max=3, bidirectional=bidirectional), signal(2, length, 8)
    torch.testing.assert_close(conv(x), by_hand(conv, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_decay_and_norm_are_those_of_the_start(bidirectional: bool) -> None:
    conv = conv_of(decay_min=0.5, decay_max=3, bidirectional=bidirectional)
    decay = torch.linspace(0.5, 3, 8, dtype=torch.float64)
    torch.testing.assert_close(
        conv.fading, torch.stack([decay**left for left in (4, 3, 2, 1, 0)]), rtol=1e-6, atol=0
    )
    for side, norm in enumerate(conv.norm):
        kernel = kernel_by_hand(conv.kernels[:, side], conv.fading).detach()
        torch.testing.assert_close(norm[0], kernel.norm(dim=0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("longest", [1, 3, 4, 5, 8, 9, 64, 65, 2000])
@pytest.mark.parametrize("k", [1, 4, 64])
def test_scales_are_those_of_the_formula(longest: int, k: int) -> None:
    scales = count_scales(longest, k)
    assert scales == max(1, 1 + math.ceil(math.log2(longest / k)))
    assert k * 2 ** (scales - 1) >= longest
    assert scales == 1 or k * 2 ** (scales - 2) < longest


def test_initial_values_survive_construction() -> None:
    model = model_of("sgconv", d_model=64, layers=3)
    for index in range(3):
        core = layer_of(model, index).core
        assert float(core.kernels.detach().std()) == pytest.approx(1, rel=0.05)
        assert float(core.D.detach().std()) == pytest.approx(1, rel=0.3)
        norms = core.compute_kernel(64).detach().norm(dim=0)
        torch.testing.assert_close(norms, torch.ones(64))
    deep = layer_of(model_of("sgconv", kernel_dim=4)).core
    assert deep.fading[:, 0].tolist() == [16, 8, 4, 2, 1]


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_checkpoint_holds_the_norm(bidirectional: bool) -> None:
    """Loaded into a model from another seed, which has seen other batches: the same predictions."""
    options: dict[str, Any] = {"kernel_dim": 4, "bidirectional": bidirectional}
    model, batch = shaken(model_of("sgconv", **options).eval(), 0.5), tokens(9, 31)
    expected = model(*batch)
    other = model_of("sgconv", seed=1, **options).eval()
    other(*tokens(3))
    saved = copy.deepcopy(model.state_dict())
    assert "blocks.0.layer.core.norm" in saved
    other.load_state_dict(saved)
    assert torch.equal(other(*batch), expected)
    fresh = model_of("sgconv", seed=2, **options).eval()
    fresh.load_state_dict(saved)
    assert torch.equal(fresh(*batch), expected)


def test_the_norm_belongs_to_the_initial_weights_and_not_to_a_batch() -> None:
    one, other = model_of("sgconv", kernel_dim=4), model_of("sgconv", kernel_dim=4)
    before = layer_of(one).core.norm.clone()
    for model in (one, other):
        shaken(model, 0.5)  # no longer the weights of the start
    other(*tokens(2))
    one(*tokens(31))
    assert torch.equal(layer_of(one).core.norm, before)
    assert torch.equal(one(*tokens(20)), other(*tokens(20)))
    assert not torch.allclose(layer_of(one).core.compute_kernel(64).detach().norm(dim=0), torch.ones(8))


@pytest.mark.parametrize("length", [1, 3, 29, 90])
def test_steps_equal_the_parallel_pass(length: int) -> None:
    layer = layer_of(model_of("sgconv", kernel_dim=4)).double().eval()
    x = signal(2, length, 8)
    whole = layer(x, torch.tensor([length, length]))
    torch.testing.assert_close(stepped(layer, x), whole, rtol=1e-10, atol=1e-10)


def test_there_are_no_steps_where_the_future_is_read() -> None:
    layer = layer_of(model_of("sgconv", bidirectional=True))
    with pytest.raises(ConfigError, match="bidirectional: false"):
        layer.start(torch.zeros(2, 8))


def test_beyond_the_kernel_nothing_is_seen() -> None:
    conv, x = conv_of(), signal(1, 70, 8)
    jacobian = torch.func.jacrev(lambda value: conv(value)[0, -1, 0])(x)[0, :, 0]
    assert conv.reach == 64
    assert jacobian[:6].abs().max() < 1e-15
    assert bool((jacobian[6:].abs() > 1e-12).all())


@pytest.mark.parametrize(("d", "k", "sides"), [(128, 16, 1), (64, 4, 2), (8, 64, 1)])
def test_number_of_parameters(d: int, k: int, sides: int) -> None:
    kernels, skip, channels = count_scales(INFO.longest, k) * sides * k * d, d, d * 2 * d + 2 * d
    layer = layer_of(model_of("sgconv", d_model=d, kernel_dim=k, layers=1, bidirectional=sides == 2))
    assert models.count_parameters(layer) == kernels + skip + channels


def test_kernels_have_a_rate_of_their_own_and_decay() -> None:
    groups = groups_of(model_of("sgconv", layers=1))
    assert {name: group for name, group in groups.items() if "layer" in name} == {
        "blocks.0.layer.core.kernels": "kernels",
        "blocks.0.layer.core.D": "plain",
        "blocks.0.layer.channels.weight": "weights",
        "blocks.0.layer.channels.bias": "plain",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay_min": 3.0, "decay_max": 2.0}, r"decay_min 3\.0 is above decay_max 2\.0"),
        ({"decay_min": 0.0}, "decay_min"),
        ({"kernel_dim": 0}, "kernel_dim"),
    ],
)
def test_bad_configs_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_model("sgconv", LocatedValues(options, {}, "suite"))
