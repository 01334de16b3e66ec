import numpy as np

from msbench.datasets.majority import majority


def test_it_is_learned_on_train_and_counted_on_test() -> None:
    assert majority(np.array([1, 0, 1]), np.array([1, 0, 0, 0])) == 0.25
    assert majority(np.array([1, 0]), np.array([0, 0, 0, 1])) == 0.75
