"""Our Mamba block against the one of `transformers`, with the same weights: outputs and all gradients."""

import pytest
import torch
from model_cases import config_of
from torch import Tensor, nn
from transformers import MambaConfig as PeerConfig
from transformers.models.mamba.modeling_mamba import MambaMixer

from msbench.config.selective import MambaConfig
from msbench.models.mamba import MambaBlock
from msbench.models.selective import compute_dt_rank, compute_inner_width


def peer_of(block: MambaBlock, config: MambaConfig) -> nn.Module:
    """The other implementation with the weights of `block`."""
    settings = PeerConfig(
        hidden_size=config.d_model,
        state_size=config.state,
        expand=compute_inner_width(config) // config.d_model,
        conv_kernel=config.kernel,
        time_step_rank=compute_dt_rank(config),
        num_hidden_layers=1,
    )
    peer: nn.Module = MambaMixer(settings, 0)
    peer.load_state_dict(renamed(dict(block.named_parameters())))
    return peer


def renamed(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parameters, or their gradients, under the other's names and in its layout."""
    assert ours.keys() == {
        *("in_proj.weight", "x_proj.weight", "out_proj.weight", "conv.weight", "conv.bias"),
        *("dt.weight", "dt.bias", "A_log", "D"),
    }
    same = {name: ours[name] for name in ("in_proj.weight", "x_proj.weight", "out_proj.weight", "A_log")}
    return {
        **same,
        "conv1d.weight": ours["conv.weight"].flip(1).unsqueeze(1),  # ours is indexed by lag
        "conv1d.bias": ours["conv.bias"],
        "dt_proj.weight": ours["dt.weight"][0],
        "dt_proj.bias": ours["dt.bias"][0],
        "D": ours["D"][0],
    }


@pytest.mark.parametrize("length", [1, 3, 30, 100])
@pytest.mark.parametrize("options", [{}, {"state": 16, "kernel": 3, "expand": 1}])
def test_same_weights_same_outputs_and_gradients(length: int, options: dict[str, int]) -> None:
    config = config_of("mamba", **options)
    assert isinstance(config, MambaConfig)
    torch.manual_seed(length)
    block = MambaBlock(config)
    peer = peer_of(block, config)
    u = torch.randn(2, length, config.d_model)
    weight = torch.randn(2, length, config.d_model)
    ours, theirs = block(u, torch.tensor([length, length])), peer(u)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    names, parameters = zip(*block.named_parameters(), strict=True)
    gradients = dict(zip(names, torch.autograd.grad((ours * weight).sum(), parameters), strict=True))
    (theirs * weight).sum().backward()
    expected = {name: parameter.grad for name, parameter in peer.named_parameters()}
    for name, one in renamed(gradients).items():
        other = expected[name]
        assert other is not None
        assert float((one - other).abs().max()) <= 1e-5 * float(other.abs().max()), name
