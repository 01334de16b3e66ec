"""Layers one position at a time: the outputs of a whole sequence, from states that are never written to."""

from typing import Any

import pytest
import torch
from model_cases import TOKEN_MODELS, config_of, model_of, stepped
from torch import Tensor

from msbench import models
from msbench.config.selective import MambaConfig
from msbench.environment import use_deterministic
from msbench.models.layers import Recurrent, start_layer, step_layer
from msbench.models.mamba import MambaBlock
from msbench.models.selective import ShortConv, start_scan, step_scan
from msbench.ops.scan.reference import selective_scan_reference

LENGTHS = (1, 3, 29, 30, 64)


def normal(*size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(0), dtype=dtype)


def block_of(**options: Any) -> MambaBlock:
    config = config_of("mamba", **{"state": 5, **options})
    assert isinstance(config, MambaConfig)
    torch.manual_seed(1)
    return MambaBlock(config)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kernel", [1, 2, 4, 8])
@pytest.mark.parametrize("bias", [True, False])
def test_a_short_convolution_steps(kernel: int, bias: bool, length: int) -> None:
    conv = ShortConv(3, kernel, bias=bias).double()
    x = normal(2, length, 3)
    assert conv.start(x[:, 0]).shape == (2, kernel - 1, 3)
    torch.testing.assert_close(stepped(conv, x), conv(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("discretisation", ["euler", "raw"])
@pytest.mark.parametrize("skip", [True, False])
def test_a_scan_steps(discretisation: Any, skip: bool) -> None:
    u, dt = normal(2, 17, 3, 4), normal(2, 17, 3, 4).abs()
    A, B, C = -normal(3, 4, 5).abs(), normal(2, 17, 3, 5), normal(2, 17, 3, 5)
    D = normal(3, 4) if skip else None
    state, outputs = start_scan(u[:, 0], 5), []
    for t in range(17):
        y, state = step_scan(
            u[:, t], dt[:, t], A, B[:, t], C[:, t], D, state=state, discretisation=discretisation
        )
        outputs.append(y)
    expected = selective_scan_reference(u, dt, A, B, C, D, discretisation=discretisation)
    torch.testing.assert_close(torch.stack(outputs, 1), expected, rtol=1e-12, atol=1e-12)


def test_a_scan_keeps_states_in_full_precision() -> None:
    u = normal(2, 1, 3, dtype=torch.bfloat16)
    state = start_scan(u, 4)
    y, after = step_scan(
        u,
        u.abs().float(),
        -torch.ones(1, 3, 4),
        u[:, :, :1].expand(-1, -1, 4),
        u[:, :, :1],
        None,
        state=state,
    )
    assert (state.dtype, after.dtype, y.dtype) == (torch.float32, torch.float32, torch.bfloat16)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("options", [{}, {"conv_bias": False, "skip": False}, {"kernel": 1, "dt_rank": 3}])
def test_mambas_block_steps(options: dict[str, Any], length: int) -> None:
    block = block_of(**options).double()
    x = normal(2, length, 8)
    torch.testing.assert_close(
        stepped(block, x), block(x, torch.tensor([length] * 2)), rtol=1e-10, atol=1e-10
    )


def test_mambas_block_steps_in_single_precision_over_a_thousand_positions() -> None:
    block, x = block_of(state=16), normal(1, 1000, 8, dtype=torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(stepped(block, x), block(x, torch.tensor([1000])), rtol=1e-4, atol=1e-6)


def test_two_identical_loops_are_bit_equal_and_no_state_is_written() -> None:
    block, x = block_of(), normal(2, 9, 8, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(stepped(block, x), stepped(block, x))


def test_states_follow_autocast() -> None:
    block, x = block_of(), normal(2, 9, 8, dtype=torch.float32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(stepped(block, x), block(x, torch.tensor([9, 9])), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_steps_read_nothing_that_was_not_written(name: str) -> None:
    model = model_of(name).eval()
    blocks: list[Any] = list(model.blocks)
    layers: list[Any] = [block.layer for block in blocks if isinstance(block.layer, Recurrent)]
    x = normal(2, 9, 8, dtype=torch.float32)
    # Memory is filled with NaN in there when it is handed out: a state that nobody sets would show.
    with torch.no_grad(), use_deterministic("cpu"):
        for layer in layers:
            one, two = (step_layer(layer, x, start_layer(layer, x[:, 0]))[0] for _ in range(2))
            assert bool(one.isfinite().all())
            assert torch.equal(one, two)
    # Each step of CKConv would take as many matrices as it has positions behind it.
    assert layers or name == "ckconv" or not models.find_family(name).is_causal(model.config)
