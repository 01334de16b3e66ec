"""Evaluation on a whole split: no example is dropped, all have the same weight."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from msbench.datasets.dataset import TaskInfo
from msbench.training.auroc import MacroAuroc, macro_auroc
from msbench.training.feed import BatchLoader, split_up
from msbench.training.objective import decided, loss_of
from msbench.training.order import sorted_batches
from msbench.training.shares import ALONE, Processes, shares_of


@dataclass(frozen=True)
class Predictions:
    """`logits` (n, classes) float32 and `labels` int64, in the order of the split.

    `labels` are (n,), or (n, classes) of 0 and 1 if an example may have several: logits are then those of one
    decision each, 0 being even odds.
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def multi_label(self) -> bool:
        """True if an example may have several labels."""
        return self.labels.ndim == 2

    @property
    def decisions(self) -> NDArray[np.int64]:
        """Predicted labels, in the form of `labels`; the first of equal logits."""
        found: NDArray[np.int64] = decided(torch.from_numpy(self.logits), self.multi_label).numpy()
        return found

    @property
    def accuracy(self) -> float:
        """Share of correct decisions: one per example, or with several labels one per class of each."""
        return float((self.decisions == self.labels).mean())

    @property
    def macro_auroc(self) -> MacroAuroc:
        """Macro AUROC of the logits; only with several labels per example."""
        return macro_auroc(self.logits, self.labels)

    def auroc_of(self, info: TaskInfo) -> float | None:
        """Return macro AUROC if it is the metric of the task, else None."""
        return self.macro_auroc.value if info.metric == "macro-auroc" else None

    @property
    def loss(self) -> float:
        """Mean cross entropy in nats, over every decision if there are several labels."""
        return float(
            loss_of(torch.from_numpy(self.logits).double(), torch.from_numpy(self.labels), "cross-entropy")
        )


@torch.no_grad()
def predict(
    model: nn.Module,
    feed: BatchLoader,
    batch_size: int,
    *,
    pad_to: int | None = None,
    at_once: int | None = None,
    between: Callable[[int, int], None] = lambda _done, _total: None,
    processes: Processes = ALONE,
) -> Predictions:
    """Compute logits of every example of a split, with dropout off and stored batch statistics.

    A batch of more than `at_once` examples is computed in pieces, which changes no width and so no number.
    `between(done, total)` is called after each batch, with examples; it may raise to stop. Several
    `processes` share each batch, so that every example is computed once, and all of them get all predictions.
    """
    split, was_training = feed.split, model.training
    model.eval()
    logits: NDArray[np.float32] | None = None
    labels: NDArray[np.int64] | None = None
    done = 0
    shares = shares_of(sorted_batches(split.lengths, batch_size), lambda: split.lengths, pad_to, processes)
    cut = feed.batches([share.indices for share in shares], [share.pad_to for share in shares])
    for share, batch in zip(shares, cut, strict=True):
        pieces = [model(x.inputs, x.lengths).float().cpu().numpy() for x in split_up(batch, at_once)]
        output = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        if logits is None or labels is None:
            logits = np.zeros((len(split), output.shape[1]), dtype=np.float32)
            labels = np.zeros((len(split), *batch.labels.shape[1:]), dtype=np.int64)
        if share.examples:
            logits[share.indices], labels[share.indices] = output, batch.labels.cpu().numpy()
        done += share.whole
        between(done, len(split))
    model.train(was_training)
    assert logits is not None, "a split is never empty"
    assert labels is not None
    processes.merged(logits, labels)
    return Predictions(logits, labels)
