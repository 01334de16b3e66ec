"""A running average of a model over the steps of its training."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel


class WeightAverage(AveragedModel):
    """An exponential moving average of a model: a copy that ``update_parameters`` moves at each step.

    The first step is copied. Running statistics of batch norms are averaged as the weights are that they
    belong to; buffers of whole numbers are places, of which there is no mean, and stay.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__(model, use_buffers=True)
        self.decay = decay
        self.requires_grad_(False)

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Move the average towards the model; not as torch does, whose count of steps waits for a GPU."""
        pairs = zip(
            (*self.module.parameters(), *self.module.buffers()),
            (*model.parameters(), *model.buffers()),
            strict=True,
        )
        if int(self.n_averaged) == 0:
            for own, other in pairs:
                own.copy_(other)
        else:
            moving = [pair for pair in pairs if pair[0].is_floating_point() or pair[0].is_complex()]
            mine, current = map(list, zip(*moving, strict=True))
            torch._foreach_lerp_(mine, current, 1 - self.decay)
        self.n_averaged += 1
