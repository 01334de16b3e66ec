"""MS-SSM's core with every parameter random, and its equations written out once more."""

from collections.abc import Mapping
from typing import Any

import torch
from model_cases import config_of, shaken
from torch import Tensor

from msbench.config.selective import MsSsmConfig
from msbench.models.ms_ssm import MultiScale
from msbench.ops.filters import causal_conv


def ms_config(name: str = "msssm-s6", **options: Any) -> MsSsmConfig:
    config = config_of(name, **{"levels": 2, "state": 11, **options})
    assert isinstance(config, MsSsmConfig)
    return config


def core_of(name: str = "msssm-s6", width: int = 6, seed: int = 0, **options: Any) -> MultiScale:
    """A core whose every parameter is random, so that no equality holds by a zero or a one."""
    torch.manual_seed(seed)
    return shaken(MultiScale(ms_config(name, **options), width).double(), seed=seed)


def signal(length: int = 13, width: int = 6, examples: int = 2) -> Tensor:
    source = torch.Generator().manual_seed(1)
    return torch.randn(examples, length, width, generator=source, dtype=torch.float64)


def streams_by_hand(p: Mapping[str, Tensor], x: Tensor) -> list[Tensor]:
    low, streams = x, [x]
    for level, (phi, psi) in enumerate(p["decomposition.filters"]):
        streams.append(causal_conv(low, psi.T, dilation=2**level))
        low = causal_conv(low, phi.T, dilation=2**level)
    return [*streams, low]
