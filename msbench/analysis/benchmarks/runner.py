"""A model that takes training steps on one batch."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from msbench import models
from msbench.analysis.benchmarks.shapes import StepShape, Variant
from msbench.environment import measure_free_memory
from msbench.models.classifier import Classifier
from msbench.training.objective import loss_of
from msbench.training.optimizer import build_optimizer
from msbench.training.step import check_finite


@dataclass
class Runner:
    """A model with its optimiser, and the batch (inputs, lengths, labels) that every step takes."""

    model: Classifier
    batch: tuple[Tensor, Tensor, Tensor]
    shape: StepShape
    optimizer: torch.optim.Optimizer = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.model.train()
        self.optimizer = build_optimizer(self.model, self.shape.train)

    def loss(self) -> Tensor:
        """Compute the loss of the batch."""
        inputs, lengths, labels = self.batch
        return loss_of(self.model(inputs, lengths).float(), labels, self.shape.train.loss)

    def step(self) -> None:
        """Take one step as the training loop does: forward, loss, backward, check, clipping, optimiser."""
        loss = self.loss()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.steps += 1
        check_finite(self.model, loss.detach(), self.steps)
        if self.shape.train.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.shape.train.clip)
        self.optimizer.step()

    def gradients(self) -> tuple[float, dict[str, Tensor]]:
        """Compute loss and gradients by parameter, without a step; dropout uses a fixed seed."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss()
            loss.backward()  # type: ignore[no-untyped-call]
        found = {name: x.grad for name, x in self.model.named_parameters() if x.grad is not None}
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach()), found


def runner(
    variant: Variant, shape: StepShape, device: str, examples: int | None = None, length: int | None = None
) -> Runner:
    """Build a model of ours, always with the same weights, on the first `examples` cut to `length`.

    As in training, layers are recomputed if their activations would fill half of the free memory.
    """
    model = models.build(variant.model, variant.config, shape.info, seed=0).to(device)
    batch = shape.tensors(device, examples, length)
    needed = models.estimate_activation_bytes(variant.model, variant.config, batch[0].numel(), device)
    model.recompute_layers(on=needed > measure_free_memory(device) / 2)
    return Runner(model, batch, shape)
