"""Evaluation on a whole split: no example is dropped, all have the same weight."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from msbench.datasets.dataset import Dataset, TaskInfo
from msbench.errors import DataError
from msbench.training.auroc import MacroAuroc, macro_auroc, scorable
from msbench.training.batches import BatchLoader, sort_into_batches, split_batch
from msbench.training.processes import SINGLE, Processes, deal_batches
from msbench.training.step import compute_loss, decide


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
        found: NDArray[np.int64] = decide(torch.from_numpy(self.logits), self.multi_label).numpy()
        return found

    @property
    def accuracy(self) -> float:
        """Share of correct decisions: one per example, or with several labels one per class of each."""
        return float((self.decisions == self.labels).mean())

    @property
    def macro_auroc(self) -> MacroAuroc:
        """Macro AUROC of the logits; only with several labels per example."""
        return macro_auroc(self.logits, self.labels)

    def score_auroc(self, info: TaskInfo) -> float | None:
        """Return macro AUROC if it is the metric of the task, else None."""
        return self.macro_auroc.value if info.metric == "macro-auroc" else None

    @property
    def loss(self) -> float:
        """Mean cross entropy in nats, over every decision if there are several labels."""
        return float(
            compute_loss(
                torch.from_numpy(self.logits).double(), torch.from_numpy(self.labels), "cross-entropy"
            )
        )


@torch.no_grad()
def predict(
    model: nn.Module,
    loader: BatchLoader,
    batch_size: int,
    *,
    pad_to: int | None = None,
    at_once: int | None = None,
    between: Callable[[int, int], None] = lambda _done, _total: None,
    processes: Processes = SINGLE,
) -> Predictions:
    """Compute logits of every example of a split, with dropout off and stored batch statistics.

    A batch of more than `at_once` examples is computed in pieces, which changes no width and so no number. Of
    an example in crops, the largest logits count: as probabilities grow with logits, these are those of the
    largest probabilities. No more crops are computed at once than a batch has examples.
    `between(done, total)` is called after each batch, with examples; it may raise to stop. Several
    `processes` share each batch, so that every example is computed once, and all of them get all predictions.
    """
    split, was_training = loader.split, model.training
    if split.crops > 1:
        at_once = min(batch_size, at_once or batch_size)
    model.eval()
    logits: NDArray[np.float32] | None = None
    labels: NDArray[np.int64] | None = None
    done = 0
    shards = deal_batches(
        sort_into_batches(split.lengths, batch_size), lambda: split.lengths, pad_to, processes
    )
    cut = loader.batches([shard.indices for shard in shards], [shard.pad_to for shard in shards])
    for shard, batch in zip(shards, cut, strict=True):
        pieces = [model(x.inputs, x.lengths).float().cpu().numpy() for x in split_batch(batch, at_once)]
        output = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        true = batch.labels.cpu().numpy()
        if split.crops > 1:
            output, true = output.reshape(-1, split.crops, output.shape[1]).max(axis=1), true[:: split.crops]
        if logits is None or labels is None:
            logits = np.zeros((len(split), output.shape[1]), dtype=np.float32)
            labels = np.zeros((len(split), *true.shape[1:]), dtype=np.int64)
        if shard.examples:
            logits[shard.indices], labels[shard.indices] = output, true
        done += shard.whole
        between(done, len(split))
    model.train(was_training)
    assert logits is not None, "a split is never empty"
    assert labels is not None
    processes.merge(logits, labels)
    return Predictions(logits, labels)


def find_unscored_classes(dataset: Dataset) -> Iterator[str]:
    """Yield a message for each split whose macro AUROC leaves classes out; none for tasks of another metric.

    Raises DataError if not a single class can be scored: no epoch would then be the best, and the test would
    have no result.
    """
    if dataset.info.metric != "macro-auroc":
        return
    for name in ("validation", "test"):
        chosen = scorable(dataset.splits[name].targets)
        if not chosen.any():
            raise DataError(
                f"{name} split: none of its {len(chosen)} classes has both a positive and a negative example,"
                " so that macro AUROC is undefined; choose other labels or more records"
            )
        if not chosen.all():
            yield (
                f"{name}: macro AUROC is over {chosen.sum()} of {len(chosen)} classes;"
                " the others have no positive or no negative example"
            )
