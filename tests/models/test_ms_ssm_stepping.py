"""MS-SSM one position at a time, in every option, against the parallel pass."""

from typing import Any

import pytest
import torch
from model_cases import leaves, shaken, stepped
from ms_ssm_cases import ms_config
from torch import Tensor

from msbench.models.layers import Recurrent
from msbench.models.ms_ssm import build_block
from msbench.models.streams import Decomposition

FLAVOURS = ("s4", "s4d", "s4-dplr")
OPTIONS: list[dict[str, Any]] = [
    {},
    {"levels": 0},
    {"levels": 3, "kernel": 3},
    {"kernel": 1},
    {"state": 3, "skip": False},
    {"raw_stream": False},
    {"conv_bias": True, "conv_activation": "silu"},
    {"decomposition": "shared-conv", "conv_bias": True, "conv_activation": "silu"},
    {"decomposition": "none"},
    {"parameters_from": "stream"},
    {"ssm_input": "raw", "parameters_from": "stream", "block": "glu"},
    {"input_discretisation": "raw"},
    {"raw_input": "token"},
    {"raw_input": "token", "parameters_from": "stream"},
    {"raw_input": "sum"},
    {"raw_input": "sum", "step_sizes": "shared", "state": 7},
    {"raw_input": "sum", "ssm": "s4", "block": "vit"},
    {"input_conv": True},
    {"input_conv": True, "kernel": 1, "raw_input": "token", "step_sizes": "shared"},
    {"mixer": "softmax"},
    {"mixer": "softmax", "mixer_channels": "per-channel", "block": "vit"},
    {"mixer": "static"},
    {"mixer": "static", "mixer_channels": "per-channel"},
    {"mixer_channels": "low-rank", "mixer_rank": 2},
    {"mixer_channels": "per-channel", "mixer_bias": False, "mixer_init": "default"},
    {"ssm": "none"},
    {"ssm": "none", "decomposition": "shared-conv", "block": "glu"},
    {"ssm": "none", "mixer": "static", "mixer_channels": "per-channel", "block": "vit"},
    {"ssm": "s4"},
    {"ssm": "s4", "learned_b": True, "state": 3, "block": "glu"},
    {"ssm": "s4", "mixer_channels": "per-channel", "skip": False},
    {"ssm": "s4", "decomposition": "shared-conv", "block": "vit"},
    {"ssm": "s4d", "state": 12},
    {"ssm": "s4d", "state": 8, "decomposition": "shared-conv", "block": "glu", "skip": False},
    {"ssm": "s4-dplr", "state": 12},
    {"ssm": "s4-dplr", "state": 4, "levels": 0, "mixer": "static", "block": "vit"},
]


def block_of(**options: Any) -> Any:
    torch.manual_seed(2)
    return shaken(build_block(ms_config(**options)))


def normal(length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, length, 8, generator=torch.Generator().manual_seed(0), dtype=dtype)


def parallel(layer: Any, x: Tensor) -> Tensor:
    y: Tensor = layer(x, torch.tensor([x.shape[1]] * len(x)))
    return y


@pytest.mark.parametrize("length", [1, 3, 29, 64])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_steps_are_the_parallel_pass(options: dict[str, Any], length: int) -> None:
    layer: Any = block_of(**options).double()
    x = normal(length)
    assert isinstance(layer, Recurrent)
    with torch.no_grad():
        torch.testing.assert_close(stepped(layer, x), parallel(layer, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("ssm", ["s6", *FLAVOURS])
def test_a_thousand_steps_in_single_precision(ssm: str) -> None:
    layer, x = block_of(ssm=ssm, levels=3, state=12), normal(1000, torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(stepped(layer, x), parallel(layer, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ssm", ["s6", *FLAVOURS, "none"])
def test_steps_follow_autocast(ssm: str) -> None:
    layer, x = block_of(ssm=ssm, state=12), normal(12, torch.float32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(stepped(layer, x), parallel(layer, x), rtol=3e-2, atol=3e-2)
        state = layer.step(x[:, 0], layer.start(x[:, 0]))[1]
    real, complex_ = {torch.float32}, {torch.complex64}
    expected = {"s6": real, "s4": real, "s4d": complex_, "s4-dplr": real, "none": set()}
    _window, (_past, h) = state
    assert {leaf.dtype for leaf in leaves(h)} == expected[ssm]


@pytest.mark.parametrize(
    "options", [{}, *({"ssm": kind} for kind in FLAVOURS), {"decomposition": "shared-conv"}], ids=str
)
def test_no_state_is_written_and_loops_are_bit_equal(options: dict[str, Any]) -> None:
    layer, x = block_of(state=12, **options), normal(9, torch.float32)
    with torch.no_grad():
        assert torch.equal(stepped(layer, x), stepped(layer, x))
    assert leaves(layer.start(x[:, 0]))


def test_the_decomposition_keeps_what_its_filters_reach_and_no_more() -> None:
    decomposition = Decomposition(ms_config(levels=3, kernel=4), 6)
    start = decomposition.start(torch.zeros(2, 6))
    assert [past.shape for past in start] == [(2, 3, 6), (2, 6, 6), (2, 12, 6)]
    x = torch.randn(2, 30, 6, generator=torch.Generator().manual_seed(0))
    state, expected = start, decomposition(x)
    for t in range(30):
        streams, state = decomposition.step(x[:, t], state)
        torch.testing.assert_close(streams, expected[:, t])
    torch.testing.assert_close(state[0], x[:, -3:])
