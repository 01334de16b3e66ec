from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from msbench.stats import bootstrap
from msbench.stats.bootstrap import bootstrap_auroc, bootstrap_auroc_difference
from msbench.training.auroc import macro_auroc

Labels = NDArray[np.int64]
Scores = NDArray[np.float64]


def examples(n: int = 300, classes: int = 4, share: float = 0.2, seed: int = 0) -> tuple[Labels, Scores]:
    """Labels and scores that know something of them, with many ties."""
    source = np.random.default_rng(seed)
    labels = (source.random((n, classes)) < share).astype(np.int64)
    return labels, np.round(source.standard_normal((n, classes)) + labels, 1)


def by_drawing_examples(labels: Labels, scores: Scores, draws: int) -> Scores:
    """The first draws that have a value, from the generator that the package uses."""
    chosen = np.random.default_rng(0).integers(len(labels), size=(2 * draws, len(labels)))
    found = np.array([macro_auroc(scores[each], labels[each]).value for each in chosen])
    return np.array(found[~np.isnan(found)][:draws])


@pytest.mark.parametrize("share", [0.2, 0.01])
def test_each_draw_is_the_macro_auroc_of_its_examples(share: float) -> None:
    """At 1 % many draws lack a class, and some lack all."""
    labels, scores = examples(150, share=share)
    expected = by_drawing_examples(labels, scores, 200)
    found = bootstrap_auroc(labels, scores, seed=0, draws=200)
    assert found.value == macro_auroc(scores, labels).value
    assert found.mean == pytest.approx(expected.mean(), rel=1e-13)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])), rel=1e-13)


def test_draws_with_every_class_are_those_of_which_none_is_left_out() -> None:
    labels, scores = examples(150, share=0.01)
    chosen = np.random.default_rng(0).integers(150, size=(2_000, 150))
    found = [macro_auroc(scores[each], labels[each]) for each in chosen]
    complete = [each.value for each in found if each.left_out == 0][:100]
    assert len(complete) == 100
    interval = bootstrap_auroc(labels, scores, 0, draws=100, every_class=True)
    assert interval.mean == pytest.approx(np.mean(complete), rel=1e-13)


def test_no_end_of_drawing_where_a_class_will_not_come() -> None:
    labels = np.eye(40, 20, dtype=np.int64)
    with pytest.raises(ValueError, match="hardly a draw"):
        bootstrap_auroc(labels, labels.astype(float), 0, draws=5, every_class=True)


def test_the_size_of_a_batch_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, scores = examples()
    whole = bootstrap_auroc(labels, scores, 1, draws=100)
    monkeypatch.setattr(bootstrap, "WEIGHTS", 7 * len(labels))
    assert bootstrap_auroc(labels, scores, 1, draws=100) == whole


def test_a_class_of_one_kind_is_left_out_of_all_draws() -> None:
    labels, scores = examples()
    alone = bootstrap_auroc(labels, scores, 0, draws=50)
    none = np.zeros((len(labels), 1), dtype=np.int64)
    more = np.hstack([labels, none, 1 - none]), np.hstack([scores, none, none])
    with_more = bootstrap_auroc(*more, 0, draws=50)
    assert with_more == alone
    with pytest.raises(ValueError, match="no class has both"):
        bootstrap_auroc(none, none.astype(float), 0)


def test_scores_without_rank_or_of_another_shape_are_refused() -> None:
    labels, scores = examples()
    with pytest.raises(ValueError, match="must be"):
        bootstrap_auroc(labels, scores[:, :2], 0)
    scores[0, 0] = np.nan
    with pytest.raises(ValueError, match="no rank"):
        bootstrap_auroc(labels, scores, 0)


def test_pairs_are_of_the_same_draws() -> None:
    labels, scores = examples()
    worse = scores + np.random.default_rng(9).standard_normal(scores.shape)
    same = bootstrap_auroc_difference(labels, scores, scores, 0, draws=99)
    assert (same.difference, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)
    found = bootstrap_auroc_difference(labels, scores, worse, 0, draws=999)
    expected = by_drawing_examples(labels, scores, 999) - by_drawing_examples(labels, worse, 999)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])), rel=1e-12)
    assert found.low > 0
    assert found.p == 2 / 1000


def test_it_covers_the_true_value() -> None:
    """Normal scores one sd apart have an AUROC of Φ(1/√2) = 0.7602."""
    trials, within = 300, 0
    for seed in range(trials):
        source = np.random.default_rng(seed)
        labels = (source.random((200, 3)) < 0.4).astype(np.int64)
        scores = source.standard_normal((200, 3)) + labels
        found = bootstrap_auroc(labels, scores, 0, draws=200)
        within += found.low <= 0.7602499389 <= found.high
    assert within / trials == pytest.approx(0.95, abs=0.05)


PUBLISHED = {
    "test": (0.9254358590055028, 0.9248700603532448, 0.9185230258692298, 0.9314845724252189),
    "val": (0.9280807631416982, 0.9276849901640856, 0.9225217909417082, 0.9343466715662667),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_is_near_the_published_interval(name: str, sample: Callable[..., Path]) -> None:
    """Published are the 5th and 95th percentiles of 100 draws that have a positive of every class.

    So few have a standard error of about 0.0008 at the ends and 0.0005 in the mean.
    """
    value, mean, low, high = PUBLISHED[name]
    with np.load(sample("ptbxl-reference-predictions", f"{name}.npz")) as arrays:
        labels, scores = arrays["y_true"], arrays["y_pred"]
    found = bootstrap_auroc(labels, scores, seed=0, draws=200, confidence=0.9, every_class=True)
    assert found.value == pytest.approx(value, rel=0, abs=2.3e-16)
    assert found.mean == pytest.approx(mean, abs=0.0015)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.0025)
    ours = bootstrap_auroc(labels, scores, seed=0, draws=200, confidence=0.9)
    assert ours.high - ours.low > high - low, "one or two positives a class: leaving classes out adds spread"
