"""MultiResNet against its equations with PyTorch's own dilated convolutions, in double precision."""

import math
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, groups_of, layer_of, model_of, stepped, tokens
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.config.baselines import MultiResNetConfig
from msbench.config.layers import LocatedValues
from msbench.config.run import resolve_model
from msbench.errors import ConfigError
from msbench.models.layers import Padding
from msbench.models.multiresnet import MultiResConv, compute_depth


def conv_of(depth: int, seed: int = 0, **options: Any) -> MultiResConv:
    config = config_of("multiresnet", **options)
    assert isinstance(config, MultiResNetConfig)
    torch.manual_seed(seed)
    return MultiResConv(config, depth).double()


def signal(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def by_hand(conv: MultiResConv, x: Tensor, depth: int) -> Tensor:
    """Scale after scale with padded, dilated, grouped convolutions; x (b, l, d)."""
    d, taps = x.shape[2], conv.filters.shape[1]
    # PyTorch's filters are the other way round.
    low, high = (side.T.flip(1).unsqueeze(1) for side in conv.filters)
    y, approximation = conv.mixing[0] * x, x.mT
    for scale in range(depth):
        padded = functional.pad(approximation, ((taps - 1) * 2**scale, 0))
        detail = functional.conv1d(padded, high, dilation=2**scale, groups=d)
        approximation = functional.conv1d(padded, low, dilation=2**scale, groups=d)
        y = y + conv.mixing[scale + 1] * detail.mT
    return y + conv.mixing[-1] * approximation.mT


@pytest.mark.parametrize("taps", [2, 3, 4, 5])
@pytest.mark.parametrize("depth", [1, 3, 6])
@pytest.mark.parametrize("length", [1, 2, 29, 65, 130])
def test_layer_equals_the_equations(taps: int, depth: int, length: int) -> None:
    conv, x = conv_of(depth, kernel=taps), signal(2, length, 8)
    torch.testing.assert_close(conv(x), by_hand(conv, x, depth), rtol=1e-12, atol=1e-12)


def test_gradients_equal_those_of_the_equations() -> None:
    conv, x = conv_of(4, kernel=3), signal(2, 37, 8).requires_grad_()
    arguments = [x, *conv.parameters()]
    ours = torch.autograd.grad(conv(x).square().sum(), arguments)
    theirs = torch.autograd.grad(by_hand(conv, x, 4).square().sum(), arguments)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_the_block_around_it() -> None:
    model = model_of("multiresnet", layers=1, kernel=3).double().eval()
    block: Any = model.blocks[0]
    x, lengths = signal(2, 9, 8), torch.tensor([9, 9])
    inner = functional.gelu(by_hand(block.layer.core, x, block.layer.core.depth))
    signalled, gate = block.layer.channels(inner).chunk(2, dim=-1)
    expected = block.norm(x + signalled * torch.sigmoid(gate))
    torch.testing.assert_close(block.layer(x, lengths), signalled * torch.sigmoid(gate))
    torch.testing.assert_close(block(x, Padding.from_lengths(lengths, 9, torch.float64)), expected)
    assert model.final_norm is None


@pytest.mark.parametrize("taps", [2, 3, 4, 7])
def test_depth_is_that_of_the_formula(taps: int) -> None:
    for longest in range(2, 3000, 7):
        depth = compute_depth(longest, taps)
        assert depth == max(1, math.ceil(math.log2((longest - 1) / (taps - 1) + 1) - 1e-12))
        assert (taps - 1) * (2**depth - 1) + 1 >= longest
    assert compute_depth(1, taps) == 1


@pytest.mark.parametrize(("longest", "taps", "depth"), [(2000, 4, 10), (1024, 2, 10), (1000, 2, 10)])
def test_published_depths(longest: int, taps: int, depth: int) -> None:
    assert compute_depth(longest, taps) == depth


def test_the_first_step_is_seen_from_the_last_of_the_longest_sequence() -> None:
    model = model_of("multiresnet", layers=1)
    core = layer_of(model).core
    assert core.depth == 6  # 40 steps
    assert core.compute_kernel(INFO.longest).shape == (40, 8)
    assert bool((core.compute_kernel(INFO.longest)[-1] != 0).all())
    assert core.compute_kernel(1000).shape == (64, 8)


def test_initial_values_survive_construction() -> None:
    model = model_of("multiresnet", d_model=256, layers=3, kernel=4, depth=6)
    for index in range(3):
        core = layer_of(model, index).core
        filters, mixing = core.filters.detach(), core.mixing.detach()
        assert 0.49 < float(filters.abs().max()) <= 0.5
        assert 0.98 / math.sqrt(8) < float(mixing.abs().max()) <= 1 / math.sqrt(8)
        assert float(mixing.std()) == pytest.approx(1 / math.sqrt(24), rel=0.1)
    own = layer_of(model_of("multiresnet", d_model=256, kernel=4, depth=6, independent_skip=True)).core
    skip, others = own.mixing.detach()[0], own.mixing.detach()[1:]
    assert 0.95 < float(skip.abs().max()) <= 1
    assert float(others.abs().max()) <= 1 / math.sqrt(8)


@pytest.mark.parametrize(("d", "taps", "depth"), [(128, 4, 10), (256, 2, 10), (16, 3, 2)])
def test_number_of_parameters(d: int, taps: int, depth: int) -> None:
    filters, mixing, channels = 2 * taps * d, (depth + 2) * d, d * 2 * d + 2 * d
    layer = layer_of(model_of("multiresnet", d_model=d, kernel=taps, depth=depth, layers=1))
    assert models.count_parameters(layer) == filters + mixing + channels


def test_filters_and_weights_decay_as_in_the_source_and_biases_do_not() -> None:
    model = model_of("multiresnet", layers=1)
    assert groups_of(model) == {
        "encoder.embedding.weight": "weights",
        "blocks.0.norm.weight": "plain",
        "blocks.0.norm.bias": "plain",
        "blocks.0.layer.core.filters": "weights",
        "blocks.0.layer.core.mixing": "weights",
        "blocks.0.layer.channels.weight": "weights",
        "blocks.0.layer.channels.bias": "plain",
        "head.weight": "weights",
        "head.bias": "plain",
    }


@pytest.mark.parametrize("length", [1, 3, 29, 70])
def test_steps_equal_the_parallel_pass(length: int) -> None:
    layer = layer_of(model_of("multiresnet", kernel=3, depth=4)).double().eval()
    x = signal(2, length, 8)
    whole = layer(x, torch.tensor([length, length]))
    torch.testing.assert_close(stepped(layer, x), whole, rtol=1e-10, atol=1e-10)


def test_steps_keep_their_precision_under_autocast() -> None:
    conv, x = conv_of(4).float(), signal(2, 8).float()
    state = conv.start(x)
    expected = conv.step(x, state)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(conv.step(x, conv.start(x))[0], expected)


def test_the_layer_is_causal() -> None:
    conv, x = conv_of(5), signal(1, 24, 8)
    jacobian = torch.func.jacrev(lambda value: conv(value)[0, :, 0])(x)[:, 0, :, 0]
    assert jacobian.triu(1).abs().max() < 1e-15
    for t, row in enumerate(jacobian):
        expected = conv.compute_kernel(24)[: t + 1, 0].flip(0)
        torch.testing.assert_close(row[: t + 1], expected, rtol=0, atol=1e-15)


def test_kernel_keeps_its_precision_under_autocast() -> None:
    conv = conv_of(5).float()
    expected = conv.compute_kernel(30)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(conv.compute_kernel(30), expected)


def test_depth_follows_the_task_and_not_the_batch() -> None:
    model = model_of("multiresnet").eval()
    inputs, lengths = tokens(3, INFO.longest + 60)
    together = model(inputs, lengths)
    alone = model(inputs[:1, :3], lengths[:1])
    torch.testing.assert_close(together[:1], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": 1}, r"kernel.*greater than or equal to 2"),
        ({"depth": 31}, "depth.*30"),
        ({"depth": 0}, "depth"),
    ],
)
def test_bad_configs_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_model("multiresnet", LocatedValues(options, {}, "suite"))
