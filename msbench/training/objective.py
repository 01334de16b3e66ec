"""What logits are held against: the loss of a batch, and what they decide."""

import torch
from torch.nn import functional


def loss_of(logits: torch.Tensor, labels: torch.Tensor, kind: str) -> torch.Tensor:
    """Mean loss of a batch: `logits` (b, classes) float32, `labels` (b,), or (b, classes) with several each.

    With several it is the binary cross entropy of every decision, whatever `kind`.
    """
    if labels.ndim == 2:
        return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    if kind == "double-softmax":
        logits = logits.softmax(dim=1)
    return functional.cross_entropy(logits, labels)


def decided(logits: torch.Tensor, multi_label: bool) -> torch.Tensor:
    """What logits (b, classes) say: the class (b,), the first of equal ones, or of each class 0 or 1."""
    return (logits > 0).to(torch.int64) if multi_label else logits.argmax(dim=1)
