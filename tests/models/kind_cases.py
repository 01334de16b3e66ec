"""Every kind of task, small, and batches of it."""

from typing import Any

import numpy as np
import torch
from model_cases import config_of, tokens
from torch import Tensor

from msbench import models
from msbench.datasets.dataset import Batch, TaskInfo
from msbench.models.classifier import Classifier

INFOS = {
    "tokens": TaskInfo("tokens", 11, 4, 90, "accuracy", 0.25, {}),
    "signal": TaskInfo("signal", 0, 3, 90, "macro-auroc", 0.5, {}, channels=12, multi_label=True),
    "patches": TaskInfo("patches", 0, 5, 90, "accuracy", 0.2, {}, channels=48),
    "pairs": TaskInfo("pairs", 11, 2, 90, "accuracy", 0.5, {}),
}

Inputs = tuple[Tensor, Tensor]


def model_for(kind: str, name: str, **options: Any) -> Classifier:
    return models.build(name, config_of(name, **options), INFOS[kind], 0)


def examples(kind: str, *lengths: int, seed: int = 0) -> Inputs:
    """Inputs and lengths; of pairs the second sequence has the lengths in reverse order."""
    info = INFOS[kind]
    if kind == "tokens":
        return tokens(*lengths, seed=seed)
    if kind == "pairs":
        both = [tokens(*order, seed=seed + i) for i, order in enumerate((lengths, lengths[::-1]))]
        return torch.stack([x for x, _ in both], 1), torch.stack([x for _, x in both], 1)
    inputs = torch.randn(
        len(lengths), max(lengths), info.channels, generator=torch.Generator().manual_seed(seed)
    )
    for row, length in zip(inputs, lengths, strict=True):
        row[length:] = 0
    return inputs, torch.tensor(lengths)


def alone(inputs: Tensor, lengths: Tensor, row: int) -> Inputs:
    """One example of a batch, without the padding that only the others need."""
    longest = int(lengths[row].max())
    return inputs.narrow(lengths.ndim, 0, longest)[row : row + 1], lengths[row : row + 1]


def batch_of(kind: str, *lengths: int) -> Batch:
    """As a dataset gives it."""
    info = INFOS[kind]
    inputs, true = examples(kind, *lengths)
    shape = (len(lengths), info.classes) if info.multi_label else (len(lengths),)
    labels = np.random.default_rng(0).integers(0, 2 if info.multi_label else info.classes, shape)
    return Batch(inputs.numpy(), true.numpy(), labels)
