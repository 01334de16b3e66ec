"""Bounds by hand; the rates of this machine are numbers."""

import pytest

from msbench.bench.problem import Size, problem
from msbench.bench.roofline import Rates, measured, traffic

SIZE = Size(1, 10, 2, 8, 4)  # 640 states


def test_bounds_on_a_cpu() -> None:
    rates = Rates("cpu", lanes=11e3, exponentials=1.0, bytes=1e9)
    assert rates.bound(SIZE, backward=False)[0] == "ports"
    assert rates.bounds(SIZE, backward=False)["ports"] == pytest.approx(640 * 11 / 11e3)
    assert rates.bounds(SIZE, backward=True)["ports"] == pytest.approx(640 * 30 / 11e3)
    slow = Rates("cpu", lanes=1e12, exponentials=1.0, bytes=1e3)
    name, seconds = slow.bound(SIZE, backward=False)
    assert (name, seconds) == ("memory", traffic(SIZE, backward=False) / 1e3)


def test_bounds_on_a_gpu_are_those_of_the_roofline_of_an_h100() -> None:
    clocks = 132 * 1.755e9
    rates = Rates("cuda", 128 * clocks, 16 * clocks, 3e12)
    token_channel = 1e12 / (1024 * 128)
    size = Size(1, 1024, 5, 128, 26)
    forward = rates.bounds(size, backward=False)
    both = rates.bounds(size, backward=True)
    assert forward["exp"] * token_channel == pytest.approx(35, abs=1)
    assert forward["issue"] * token_channel == pytest.approx(26, abs=1)
    assert both["issue"] * token_channel == pytest.approx(26 + 88, abs=2)
    assert rates.bound(size, backward=False)[0] == "exp"
    assert rates.bound(size, backward=True)[0] == "issue"


def test_traffic_counts_every_tensor_once_a_pass() -> None:
    given = problem(SIZE, "cpu")
    inputs = sum(4 * x.numel() for x in given.arguments)
    output = 4 * given.weight.numel()
    assert traffic(SIZE, backward=False) == inputs + output
    assert traffic(SIZE, backward=True) == 3 * inputs + 2 * output


def test_the_better_of_two_measurements_counts() -> None:
    one, other = Rates("cpu", 1.0, 5.0, 2.0), Rates("cpu", 3.0, 4.0, 2.0)
    assert one.best(other) == Rates("cpu", 3.0, 5.0, 2.0)


def test_rates_of_this_machine() -> None:
    found = measured("cpu")
    assert min(found.lanes, found.exponentials, found.bytes) > 1e6
    assert set(found.as_dict()) == {"fma_per_second", "exp_per_second", "copy_bytes_per_second", "source"}
