import numpy as np
import pytest

from msbench.data.pathfinder_statistics import Estimate, statistics


def test_statistics_of_images_that_can_be_told_by_hand() -> None:
    images = np.zeros((4, 3, 3), np.uint8)
    images[:, 1, 1] = (90, 90, 180, 180)
    images[:, 1, 2] = 90
    found = statistics(images, np.array([0, 0, 1, 1]))
    assert found["label"].mean == 0.5
    assert found["label"].error == pytest.approx(np.sqrt(1 / 3) / 2)
    assert found["brightness"].mean == 25
    assert found["brightness, label 0"] == Estimate(20, 0)
    assert found["brightness, label 1"] == Estimate(30, 0)
    assert found["lit"] == found["not black"]
    assert found["lit"].mean == pytest.approx(2 / 9)
    assert found["lit"].error == 0
    assert found["brightest"].mean == 135
    assert found["distance from the middle"].mean == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found["neighbours in a row"].mean > 0 > found["neighbours in a column"].mean


def test_deviations_count_standard_errors() -> None:
    assert Estimate(2.0, 0.3).deviations(Estimate(1.0, 0.4)) == pytest.approx(2)
    assert Estimate(1.0, 0.0).deviations(Estimate(1.0, 0.0)) == 0
    assert Estimate(1.0, 0.0).deviations(Estimate(2.0, 0.0)) == -np.inf
