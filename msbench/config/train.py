"""Training settings of a run."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.layers import Config
from msbench.config.numbers import MOST, Amount, Chance, Positive, Rate


class TrainConfig(Config):
    """Optimiser, schedule, batches and precision.

    The learning rate rises linearly for `warmup_epochs`, then falls along a cosine to `min_lr` at the last
    step of `epochs` (or of `max_steps`, where that comes first).
    """

    epochs: Positive = 10
    max_steps: Positive | None = None
    batch_size: Positive = 32
    lr: Amount = 1e-3
    ssm_lr: Amount | None = None
    """Learning rate of decays, step sizes and skips; None means `lr`."""
    min_lr: Rate = 0.0
    weight_decay: Rate = 0.01
    beta1: Chance = 0.9
    beta2: Chance = 0.999
    warmup_epochs: Annotated[Rate, Field(lt=MOST)] = 1.0
    clip: Amount | None = None
    """Largest gradient norm; None means no clipping."""
    precision: Literal["float32", "bf16"] = "float32"
    bucketing: bool = True
    """Batches of similar length, padded to the longest of the batch."""
    pad_to: Positive | None = None
    """Pad every batch to this length instead, as the paper does with 2048."""
    loss: Literal["cross-entropy", "double-softmax"] = "cross-entropy"
    """``double-softmax`` repeats a fault in the code of the published Mamba rows."""
    micro_batch: Annotated[Positive | Literal["auto"] | None, Field(exclude=True)] = None
    """Examples that a device computes at once, with gradients summed over a batch; ``auto`` halves them if
    memory runs out. An option of the execution, not part of the settings that are recorded and compared."""

    @model_validator(mode="after")
    def _rates_are_in_order(self) -> Self:
        if self.min_lr > self.lr:
            raise ValueError(f"min_lr {self.min_lr} is above lr {self.lr}")
        return self
