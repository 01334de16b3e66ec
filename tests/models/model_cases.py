"""Small models in every option, and batches, that the model tests share."""

from typing import Any

import torch
from torch import Tensor

from msbench import models
from msbench.data.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.specs import MODELS, ClassifierConfig

INFO = TaskInfo("tokens", 11, 4, 40, "accuracy", 0.25, {})

COMMON: list[dict[str, Any]] = [
    {},
    {"norm": "batch"},
    {"norm": "rms", "prenorm": False},
    {"norm": "batch", "prenorm": False, "pooling": "last"},
    {"positions": "learned", "encoder": "scalar"},
    {"bidirectional": True},
    {"bidirectional": True, "norm": "batch", "pooling": "last"},
    {"skip": False, "kernel": 1, "expand": 1.5, "dt_rank": 3},
]
MS_SSM: list[dict[str, Any]] = [
    {"levels": 0},
    {"levels": 1, "state": 3},
    {"state": 2},
    {"state_per_stream": True, "state": 3},
    {"ssm": "none"},
    {"ssm": "none", "mixer": "static", "mixer_channels": "per-channel"},
    {"decomposition": "shared-conv", "conv_bias": True},
    {"ssm_input": "raw", "parameters_from": "stream"},
    {"parameters_from": "stream"},
    {"mixer": "softmax", "mixer_init": "default"},
    {"mixer": "static"},
    {"mixer": "static", "mixer_channels": "per-channel", "mixer_init": "default"},
    {"mixer_channels": "per-channel", "block": "glu"},
    {"mixer": "softmax", "mixer_channels": "low-rank", "mixer_rank": 2, "mixer_init": "default"},
    {"mixer_bias": False, "mixer_init": "default", "raw_input": "token"},
    {"raw_input": "token", "expand": 1.5, "parameters_from": "stream"},
    {"raw_stream": False},
    {"raw_decays": "slowest", "decomposition": "none"},
    {"decay_init": "mamba", "decay_spacing": "random"},
    {"input_discretisation": "raw"},
    {"conv_activation": "silu", "conv_bias": True},
    {"block": "glu"},
    {"block": "vit", "bidirectional": True},
]
MS_SSM_S4: list[dict[str, Any]] = [
    {},
    {"levels": 0, "skip": False},
    {"state": 2, "learned_b": True, "raw_stream": False},
    {"bidirectional": True, "norm": "batch", "pooling": "last"},
    {"mixer_channels": "per-channel", "block": "vit"},
    {"decay_spacing": "random", "raw_decays": "slowest", "block": "glu"},
]
ABLATIONS = [name for name in MODELS if name.startswith("msssm-") and name not in ("msssm-s6", "msssm-s4")]
CASES: list[tuple[str, dict[str, Any]]] = [
    *(("mamba", {"state": 4, **options}) for options in [*COMMON, {"conv_bias": False}]),
    *(("msssm-s6", {"state": 7, "levels": 2, **options}) for options in [*COMMON, *MS_SSM]),
    *(("msssm-s4", {"state": 7, "levels": 2, **options}) for options in MS_SSM_S4),
    *((name, {"state": 7, "levels": 2, **options}) for name in ABLATIONS for options in COMMON[:2]),
    *((name, {"state": 7, "levels": 2, "bidirectional": True}) for name in ABLATIONS),
    *((name, {"state": 3}) for name in ("mamba-2x-param", "mamba-2x-state")),
]


def case_id(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


def config_of(name: str, **options: Any) -> ClassifierConfig:
    """A small config; what makes this model itself can be set otherwise, to see that it matters."""
    return MODELS[name].config(**{"d_model": 8, "layers": 2, **MODELS[name].preset, **options})


def model_of(name: str, seed: int = 0, **options: Any) -> Classifier:
    return models.build(name, config_of(name, **options), INFO, seed)


def layer_of(model: Classifier, index: int = 0) -> Any:
    """A block's layer; its own attributes are no part of nn.Module's type."""
    block: Any = model.blocks[index]
    return block.layer


def tokens(*lengths: int, width: int | None = None, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random sequences of these lengths, padded with 0 to `width` or the longest."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.zeros(len(lengths), width or max(lengths), dtype=torch.int64)
    for row, length in zip(inputs, lengths, strict=True):
        row[:length] = torch.randint(1, INFO.vocabulary, (length,), generator=generator)
    return inputs, torch.tensor(lengths)


def warmed_up(model: Classifier) -> Classifier:
    """After one pass in training mode: batch norm has statistics of its own."""
    with torch.no_grad():
        model.train()(*tokens(9, 17, 5, seed=1))
    return model.eval()
