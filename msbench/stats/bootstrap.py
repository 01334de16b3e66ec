"""The bootstrap over test examples: of a difference in accuracy, and of a macro AUROC or a difference of two.

Not `scipy.stats.bootstrap`, which would draw and evaluate every example of every sample: here a difference in
accuracy needs three counts per draw, and the scores of an AUROC are sorted once for all draws.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from msbench.stats.proportion import Interval, check_confidence
from msbench.training.auroc import macro_auroc, scorable

WEIGHTS = 250_000
"""Random numbers per batch: bounds the memory, and fits a cache."""


@dataclass(frozen=True)
class Paired:
    """First minus second, its percentile interval, and the two-sided p-value of no difference."""

    difference: float
    low: float
    high: float
    p: float


def bootstrap_difference(
    first_correct: NDArray[np.bool_],
    second_correct: NDArray[np.bool_],
    seed: int,
    draws: int = 10_000,
    confidence: float = 0.95,
) -> Paired:
    """Return the difference in accuracy of two models on the same examples (n,), resampled in pairs.

    An example counts as +1 (only the first is right), -1 (only the second) or 0, and the difference of a
    sample depends only on how many of each it has. Drawing n examples with replacement and counting them is
    drawing from the multinomial distribution over the three with the observed shares: exactly the same
    bootstrap, in memory of three numbers per draw. ValueError for unequal numbers of examples, or none.
    """
    if first_correct.shape != second_correct.shape or first_correct.ndim != 1 or not len(first_correct):
        raise ValueError(f"{first_correct.shape} and {second_correct.shape} answers are no pairs")
    n = len(first_correct)
    gained = int((first_correct & ~second_correct).sum())
    lost = int((~first_correct & second_correct).sum())
    shares = np.array([gained, lost, n - gained - lost]) / n
    counts = np.random.default_rng(seed).multinomial(n, shares, size=draws)
    return _compare((gained - lost) / n, (counts[:, 0] - counts[:, 1]) / n, confidence)


@dataclass(frozen=True)
class AurocInterval:
    """`value` is the macro AUROC of the examples; `mean`, `low` and `high` are those of the draws."""

    value: float
    low: float
    high: float
    mean: float


def bootstrap_auroc(
    labels: NDArray[np.integer],
    scores: NDArray[np.floating],
    seed: int,
    draws: int = 1_000,
    confidence: float = 0.95,
    *,
    every_class: bool = False,
) -> AurocInterval:
    """Return the percentile interval of the macro AUROC of `scores` against 0/1 `labels`, both (n, classes).

    Examples are drawn with replacement, with all their classes. As in `macro_auroc`, a class without a
    positive or without a negative example in a draw is left out of the mean of that draw; a draw that leaves
    out all classes is repeated. With `every_class` a draw that leaves out any is repeated, as for the
    published intervals of PTB-XL (Strodthoff et al. 2020), which are narrower where classes are rare.
    ValueError if no class can be scored, if fewer than one draw in a hundred is usable, or if a score is not
    a number.
    """
    value = _value(labels, scores)
    (drawn,) = _drawn(labels, [scores], seed, draws, every_class)
    found = _percentile_interval(drawn, confidence)
    return AurocInterval(value, found.low, found.high, float(drawn.mean()))


def bootstrap_auroc_difference(
    labels: NDArray[np.integer],
    first_scores: NDArray[np.floating],
    second_scores: NDArray[np.floating],
    seed: int,
    draws: int = 1_000,
    confidence: float = 0.95,
) -> Paired:
    """Return the difference in macro AUROC of two models on the same examples, with the same draws."""
    difference = _value(labels, first_scores) - _value(labels, second_scores)
    ours, theirs = _drawn(labels, [first_scores, second_scores], seed, draws)
    return _compare(difference, ours - theirs, confidence)


def _compare(difference: float, drawn: NDArray[np.float64], confidence: float) -> Paired:
    """Return interval and p-value from resampled differences (draws,).

    p is twice the smaller share of draws on or beyond 0, with the observed sample counted as one more draw in
    each: p is never 0 (Davison and Hinkley 1997).
    """
    found = _percentile_interval(drawn, confidence)
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    p = min(1.0, 2 * (beyond + 1) / (len(drawn) + 1))
    return Paired(difference, found.low, found.high, p)


def _percentile_interval(drawn: NDArray[np.float64], confidence: float) -> Interval:
    """Return Efron's (1979) percentile interval of resampled values (draws,)."""
    check_confidence(confidence)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(float(low), float(high))


def _value(labels: NDArray[np.integer], scores: NDArray[np.floating]) -> float:
    if labels.shape != scores.shape or labels.ndim != 2:
        raise ValueError(f"labels {labels.shape} and scores {scores.shape} must be (n, classes)")
    found = macro_auroc(scores, labels.astype(np.int64))
    if not found.scored:
        raise ValueError("no class has both a positive and a negative example")
    return found.value


def _drawn(
    labels: NDArray[np.integer],
    scores: Sequence[NDArray[np.floating]],
    seed: int,
    draws: int,
    every_class: bool = False,
) -> NDArray[np.float64]:
    """Return the macro AUROC of each draw, (models, draws), for each model's `scores`."""
    classes = np.flatnonzero(scorable(labels))
    ranked = [[_Ranked(labels[:, each], one[:, each]) for each in classes] for one in scores]
    left_out = np.any if every_class else np.all
    batches: list[NDArray[np.float64]] = []
    found = 0
    for weights in _weights(len(labels), seed, 100 * draws):
        values = np.stack([[rank.auroc(weights) for rank in ranks] for ranks in ranked])
        # The same classes can be scored for all models, as the labels are the same.
        kept = ~left_out(np.isnan(values[0]), axis=0)
        batches.append(np.nanmean(values[:, :, kept], axis=1))
        found += int(kept.sum())
        if found >= draws:
            return np.concatenate(batches, axis=1)[:, :draws]
    raise ValueError("hardly a draw has both outcomes of its classes: too few examples for a bootstrap")


def _weights(n: int, seed: int, most: int) -> Iterator[NDArray[np.int32]]:
    """Yield how often each example is drawn, (draws of a batch, n): `n` per draw, `most` draws in all."""
    source = np.random.default_rng(seed)
    size = max(1, WEIGHTS // n)
    for start in range(0, most, size):
        number = min(size, most - start)
        # Draw by draw, so that the batch size does not change the draws.
        places = source.integers(n, size=(number, n)) + n * np.arange(number)[:, None]
        yield np.bincount(places.ravel(), minlength=number * n).reshape(number, n).astype(np.int32)


class _Ranked:
    """The examples of one class, sorted once by score; a draw only reweights them.

    With positives of weight w and, for each, the weight of negatives with a lower (L) and an equal score (E),
    AUROC = Σ w (L + E/2) / (weight of positives · weight of negatives). So negatives are summed between the
    scores of the positives, and no draw is sorted.

    `positives` and `negatives` are the examples labelled 1 and 0, by score; for each positive, `below` is the
    number of negatives with a lower score, `not_above` that with a lower or an equal one.
    """

    def __init__(self, labels: NDArray[np.integer], scores: NDArray[np.floating]) -> None:
        order = np.argsort(scores, kind="stable")
        self.positives, self.negatives = order[labels[order] == 1], order[labels[order] == 0]
        held, against = scores[self.positives], scores[self.negatives]
        self.below = np.searchsorted(against, held, side="left")
        self.not_above = np.searchsorted(against, held, side="right")

    def auroc(self, weights: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the AUROC of each draw (draws,) from weights (draws, n); NaN if one label is absent."""
        won = np.zeros((len(weights), len(self.negatives) + 1), dtype=np.int32)
        np.cumsum(weights.take(self.negatives, axis=1), axis=1, out=won[:, 1:])
        held = weights.take(self.positives, axis=1)
        twice_won = won.take(self.below, axis=1) + won.take(self.not_above, axis=1)
        twice = np.einsum("dn,dn->d", held, twice_won, dtype=np.int64)
        pairs = held.sum(axis=1, dtype=np.int64) * won[:, -1]
        with np.errstate(invalid="ignore"):
            value: NDArray[np.float64] = twice / (2 * pairs)
        return value
