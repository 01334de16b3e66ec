"""Our Griffin blocks against those of `transformers`, with the same weights: outputs and gradients."""

from typing import Any

import pytest
import torch
from model_cases import config_of, shaken
from torch import Tensor, nn
from transformers import RecurrentGemmaConfig
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import (
    RecurrentGemmaAttention,
    RecurrentGemmaMlp,
    RecurrentGemmaRecurrentBlock,
    RecurrentGemmaRglru,
)

from msbench.config.baselines import GriffinConfig
from msbench.models.griffin import GatedMlp, LocalAttention, RecurrentBlock, RgLru

LENGTHS = pytest.mark.parametrize("length", [1, 3, 30, 100])


def ours(d: int = 16, **options: Any) -> GriffinConfig:
    config = config_of("griffin", d_model=d, **options)
    assert isinstance(config, GriffinConfig)
    return config


def theirs(config: GriffinConfig) -> RecurrentGemmaConfig:
    return RecurrentGemmaConfig(
        hidden_size=config.d_model,
        num_attention_heads=config.head_count,
        num_key_value_heads=1,
        intermediate_size=2 * round(config.mlp_expand * config.d_model),
        conv1d_width=config.kernel,
        attention_window_size=config.window,
        num_hidden_layers=config.layers,
        attn_implementation="eager",
    )


def recurrence_weights(p: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Parameters, or their gradients, under the other's names."""
    return {
        f"{prefix}recurrent_param": p[f"{prefix}Lambda"],
        **{
            f"{prefix}{name}_gate_{part}": p[f"{prefix}{own}_gate.{part}"]
            for name, own in (("input", "input"), ("recurrent", "recurrence"))
            for part in ("weight", "bias")
        },
    }


def block_weights(p: dict[str, Tensor]) -> dict[str, Tensor]:
    pairs = (("linear_x", "in_proj"), ("linear_y", "gate_proj"), ("linear_out", "out_proj"))
    return {
        **{f"{name}.{part}": p[f"{own}.{part}"] for name, own in pairs for part in ("weight", "bias")},
        "conv_1d.weight": p["conv.weight"].flip(1).unsqueeze(1),  # ours is indexed by lag
        "conv_1d.bias": p["conv.bias"],
        **recurrence_weights(p, "rg_lru."),
    }


def compare(
    block: nn.Module, peer: nn.Module, run: Any, run_peer: Any, rename: Any, tolerance: float
) -> None:
    """Outputs, and the gradients of every parameter, relative to the largest of each.

    Those of an attention to one position are 0.
    """
    peer.double().load_state_dict(rename(dict(block.named_parameters())))
    y, expected = run(block), run_peer(peer)
    torch.testing.assert_close(y, expected, rtol=tolerance, atol=tolerance)
    weight = torch.randn_like(y)
    names, parameters = zip(*block.named_parameters(), strict=True)
    gradients = torch.autograd.grad((y * weight).sum(), parameters)
    (expected * weight).sum().backward()
    found = {name: parameter.grad for name, parameter in peer.named_parameters()}
    for name, one in rename(dict(zip(names, gradients, strict=True))).items():
        other = found[name]
        assert other is not None, name
        assert float((one - other).abs().max()) <= tolerance * max(1e-6, float(other.abs().max())), name


# The peer computes 1 - a^2 as it stands and carries its state in float32, also between float64 arguments.
TOLERANCE = 1e-6


@LENGTHS
@pytest.mark.parametrize("heads", [1, 4])
def test_recurrence(length: int, heads: int) -> None:
    torch.manual_seed(length)
    config = ours(heads=heads)
    unit, peer = shaken(RgLru(16, heads), 0.2).double(), RecurrentGemmaRglru(theirs(config))
    x = torch.randn(2, length, 16, dtype=torch.float64)
    positions = torch.arange(length).unsqueeze(0)
    # The peer writes states in place into a tensor of zeros, which is fine for autograd.
    compare(unit, peer, lambda m: m(x), lambda m: m(x, positions), recurrence_weights, TOLERANCE)


@LENGTHS
@pytest.mark.parametrize("options", [{}, {"heads": 2, "kernel": 3}])
def test_recurrent_block(length: int, options: dict[str, int]) -> None:
    torch.manual_seed(length)
    config = ours(**options)
    block, peer = (
        shaken(RecurrentBlock(config), 0.2).double(),
        RecurrentGemmaRecurrentBlock(theirs(config), 0),
    )
    x, lengths = torch.randn(2, length, 16, dtype=torch.float64), torch.tensor([length, length])
    positions, no_mask = torch.arange(length).unsqueeze(0), torch.ones(())
    compare(
        block,
        peer,
        lambda m: m(x, lengths),
        lambda m: m(x, positions, no_mask, use_cache=False)[0],
        block_weights,
        TOLERANCE,
    )


def attention_weights(p: dict[str, Tensor]) -> dict[str, Tensor]:
    k, v = p["kv_proj.weight"].chunk(2)
    renamed = {"q_proj": "q_proj.weight", "o_proj": "out_proj.weight"}
    return {
        **{f"{name}.weight": p[own] for name, own in renamed.items()},
        "o_proj.bias": p["out_proj.bias"],
        "k_proj.weight": k,
        "v_proj.weight": v,
    }


@LENGTHS
@pytest.mark.parametrize(("heads", "window"), [(1, 1024), (4, 7), (2, 30)])
def test_local_attention(length: int, heads: int, window: int) -> None:
    torch.manual_seed(length)
    config = ours(heads=heads, window=window)
    block, peer = shaken(LocalAttention(config), 0.2).double(), RecurrentGemmaAttention(theirs(config), 0)
    x, lengths = torch.randn(2, length, 16, dtype=torch.float64), torch.tensor([length, length])
    positions = torch.arange(length)
    lag = positions.unsqueeze(1) - positions
    mask = torch.where((lag >= 0) & (lag <= window), 0.0, -torch.inf).double()[None, None]
    compare(
        block,
        peer,
        lambda m: m(x, lengths),
        lambda m: m(x, positions.unsqueeze(0), mask)[0],
        attention_weights,
        1e-5,  # the peer's angles and softmax are float32
    )


def test_gated_mlp() -> None:
    torch.manual_seed(0)
    config = ours(mlp_expand=1.5)
    block, peer = shaken(GatedMlp(config), 0.2).double(), RecurrentGemmaMlp(theirs(config))
    x, lengths = torch.randn(2, 9, 16, dtype=torch.float64), torch.tensor([9, 9])

    def renamed(p: dict[str, Tensor]) -> dict[str, Tensor]:
        halves = {part: p[f"up.{part}"].chunk(2) for part in ("weight", "bias")}
        return {
            **{f"gate_proj.{part}": halves[part][0] for part in halves},
            **{f"up_proj.{part}": halves[part][1] for part in halves},
            **{f"down_proj.{part}": p[f"down.{part}"] for part in halves},
        }

    compare(block, peer, lambda m: m(x, lengths), lambda m: m(x), renamed, 1e-12)
