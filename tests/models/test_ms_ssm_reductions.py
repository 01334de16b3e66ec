"""MS-SSM with parts removed: Mamba's scan, MultiResNet, a wavelet transform."""

from typing import Any

import numpy as np
import pytest
import pywt
import torch
from model_cases import config_of, layer_of, model_of
from ms_ssm_cases import core_of, ms_config, signal
from numpy.typing import NDArray

from msbench import models
from msbench.config.selective import MambaConfig
from msbench.models.mamba import MambaBlock
from msbench.models.ms_ssm import GatedBlock, MultiScale
from msbench.models.streams import Decomposition

Array = NDArray[np.float64]


def mambas(block: MambaBlock) -> dict[str, torch.Tensor]:
    """The parameters of Mamba's block by the names that MS-SSM's gated block has for them."""
    moved = {"x_proj.weight": "core.scan.x_proj", "out_proj.weight": "out_proj.weight"}
    names = {"in_proj.weight": "in_proj.weight", "A_log": "core.scan.A_log", "D": "core.scan.D", **moved}
    names |= {f"conv.{part}": f"core.decomposition.conv.{part}" for part in ("weight", "bias")}
    names |= {f"dt.{part}": f"core.scan.dt.{part}" for part in ("weight", "bias")}
    return {names[name]: value for name, value in block.state_dict().items()}


def mamba_of(seed: int = 0) -> MambaBlock:
    config = config_of("mamba", state=5)
    assert isinstance(config, MambaConfig)
    torch.manual_seed(seed)
    return MambaBlock(config).double()


MAMBAS_CHOICES: dict[str, Any] = {
    "decomposition": "shared-conv",
    "conv_bias": True,
    "conv_activation": "silu",
    "parameters_from": "stream",
}


@pytest.mark.parametrize("mixer", ["static", "linear"])
def test_one_stream_with_mambas_choices_is_mamba(mixer: str) -> None:
    mamba, block = mamba_of(), GatedBlock(ms_config(levels=0, state=5, mixer=mixer, **MAMBAS_CHOICES))
    block = block.double()
    missing = block.load_state_dict(mambas(mamba), strict=False)
    assert not missing.unexpected_keys
    assert all("mixer" in key for key in missing.missing_keys)
    u, lengths = signal(17, 8), torch.tensor([17, 17])
    torch.testing.assert_close(block(u, lengths), mamba(u, lengths), rtol=1e-12, atol=1e-12)


def test_no_levels_and_one_stream_is_mambas_scan() -> None:
    """The paper's own choices, B, C and step sizes from x, on what Mamba's convolution leaves."""
    mamba, core = mamba_of(), MultiScale(ms_config(levels=0, state=5), 16).double()
    weights = {name.removeprefix("core."): value for name, value in mambas(mamba).items() if "scan" in name}
    missing = core.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys
    assert missing.missing_keys == ["mixer.weight", "mixer.bias"]
    u, lengths = signal(33, 8), torch.tensor([33, 33])
    expanded, gate = mamba.in_proj(u).chunk(2, dim=-1)
    x = mamba.conv(expanded)
    expected = mamba(u, lengths)
    actual = mamba.out_proj(core(x) * torch.nn.functional.silu(gate))
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def multiresnet(x: Array, low: Array, high: Array, weights: Array) -> Array:
    """One channel of MultiResNet's layer (Shi et al. 2023): y = sum_s w_s d^s + w_0 a^S + w_-1 x.

    One pair of filters serves all levels. `weights` are those of x, d^1 .. d^S, a^S, in our order.
    """

    def filtered(a: Array, taps: Array, dilation: int) -> Array:
        y = np.zeros_like(a)
        for lag, tap in enumerate(taps):
            shift = lag * dilation
            y[shift:] += tap * a[: len(a) - shift] if shift < len(a) else 0.0
        return y

    a, y = x, np.array(weights[0] * x)
    for level in range(len(weights) - 2):
        y += weights[level + 1] * filtered(a, high, 2**level)
        a = filtered(a, low, 2**level)
    y += weights[-1] * a
    return y


@pytest.mark.parametrize("kernel", [2, 4])
@pytest.mark.parametrize("length", [5, 64])
def test_shared_filters_and_constant_weights_without_ssms_are_multiresnet(length: int, kernel: int) -> None:
    options: dict[str, Any] = {"mixer": "static", "mixer_channels": "per-channel", "levels": 4}
    core, x = core_of("msssm-no-ssm", kernel=kernel, **options), signal(length)
    filters = core.decomposition.filters
    assert filters is not None
    with torch.no_grad():
        filters.copy_(filters[:1].expand_as(filters))
    low, high = filters[0].detach().numpy()
    weights, y = core.mixer.weight.detach().numpy(), core(x).detach().numpy()
    for row, channel in np.ndindex(2, 6):
        one = x[row, :, channel].numpy()
        expected = multiresnet(one, low[:, channel], high[:, channel], weights[:, channel])
        np.testing.assert_allclose(y[row, :, channel], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wavelet", ["haar", "db2", "sym4"])
def test_fixed_filters_make_the_streams_of_pywavelets(wavelet: str) -> None:
    taps, levels, length = pywt.Wavelet(wavelet), 3, 64
    kernel = taps.dec_len
    part = Decomposition(ms_config(levels=levels, kernel=kernel), 6).double()
    assert part.filters is not None
    with torch.no_grad():
        part.filters.copy_(torch.tensor([taps.dec_lo, taps.dec_hi], dtype=torch.float64).view(1, 2, -1, 1))
    x = signal(length)
    streams = part(x).detach().numpy()
    # Coarsest first; circular, and centred where ours is causal.
    transform = pywt.swt(x.numpy(), wavelet, level=levels, norm=False, axis=1)[::-1]
    for s, (low, high) in enumerate(transform, start=1):
        settled, shift = (kernel - 1) * (2**s - 1), kernel // 2 * (2**s - 1)
        np.testing.assert_allclose(
            streams[:, settled:, s], np.roll(high, shift, axis=1)[:, settled:], atol=1e-12
        )
        if s == levels:
            np.testing.assert_allclose(
                streams[:, settled:, -1], np.roll(low, shift, axis=1)[:, settled:], atol=1e-12
            )


def gated_count(d: int, **options: Any) -> int:
    return models.count_parameters(layer_of(model_of("msssm-s6", d_model=d, layers=1, state=128, **options)))


d, i, m, k, r, n = 128, 256, 5, 4, 8, 128
"""Widths, streams, taps, the rank of the step sizes and states of the base block, see test_models.py."""


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"mixer_channels": "per-channel"}, i * i * m + i * m - (i * m + m)),
        ({"mixer_channels": "low-rank"}, r * (i + i * m) + i * m - (i * m + m)),
        ({"mixer_bias": False, "mixer_init": "default"}, -m),
        ({"mixer": "static"}, -i * m),
        ({"mixer": "static", "mixer_channels": "per-channel"}, -m),
        ({"raw_input": "token"}, (d - i) * (m * r + 2 * n + m)),
        ({"raw_input": "sum"}, 0),
        ({"input_conv": True}, k * i + i),
        ({"step_sizes": "shared"}, -(m - 1) * (r * i + r * i + i)),
        ({"decomposition": "shared-conv"}, k * i - 3 * 2 * k * i),
        ({"decomposition": "none"}, -3 * 2 * k * i),
        ({"ssm": "none"}, -((m * r + 2 * n) * i + m * r * i + m * i + i * n + m * i)),
        ({"skip": False}, -m * i),
        ({"raw_stream": False}, -(r * i + r * i + i + i + i + 1)),
    ],
    ids=str,
)
def test_an_option_adds_the_parameters_of_its_formula(options: dict[str, Any], more: int) -> None:
    assert gated_count(d, **options) - gated_count(d) == more
