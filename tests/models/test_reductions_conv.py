"""MultiResNet is the MS-SSM without SSMs, with one pair of filters for all levels and constant weights.

The two are computed in different ways: here the batch is split into streams and mixed, there one kernel is
computed and applied by FFT.
"""

from typing import Any

import pytest
import torch
from model_cases import config_of
from torch import Tensor

from msbench.config.baselines import MultiResNetConfig
from msbench.config.selective import MsSsmConfig
from msbench.models.blocks import GluBlock
from msbench.models.ms_ssm import MultiScale, build_block
from msbench.models.multiresnet import MultiResConv

WIDTH = 8


def pair(depth: int, taps: int, **options: Any) -> tuple[MultiResConv, MsSsmConfig]:
    theirs = config_of("multiresnet", d_model=WIDTH, kernel=taps)
    ours = config_of(
        "msssm-s6",
        d_model=WIDTH,
        levels=depth,
        kernel=taps,
        ssm="none",
        mixer="static",
        mixer_channels="per-channel",
        mixer_init="default",
        **options,
    )
    assert isinstance(theirs, MultiResNetConfig)
    assert isinstance(ours, MsSsmConfig)
    torch.manual_seed(depth)
    return MultiResConv(theirs, depth).double(), ours


def copied(conv: MultiResConv, core: MultiScale) -> MultiScale:
    """`core` with the weights of `conv`; nothing else is in it."""
    filters = conv.filters.expand(conv.depth, -1, -1, -1)
    core.load_state_dict({"decomposition.filters": filters, "mixer.weight": conv.mixing})
    return core


def signal(length: int) -> Tensor:
    source = torch.Generator().manual_seed(length)
    return torch.randn(3, length, WIDTH, generator=source, dtype=torch.float64)


@pytest.mark.parametrize("length", [1, 2, 33, 100, 257])
@pytest.mark.parametrize(("depth", "taps"), [(1, 2), (3, 4), (6, 2), (9, 3)])
def test_multiresnet_is_ms_ssm_without_ssms(depth: int, taps: int, length: int) -> None:
    conv, config = pair(depth, taps)
    core, x = copied(conv, MultiScale(config, WIDTH).double()), signal(length)
    torch.testing.assert_close(conv(x), core(x), rtol=1e-12, atol=1e-12)


def test_gradients_agree_where_levels_share_their_filters() -> None:
    conv, config = pair(5, 3)
    core = copied(conv, MultiScale(config, WIDTH).double())
    x, weights = signal(61), signal(61).flip(1)
    ours = torch.autograd.grad((core(x) * weights).sum(), list(core.parameters()))
    theirs = torch.autograd.grad((conv(x) * weights).sum(), [conv.filters, conv.mixing])
    by_name = dict(zip((name for name, _ in core.named_parameters()), ours, strict=True))
    torch.testing.assert_close(by_name["decomposition.filters"].sum(0), theirs[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(by_name["mixer.weight"], theirs[1], rtol=1e-11, atol=1e-11)


def test_so_are_the_blocks_around_them_but_for_a_bias() -> None:
    conv, config = pair(4, 2, block="glu")
    ours: Any = build_block(config).double()
    copied(conv, ours.core)
    theirs: Any = GluBlock(config, conv).double()
    with torch.no_grad():
        theirs.channels.weight.copy_(ours.channels.weight)
        theirs.channels.bias.zero_()
    x, lengths = signal(50), torch.tensor([50, 50, 50])
    torch.testing.assert_close(theirs(x, lengths), ours(x, lengths), rtol=1e-12, atol=1e-12)


def test_other_filters_on_one_level_make_another_model() -> None:
    conv, config = pair(4, 2)
    core, x = copied(conv, MultiScale(config, WIDTH).double()), signal(40)
    with torch.no_grad():
        core.get_parameter("decomposition.filters")[2] += 0.1
    assert (core(x) - conv(x)).abs().max() > 1e-3
