"""Training objective: the loss of a batch, and the decisions of logits."""

import torch
from torch.nn import functional


def loss_of(logits: torch.Tensor, labels: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the mean loss of a batch: `logits` (b, classes) float32, `labels` (b,), or (b, classes).

    With (b, classes), several labels each, it is the binary cross entropy of every decision, whatever `kind`.
    """
    if labels.ndim == 2:
        return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    if kind == "double-softmax":
        logits = logits.softmax(dim=1)
    return functional.cross_entropy(logits, labels)


def decided(logits: torch.Tensor, multi_label: bool) -> torch.Tensor:
    """Decide logits (b, classes): return the class (b,), the first of equal ones, or 0 or 1 per class."""
    return (logits > 0).to(torch.int64) if multi_label else logits.argmax(dim=1)
