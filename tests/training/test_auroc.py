from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from msbench.training.auroc import macro_auroc


def by_pairs(scores: list[float], labels: list[int]) -> float:
    """The definition: of all pairs of a positive and a negative, the share that is ranked right."""
    positives = [score for score, label in zip(scores, labels, strict=True) if label]
    negatives = [score for score, label in zip(scores, labels, strict=True) if not label]
    pairs = list(product(positives, negatives))
    return sum(1.0 if high > low else 0.5 * (high == low) for high, low in pairs) / len(pairs)


def one(scores: list[float], labels: list[int]) -> float:
    return macro_auroc(np.array(scores)[:, None], np.array(labels)[:, None]).value


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=2, max_size=30))
def test_it_is_the_share_of_pairs_ranked_right(pairs: list[tuple[int, int]]) -> None:
    scores, labels = [float(score) for score, _ in pairs], [label for _, label in pairs]
    if len(set(labels)) == 1:
        assert np.isnan(one(scores, labels))
    else:
        assert one(scores, labels) == by_pairs(scores, labels)


ENDS = {
    (1.0, 2.0, 3.0, 4.0): 1.0,
    (4.0, 3.0, 2.0, 1.0): 0.0,
    (7.0, 7.0, 7.0, 7.0): 0.5,
    (1.0, 3.0, 3.0, 4.0): 0.875,
    (-np.inf, 0.0, 0.0, np.inf): 0.875,
}


@pytest.mark.parametrize(("scores", "value"), ENDS.items())
def test_the_ends_and_the_ties(scores: tuple[float, ...], value: float) -> None:
    assert one(list(scores), [0, 0, 1, 1]) == value


def test_classes_are_averaged_and_agree_with_scipy() -> None:
    source = np.random.default_rng(0)
    labels = (source.random((500, 7)) < 0.1).astype(np.int64)
    scores = np.round(source.standard_normal((500, 7)) + labels, 1).astype(np.float32)
    each = [
        mannwhitneyu(column[label == 1], column[label == 0]).statistic / (label.sum() * (1 - label).sum())
        for column, label in zip(scores.T, labels.T, strict=True)
    ]
    found = macro_auroc(scores, labels)
    assert found.value == pytest.approx(np.mean(each), rel=1e-14)
    assert (found.scored, found.left_out) == (7, 0)


def test_a_class_of_one_kind_is_left_out_and_counted() -> None:
    labels = np.array([[0, 1, 0], [1, 1, 0], [1, 1, 0]])
    scores = np.array([[0.5, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    found = macro_auroc(scores, labels)
    assert (found.value, found.scored, found.left_out) == (0.5, 1, 2)
    none = macro_auroc(scores[:, 1:], labels[:, 1:])
    assert np.isnan(none.value)
    assert (none.scored, none.left_out) == (0, 2)


def test_a_score_that_is_no_number_has_no_rank() -> None:
    with pytest.raises(ValueError, match="no rank"):
        one([0.0, np.nan], [0, 1])


@pytest.mark.parametrize(("name", "published"), [("test", 0.9254358590055028), ("val", 0.9280807631416982)])
def test_published_predictions_have_the_published_value(
    name: str, published: float, sample: Callable[..., Path]
) -> None:
    path = sample("ptbxl-reference-predictions", f"{name}.npz")
    with np.load(path) as arrays:
        found = macro_auroc(arrays["y_pred"], arrays["y_true"].astype(np.int64))
    # The published value is a sum of trapezoids, which rounds more often: two units in the last place.
    assert found.value == pytest.approx(published, rel=0, abs=2.3e-16)
    assert (found.scored, found.left_out) == (71, 0)
