"""Macro AUROC: ranking quality of scores, averaged over classes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class MacroAuroc:
    """A macro AUROC: `value` is the mean over the classes that were scored, NaN if there are none.

    A class without a positive or without a negative example has no AUROC: it is left out and counted, not
    scored 0 or 0.5.
    """

    value: float
    scored: int
    left_out: int


def macro_auroc(scores: NDArray[np.floating], labels: NDArray[np.int64]) -> MacroAuroc:
    """Compute macro AUROC from `scores` (n, classes), higher for more likely, and 0/1 `labels` (n, classes).

    The AUROC of a class is the share of pairs of a positive and a negative example that its scores rank
    correctly, equal scores counting one half: that of scikit-learn, by ranks instead of by a curve. Raises
    ValueError if a score is NaN, which has no rank.
    """
    if np.isnan(scores).any():
        raise ValueError("scores that are no numbers have no rank")
    chosen = scorable(labels)
    values = [_auroc(scores[:, each], labels[:, each]) for each in np.flatnonzero(chosen)]
    mean = float(np.mean(values)) if values else float("nan")
    return MacroAuroc(mean, len(values), len(chosen) - len(values))


def scorable(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return True for each class (classes,) that has both a positive and a negative example."""
    mixed: NDArray[np.bool_] = labels.min(axis=0) < labels.max(axis=0)
    return mixed


def _auroc(scores: NDArray[np.floating], labels: NDArray[np.int64]) -> float:
    """Compute Mann and Whitney's U over the number of pairs, in integers up to the one division."""
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    twice_rank = (
        2 * sizes.cumsum() - sizes + 1
    )  # equal scores have the mean of their ranks, doubled to be whole
    positives = int(labels.sum())
    negatives = len(labels) - positives
    twice_u = int(twice_rank[group][labels == 1].sum()) - positives * (positives + 1)
    return twice_u / (2 * positives * negatives)
