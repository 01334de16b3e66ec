"""The problem that is measured: its sizes, its determinism, its parts."""

import pytest
import torch
from bench_cases import SMALL, right

from msbench.analysis.benchmarks.problem import NAMES, Size, double, first, forward, problem, results


def test_counts_are_those_of_the_tensors() -> None:
    given = problem(SMALL, "cpu")
    assert sum(x.numel() for x in given.arguments) == SMALL.arguments
    assert given.weight.numel() == SMALL.outputs == forward(right, given).numel()
    assert given.size == SMALL
    assert SMALL.states == 2 * 19 * 3 * 5 * 4


def test_numbers_are_the_same_every_time_and_no_generator_is_touched() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one, other = problem(SMALL, "cpu"), problem(SMALL, "cpu")
    assert torch.equal(before, torch.random.get_rng_state())
    for x, y in zip((*one.arguments, one.weight), (*other.arguments, other.weight), strict=True):
        assert torch.equal(x, y)


def test_rates_are_those_of_ms_ssm_and_steps_are_in_their_interval() -> None:
    _, dt, A, *_ = (x.detach() for x in problem(SMALL, "cpu").arguments)
    assert sorted((-A[:, 0]).flatten().tolist()) == list(range(1, 13))
    assert float((-A[-1]).max()) == 4  # the coarsest stream is the slowest
    assert 1e-3 <= float(dt.min()) < float(dt.max()) <= 0.1001


def test_a_part_has_the_very_same_numbers() -> None:
    whole = problem(SMALL, "cpu")
    part = first(whole, Size(1, 7, 3, 5, 4))
    assert part.size == Size(1, 7, 3, 5, 4)
    torch.testing.assert_close(forward(right, part), forward(right, whole)[:1, :7])
    assert first(whole, SMALL) is whole


def test_results_are_the_output_and_a_gradient_for_every_argument() -> None:
    given = problem(SMALL, "cpu")
    found = results(right, double(given))
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
