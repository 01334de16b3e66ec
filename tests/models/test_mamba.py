"""Mamba's block against the equations written out in NumPy, one number at a time."""

import numpy as np
import pytest
import torch
from model_cases import config_of, layer_of, model_of, tokens
from numpy.typing import NDArray

from msbench.config.selective import MambaConfig
from msbench.models.mamba import MambaBlock
from msbench.ops.scan.fused import low_rank_scan

Array = NDArray[np.float64]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def by_hand(p: dict[str, Array], u: Array, rank: int, states: int) -> Array:
    """One sequence u (l, d) through the block, from its parameters by name."""
    xz = u @ p["in_proj.weight"].T
    width = xz.shape[1] // 2
    x_raw, z = xz[:, :width], xz[:, width:]
    taps = p["conv.weight"]
    state, out = np.zeros((width, states)), []
    A = -np.exp(p["A_log"])
    for t in range(len(u)):
        x = np.zeros(width) + p.get("conv.bias", 0.0)
        for lag in range(min(taps.shape[1], t + 1)):
            x = x + taps[:, lag] * x_raw[t - lag]
        x = x * sigmoid(x)
        row = p["x_proj.weight"] @ x
        low, B, C = row[:rank], row[rank : rank + states], row[rank + states :]
        dt = np.log1p(np.exp(p["dt.weight"][0] @ low + p["dt.bias"][0]))
        state = np.exp(dt[:, None] * A) * state + dt[:, None] * x[:, None] * B[None]
        y = state @ C + p["D"][0] * x if "D" in p else state @ C
        out.append(p["out_proj.weight"] @ (y * z[t] * sigmoid(z[t])))
    return np.stack(out)


@pytest.mark.parametrize("length", [1, 3, 29, 64])
@pytest.mark.parametrize("options", [{}, {"conv_bias": False, "skip": False}, {"kernel": 7, "dt_rank": 2}])
def test_block_equals_the_equations(length: int, options: dict[str, int | bool]) -> None:
    config = config_of("mamba", state=5, **options)
    assert isinstance(config, MambaConfig)
    torch.manual_seed(length)
    block = MambaBlock(config).double()
    u = torch.randn(2, length, config.d_model, dtype=torch.float64)
    actual = block(u, torch.tensor([length, length])).detach().numpy()
    parameters = {name: value.detach().numpy() for name, value in block.named_parameters()}
    for row in range(2):
        expected = by_hand(parameters, u[row].numpy(), config.dt_rank or 1, config.state)
        np.testing.assert_allclose(actual[row], expected, rtol=1e-9, atol=1e-12)


def test_scan_and_step_sizes_keep_their_precision_under_autocast() -> None:
    block = layer_of(model_of("mamba", state=4))
    source = torch.Generator().manual_seed(0)
    u, low = (torch.randn(2, 6, 1, size, generator=source) for size in (16, 1))
    B, C = (torch.randn(2, 6, 1, 4, generator=source) for _ in range(2))
    arguments = (u, low, *block.dt.get_affine(), -torch.exp(block.A_log).unsqueeze(0), B, C)
    expected = low_rank_scan(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = low_rank_scan(*arguments)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, expected)


def test_drift_of_bf16_over_4096_steps_is_bounded() -> None:
    model = model_of("mamba", state=16, pooling="last").eval()
    inputs, lengths = tokens(4096)
    with torch.no_grad():
        exact = model(inputs, lengths)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = model(inputs, lengths)
    assert float((rough - exact).abs().max() / exact.abs().max()) < 0.02
