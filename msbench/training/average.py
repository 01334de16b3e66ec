"""A running average of a model over the steps of its training: torch's ``swa_utils``."""

from typing import Any

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def average_weights(model: nn.Module, decay: float) -> AveragedModel:
    """Return an exponential moving average of a model: a copy that ``update_parameters`` moves at each step.

    The first step is copied. Running statistics of batch norms are averaged as the weights are that they
    belong to; buffers of whole numbers are places, of which there is no mean, and stay.
    """
    blend = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]

    def update(averaged: Any, current: Any, count: Any) -> None:
        if averaged[0].is_floating_point() or averaged[0].is_complex():
            blend(averaged, current, count)

    average = AveragedModel(model, multi_avg_fn=update, use_buffers=True)
    average.requires_grad_(False)
    return average
