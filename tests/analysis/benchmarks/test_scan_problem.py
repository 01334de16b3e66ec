"""The problem that is measured: its sizes, its determinism, its parts, and errors against float64."""

import math

import pytest
import torch
from bench_cases import SMALL, right, wrong

from msbench.analysis.benchmarks import problem
from msbench.analysis.benchmarks.problem import (
    NAMES,
    ScanReference,
    Size,
    compute_error,
    convert_to_double,
    crop_problem,
    explain_errors,
    make_problem,
    run_both,
    run_forward,
)
from msbench.ops.scan.reference import Arguments


def test_counts_are_those_of_the_tensors() -> None:
    given = make_problem(SMALL, "cpu")
    assert sum(x.numel() for x in given.arguments) == SMALL.arguments
    assert given.weight.numel() == SMALL.outputs == run_forward(right, given).numel()
    assert given.size == SMALL
    assert SMALL.states == 2 * 19 * 3 * 5 * 4


def test_numbers_are_the_same_every_time_and_no_generator_is_touched() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one, other = make_problem(SMALL, "cpu"), make_problem(SMALL, "cpu")
    assert torch.equal(before, torch.random.get_rng_state())
    for x, y in zip((*one.arguments, one.weight), (*other.arguments, other.weight), strict=True):
        assert torch.equal(x, y)


def test_rates_are_those_of_ms_ssm_and_steps_are_in_their_interval() -> None:
    _, dt, A, *_ = (x.detach() for x in make_problem(SMALL, "cpu").arguments)
    assert sorted((-A[:, 0]).flatten().tolist()) == list(range(1, 13))
    assert float((-A[-1]).max()) == 4  # the coarsest stream is the slowest
    assert 1e-3 <= float(dt.min()) < float(dt.max()) <= 0.1001


def test_a_part_has_the_very_same_numbers() -> None:
    whole = make_problem(SMALL, "cpu")
    part = crop_problem(whole, Size(1, 7, 3, 5, 4))
    assert part.size == Size(1, 7, 3, 5, 4)
    torch.testing.assert_close(run_forward(right, part), run_forward(right, whole)[:1, :7])
    assert crop_problem(whole, SMALL) is whole


def test_results_are_the_output_and_a_gradient_for_every_argument() -> None:
    given = make_problem(SMALL, "cpu")
    found = run_both(right, convert_to_double(given))
    assert len(found) == len(NAMES)
    for gradient, argument in zip(found[1:], given.arguments, strict=True):
        assert gradient.shape == argument.shape
        assert gradient.dtype == torch.float64
    # The derivative along mix, in which the output is linear.
    along = (found[-1] * given.arguments[-1].detach().double()).sum()
    assert float(along) == pytest.approx(float((found[0] * given.weight).sum()), rel=1e-9)


def test_halving_ends_at_one_step() -> None:
    size = Size(5, 4, 1, 1, 1)
    seen = [size]
    while seen[-1].tokens > 1:
        seen.append(seen[-1].halved())
    assert [(x.b, x.l) for x in seen] == [(5, 4), (2, 4), (1, 4), (1, 2), (1, 1)]
    assert seen[-1].halved() == seen[-1]


def test_a_right_scan_is_right_and_a_wrong_gradient_is_named() -> None:
    whole = make_problem(SMALL, "cpu")
    truth = ScanReference(whole, "cpu")
    errors = truth.errors(right, SMALL, run_both(right, whole))
    assert tuple(errors) == NAMES
    assert 0 < max(errors.values()) < 1e-5
    assert explain_errors(errors) == ""
    errors = truth.errors(wrong, SMALL, run_both(wrong, whole))
    assert errors["output"] < 1e-5
    assert errors["A"] == pytest.approx(0.5, rel=1e-3)
    assert explain_errors(errors) == "its gradient of A is off by 5.0e-01 (more than 1e-04)"


def test_large_problems_are_checked_on_their_first_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "LARGEST_CHECK", SMALL.states // 2)
    whole = make_problem(SMALL, "cpu")
    truth = ScanReference(whole, "cpu")
    assert truth.checked_size(SMALL) == Size(1, 19, 3, 5, 4)
    calls: list[Size] = []

    def scan(arguments: Arguments) -> torch.Tensor:
        u, A = arguments[0], arguments[2]
        b, length, m, d = u.shape
        calls.append(Size(b, length, m, d, A.shape[2]))
        return right(arguments)

    errors = truth.errors(scan, SMALL, run_both(right, whole))
    assert calls == [Size(1, 19, 3, 5, 4)]
    assert max(errors.values()) < 1e-5
    assert list(truth.known) == [Size(1, 19, 3, 5, 4)]


def test_a_shorter_problem_has_a_truth_of_its_own() -> None:
    whole = make_problem(SMALL, "cpu")
    truth, short = ScanReference(whole, "cpu"), Size(1, 6, 3, 5, 4)
    assert max(truth.errors(right, short, run_both(right, crop_problem(whole, short))).values()) < 1e-5


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_number_is_an_infinite_error(value: float) -> None:
    truth = torch.ones(3, dtype=torch.float64)
    assert compute_error(torch.tensor([1.0, value, 1.0]), truth) == math.inf
    assert compute_error(torch.ones(2), truth) == math.inf
    assert "off by inf" in explain_errors({"output": 0.0, "dt": math.inf})
    assert compute_error(torch.tensor([1.0, 1.5, 1.0]), 2 * truth) == 0.5
