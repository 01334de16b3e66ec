"""Layers of the linear models in double precision, that their tests share."""

from typing import Any

import torch
from model_cases import layer_of, model_of, shaken
from torch import Tensor

LENGTHS = [1, 2, 5, 31, 100, 257]
NAMES = [
    "s4",
    "s4d-lin",
    "s4d-inv",
    "s4d-legs",
    "s4d-real",
    "dss-softmax",
    "dss-exp",
    "dss-exp-no-scale",
    "liquid-s4",
    "s5",
    "lru",
]
CONVOLVED = [name for name in NAMES if name not in ("s5", "lru")]


def double_block(name: str, **options: Any) -> Any:
    """A layer of 6 channels in double, every parameter shaken so that no start hides a fault."""
    model = model_of(name, **{"d_model": 6, "state": 8, "layers": 1, **options})
    return layer_of(shaken(model.double().eval(), seed=3))


def signal(length: int, width: int = 6) -> Tensor:
    source = torch.Generator().manual_seed(length)
    return torch.randn(2, length, width, generator=source, dtype=torch.float64)
