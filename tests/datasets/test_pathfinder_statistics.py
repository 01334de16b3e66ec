import numpy as np
import pytest
from pathfinder_statistics import Estimate, find_markers, statistics

from msbench.datasets.pathfinder.parameters import find_preset
from msbench.datasets.pathfinder.tables import add_marker


def test_statistics_of_images_that_can_be_computed_by_hand() -> None:
    images = np.zeros((4, 3, 3), np.uint8)
    images[:, 1, 1] = (90, 90, 180, 180)
    images[:, 1, 2] = 90
    found = statistics(images, np.array([0, 0, 1, 1]), radius=0.5)
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


def test_markers_are_found_where_they_were_drawn() -> None:
    parameters = find_preset(128, "curv_contour_length_14")
    images = np.zeros((2, 128, 128), np.uint8)
    tips = np.array([[(3, 9), (80, 70)], [(122, 64), (64, 124)]])
    for image, pair in zip(images, tips.tolist(), strict=True):
        image[20:100, 40] = 200  # a line is no disc
        for y, x in pair:
            add_marker(image, (y, x), parameters)
    for image, pair in zip(np.stack(find_markers(images, 3.0), axis=1).tolist(), tips.tolist(), strict=True):
        assert sorted(image) == sorted(pair)
    twice, labels = np.concatenate([images, images]), np.array([0, 1, 1, 0])
    distance = statistics(twice, labels, radius=3.0)["distance of markers"].mean
    assert distance == pytest.approx(np.hypot(*(tips[:, 0] - tips[:, 1]).T).mean())


def test_deviations_count_standard_errors() -> None:
    assert Estimate(2.0, 0.3).deviations(Estimate(1.0, 0.4)) == pytest.approx(2)
    assert Estimate(1.0, 0.0).deviations(Estimate(1.0, 0.0)) == 0
    assert Estimate(1.0, 0.0).deviations(Estimate(2.0, 0.0)) == -np.inf
