"""Evaluation on a whole split: nothing dropped, every example weighs the same."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from msbench.data.dataset import Batch, Split
from msbench.training.order import sorted_batches


@dataclass(frozen=True)
class Predictions:
    """`logits` (n, classes) float32 and `labels` (n,) int64, in the order of the split."""

    logits: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def classes(self) -> NDArray[np.int64]:
        """Predicted class of each example; the first of equal logits."""
        classes: NDArray[np.int64] = self.logits.argmax(axis=1).astype(np.int64)
        return classes

    @property
    def accuracy(self) -> float:
        """Share of right predictions."""
        return float((self.classes == self.labels).mean())

    @property
    def loss(self) -> float:
        """Mean cross entropy in nats."""
        logits = torch.from_numpy(self.logits).double()
        return float(functional.cross_entropy(logits, torch.from_numpy(self.labels)))


def to_device(batch: Batch, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """inputs (b, l), lengths (b,) and labels (b,) as tensors."""
    arrays = (batch.inputs, batch.lengths, batch.labels)
    inputs, lengths, labels = (torch.from_numpy(array).to(device, non_blocking=True) for array in arrays)
    return inputs, lengths, labels


@torch.no_grad()
def predict(
    model: nn.Module,
    split: Split,
    batch_size: int,
    device: torch.device,
    *,
    pad_to: int | None = None,
    between: Callable[[int, int], None] = lambda _done, _total: None,
) -> Predictions:
    """Logits of every example of a split, with dropout off and stored batch statistics.

    `between(done, total)` is called after each batch, with examples; it may raise to stop.
    """
    was_training = model.training
    model.eval()
    logits: NDArray[np.float32] | None = None
    labels = np.empty(len(split), dtype=np.int64)
    done = 0
    for indices in sorted_batches(split.lengths, batch_size):
        batch = split.batch(indices, pad_to)
        inputs, lengths, _ = to_device(batch, device)
        output = model(inputs, lengths).float().cpu().numpy()
        if logits is None:
            logits = np.empty((len(split), output.shape[1]), dtype=np.float32)
        logits[indices], labels[indices] = output, batch.labels
        done += len(indices)
        between(done, len(split))
    model.train(was_training)
    assert logits is not None, "a split is never empty"
    return Predictions(logits, labels)
