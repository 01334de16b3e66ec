"""The Mamba of `transformers` in our classifier, with the same weights: the peer of a training step.

Embedding, norms, residuals, dropout, pooling and head are ours in both, so only the block differs.
"""

from typing import Any

import torch
from torch import Tensor, nn

from msbench.config import MambaConfig
from msbench.models.classifier import Classifier
from msbench.models.mamba import MambaBlock
from msbench.models.selective import compute_dt_rank, compute_inner_width

NAMES = {
    "in_proj.weight": "in_proj.weight",
    "conv.weight": "conv1d.weight",
    "conv.bias": "conv1d.bias",
    "x_proj.weight": "x_proj.weight",
    "dt.weight": "dt_proj.weight",
    "dt.bias": "dt_proj.bias",
    "A_log": "A_log",
    "D": "D",
    "out_proj.weight": "out_proj.weight",
}
"""Our parameter names mapped to the peer's; `theirs_of` converts the values."""


class MixerPeer(nn.Module):
    """A MambaMixer as a layer of our classifier."""

    def __init__(self, config: MambaConfig, *, parallel: bool) -> None:
        super().__init__()
        from transformers import MambaConfig as TheirConfig
        from transformers.models.mamba.modeling_mamba import MambaMixer

        theirs = TheirConfig(
            hidden_size=config.d_model,
            state_size=config.state,
            conv_kernel=config.kernel,
            time_step_rank=compute_dt_rank(config),
            use_conv_bias=config.conv_bias,
            use_bias=False,
            hidden_act="silu",
            num_hidden_layers=1,
            use_mambapy=parallel,
        )
        # Not as an argument: the config would overwrite it with `expand` times the width, whole numbers only.
        theirs.intermediate_size = compute_inner_width(config)
        self.mixer = MambaMixer(theirs, 0)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        y: Tensor = self.mixer(x)
        return y


def install(model: Classifier, *, parallel: bool) -> dict[str, str]:
    """Replace our blocks by mixers with the same weights; return our parameter names mapped to theirs.

    `parallel`: the mixers use mambapy's scan instead of the loop over time.
    """
    config = model.config
    assert isinstance(config, MambaConfig)
    assert not config.bidirectional, "the peer has one direction"
    assert config.skip, "the peer always has a skip"
    names: dict[str, str] = {name: name for name, _ in model.named_parameters() if ".layer." not in name}
    for index, block in enumerate(model.blocks):
        ours: Any = block.layer
        assert isinstance(ours, MambaBlock)
        theirs = MixerPeer(config, parallel=parallel).to(ours.A_log.device)
        copy_weights(ours, theirs.mixer)
        block.layer = theirs
        prefix = f"blocks.{index}.layer."
        names |= {
            prefix + name: f"{prefix}mixer.{other}"
            for name, other in NAMES.items()
            if name != "conv.bias" or config.conv_bias
        }
    return names


def theirs_of(name: str, value: Tensor) -> Tensor:
    """Reorder our parameter, or its gradient, as theirs: our first tap is the present, theirs the last.

    Shapes differ only by dimensions of size 1.
    """
    return value.flip(1) if name.endswith("conv.weight") else value


@torch.no_grad()
def copy_weights(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy all parameters of a block into a mixer; RuntimeError if one of theirs is left over."""
    targets = dict(theirs.named_parameters())
    for name, value in ours.named_parameters():
        target = targets.pop(NAMES[name])
        target.copy_(theirs_of(name, value).view_as(target))
    if targets:
        raise RuntimeError(f"parameters of the peer without a counterpart: {', '.join(targets)}")
