"""Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019): each example of a batch is mixed with another.

As in torchvision and timm, one share and one rectangle are drawn for a whole batch. Theirs are not called:
they mix an example with others of the batch in hand, which with several devices is a part of it, and draw
from torch's global generator. Here examples are mixed in pairs, 0 with 1, 2 with 3 and so on, which stay
together on one device, and draws depend on seed and step alone: a resumed run, or one on other devices, mixes
the same examples in the same way.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional

from msbench.config import TrainConfig
from msbench.datasets.dataset import TaskInfo
from msbench.training.batches import DeviceBatch, send_array
from msbench.training.seeding import derive_seed

TOGETHER = 2
"""Examples that are mixed with each other."""


def mix_examples(
    batch: DeviceBatch, config: TrainConfig, info: TaskInfo, seed: int, step: int
) -> DeviceBatch:
    """Return the batch with examples and labels mixed; its own, where neither mixup nor CutMix is on.

    With both, one of them is drawn for each batch. The last of an odd number of examples stays as it is.
    `labels` of the result are the labels of the larger share, by which it is counted as correct.
    """
    if config.mixup is None and config.cutmix is None:
        return batch
    generator = np.random.default_rng([derive_seed(seed, "mixup"), step])
    cut = config.mixup is None or (config.cutmix is not None and generator.random() < 0.5)
    alpha = config.cutmix if cut else config.mixup
    assert alpha is not None
    share = generator.beta(alpha, alpha)
    inputs, count = batch.inputs, len(batch.labels)
    partners = (torch.arange(count, device=inputs.device) ^ 1).clamp_(max=count - 1)
    if cut:
        rectangle = draw_rectangle(info, share, generator)
        share = 1 - float(rectangle.mean())
        inside = send_array(cut_mask(rectangle, info), inputs.device)
        inside = functional.pad(inside, (0, 0, 0, inputs.shape[1] - len(inside)))  # padding stays
        inputs = torch.where(inside, inputs[partners], inputs)
    else:
        inputs = inputs.lerp(inputs[partners], 1 - share)
    targets = functional.one_hot(batch.labels, info.classes).to(torch.float32)
    targets = targets.lerp(targets[partners], 1 - share)
    return replace(batch, inputs=inputs, targets=targets, labels=targets.argmax(1))


def draw_rectangle(info: TaskInfo, share: float, generator: np.random.Generator) -> np.ndarray:
    """Return a mask (side, side) of a random rectangle of 1 - `share` of an image, less what is outside."""
    side = math.isqrt(info.longest) * info.patch
    half = int(0.5 * math.sqrt(1 - share) * side)
    row, column = (int(each) for each in generator.integers(side, size=2))
    mask = np.zeros((side, side), np.bool_)
    mask[max(row - half, 0) : row + half, max(column - half, 0) : column + half] = True
    return mask


def cut_mask(mask: np.ndarray, info: TaskInfo) -> np.ndarray:
    """Return a mask of pixels (side, side) in the form of a sequence of patches (positions, channels)."""
    patch, across = info.patch, len(mask) // info.patch
    patches = mask.reshape(across, patch, across, patch).transpose(0, 2, 1, 3).reshape(across**2, -1)
    return np.repeat(patches, info.channels // patch**2, axis=1)  # colours of a pixel are adjacent
