"""Errors against float64: found where they are, infinite where there is no number."""

import math

import pytest
import torch
from bench_cases import SMALL, right, wrong

from msbench.analysis.benchmarks import accuracy
from msbench.analysis.benchmarks.accuracy import Truth, error, verdict
from msbench.analysis.benchmarks.problem import NAMES, Size, first, problem, results
from msbench.ops.scan.reference import Arguments


def test_a_right_scan_is_right_and_a_wrong_gradient_is_named() -> None:
    whole = problem(SMALL, "cpu")
    truth = Truth(whole, "cpu")
    errors = truth.errors(right, SMALL, results(right, whole))
    assert tuple(errors) == NAMES
    assert 0 < max(errors.values()) < 1e-5
    assert verdict(errors) == ""
    errors = truth.errors(wrong, SMALL, results(wrong, whole))
    assert errors["output"] < 1e-5
    assert errors["A"] == pytest.approx(0.5, rel=1e-3)
    assert verdict(errors) == "its gradient of A is off by 5.0e-01 (more than 1e-04)"


def test_large_problems_are_checked_on_their_first_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "LARGEST", SMALL.states // 2)
    whole = problem(SMALL, "cpu")
    truth = Truth(whole, "cpu")
    assert truth.checked_size(SMALL) == Size(1, 19, 3, 5, 4)
    calls: list[Size] = []

    def scan(arguments: Arguments) -> torch.Tensor:
        u, A = arguments[0], arguments[2]
        b, length, m, d = u.shape
        calls.append(Size(b, length, m, d, A.shape[2]))
        return right(arguments)

    errors = truth.errors(scan, SMALL, results(right, whole))
    assert calls == [Size(1, 19, 3, 5, 4)]
    assert max(errors.values()) < 1e-5
    assert list(truth.known) == [Size(1, 19, 3, 5, 4)]


def test_a_shorter_problem_has_a_truth_of_its_own() -> None:
    whole = problem(SMALL, "cpu")
    truth, short = Truth(whole, "cpu"), Size(1, 6, 3, 5, 4)
    assert max(truth.errors(right, short, results(right, first(whole, short))).values()) < 1e-5


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_number_is_an_infinite_error(value: float) -> None:
    truth = torch.ones(3, dtype=torch.float64)
    assert error(torch.tensor([1.0, value, 1.0]), truth) == math.inf
    assert error(torch.ones(2), truth) == math.inf
    assert "off by inf" in verdict({"output": 0.0, "dt": math.inf})
    assert error(torch.tensor([1.0, 1.5, 1.0]), 2 * truth) == 0.5
