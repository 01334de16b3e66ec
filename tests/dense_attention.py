"""The dense reference of all sparse attention: a softmax over the whole square, with a mask."""

import torch
from torch import Tensor


def attend_densely(q: Tensor, k: Tensor, v: Tensor, counts: Tensor) -> Tensor:
    """q, k, v (.., l, w); `counts` (.., l, l) is how often a query sees a key. Zeros where it sees none."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = (scores - scores.amax(-1, keepdim=True).detach()).exp() * counts
    total = weights.sum(-1, keepdim=True)
    y: Tensor = weights / torch.where(total > 0, total, 1) @ v
    return y
