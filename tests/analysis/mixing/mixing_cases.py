"""Small models of every kind in float64, and what they are measured on."""

from typing import Any

import torch
from torch import Tensor

from msbench import models
from msbench.analysis.mixing.measure import Batch
from msbench.config import MODELS
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Block, Classifier
from msbench.models.layers import Padding

INFOS = {
    "tokens": TaskInfo("tokens", 11, 4, 90, "accuracy", 0.25, {}),
    "signal": TaskInfo("signal", 0, 3, 90, "macro-auroc", 0.5, {}, channels=12, multi_label=True),
    "patches": TaskInfo("patches", 0, 5, 90, "accuracy", 0.2, {}, channels=48),
    "pairs": TaskInfo("pairs", 11, 2, 90, "accuracy", 0.5, {}),
}
SMALL: dict[str, Any] = {"d_model": 4, "layers": 2, "state": 10, "levels": 2, "heads": 1, "kernel_dim": 4}
SMALL |= {"window": 5, "kernels": [9, 5, 3], "bottleneck": 4}
STATES = {"mamba": 4, "s5": 4, "lru": 4, "liquid-s4": 4, "s4": 4}


def model_of(
    name: str, kind: str = "tokens", dtype: torch.dtype = torch.float64, **options: Any
) -> Classifier:
    """With noise on every parameter, so that no equality holds by a zero or a one of the start."""
    entry = MODELS[name]
    small = {key: value for key, value in SMALL.items() if key in entry.config.model_fields}
    if name in STATES:
        small["state"] = STATES[name]
    model = models.build(name, entry.config(**{**small, **entry.preset, **options}), INFOS[kind], 0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model.to(dtype).eval()


def tokens(*lengths: int, width: int = 0, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.zeros(len(lengths), width or max(lengths), dtype=torch.int64)
    for row, length in zip(inputs, lengths, strict=True):
        row[:length] = torch.randint(1, 11, (length,), generator=generator)
    return inputs, torch.tensor(lengths)


def flow(length: int, d: int, seed: int = 0) -> tuple[Tensor, Padding]:
    """What may flow along the residuals, (1, length, d), none of it padding."""
    x = torch.randn(1, length, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, Padding.none_of(x)


def with_layer(layer: torch.nn.Module) -> Classifier:
    """A model whose first layer is this one, behind a norm that treats all positions alike."""
    model = model_of("mamba", norm="batch", layers=1)
    block = model.blocks[0]
    assert isinstance(block, Block)
    block.layer = layer
    return model
