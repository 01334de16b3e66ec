"""Bounds by hand; what measures them computes what it says, on every instruction set and any threads."""

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from bench_cases import modest_rates

from msbench.analysis.benchmarks import bounds
from msbench.analysis.benchmarks.bounds import (
    ArithmeticLoop,
    PeakRates,
    RateGauge,
    RateMeter,
    TrafficLoop,
    count_traffic,
    make_cpu_rates,
    make_gpu_rates,
)
from msbench.analysis.benchmarks.measurement import time_in_turns
from msbench.analysis.benchmarks.problem import Size, make_problem
from msbench.errors import ConfigError
from msbench.ops import native_library
from msbench.ops.scan import native_engine

SIZE = Size(1, 10, 2, 8, 4)  # 640 states
BUILT = native_library.load_library() is not None
needs_library = pytest.mark.skipif(not BUILT, reason="the C++ kernels were not built")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    modest_rates(monkeypatch)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def bound(rates: PeakRates, size: Size, *, backward: bool) -> tuple[str, float]:
    found = rates.bound(size, backward=backward)
    assert found is not None
    return found


def test_bounds_on_a_cpu_are_the_sums_of_both_passes() -> None:
    rates = make_cpu_rates((640e3, 320e3), (1e9, 1e9))
    assert bound(rates, SIZE, backward=False)[0] == bound(rates, SIZE, backward=True)[0] == "registers"
    assert bound(rates, SIZE, backward=False)[1] == pytest.approx(1e-3)
    assert bound(rates, SIZE, backward=True)[1] == pytest.approx(1e-3 + 2e-3)
    (read, written), (again, gradients) = count_traffic(SIZE)
    slow = make_cpu_rates((1e12, 1e12), (4e3, 2e3))
    assert bound(slow, SIZE, backward=False)[0] == bound(slow, SIZE, backward=True)[0] == "memory"
    forward, backward = (read + written) / 1e3, (again + gradients) / 500
    assert bound(slow, SIZE, backward=False)[1] == pytest.approx(forward)
    assert bound(slow, SIZE, backward=True)[1] == pytest.approx(forward + backward)


def test_bounds_on_a_gpu_are_those_of_the_roofline_of_an_h100() -> None:
    rates = make_gpu_rates(132 * 1.755e9, 3e12)
    token_channel = 1e12 / (1024 * 128)
    size = Size(1, 1024, 5, 128, 26)
    forward = rates.bounds(size, backward=False)
    both = rates.bounds(size, backward=True)
    assert forward["exp"] * token_channel == pytest.approx(35, abs=1)
    assert forward["issue"] * token_channel == pytest.approx(26, abs=1)
    assert both["issue"] * token_channel == pytest.approx(26 + 88, abs=2)
    assert bound(rates, size, backward=False)[0] == "exp"
    assert bound(rates, size, backward=True)[0] == "issue"


def test_traffic_counts_every_tensor_once_a_pass() -> None:
    given = make_problem(SIZE, "cpu")
    inputs, output = sum(x.numel() for x in given.arguments), given.weight.numel()
    assert count_traffic(SIZE) == ((inputs, output), (inputs + output, inputs))


@needs_library
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("n", [1, 16, 26, 100])
@pytest.mark.parametrize("instructions", [0, 1, 2, 3])
def test_the_arithmetic_is_that_of_a_scan(
    instructions: int, n: int, backward: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the loop leaves in its registers is checked by the call itself: see the next test."""
    monkeypatch.setattr(native_library, "instructions", instructions)
    library = native_library.load_library()
    assert library is not None
    chosen = library.msbench_scan_instructions(
        ctypes.byref(native_engine.ScanProblem(instructions=instructions))
    )
    lanes = {1: 4, 2: 8, 3: 16}[chosen]
    passes = -(-bounds.PASSES // n) * n
    assert ArithmeticLoop(n, backward)() == passes * 4 * lanes * threads


@needs_library
def test_another_result_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of one part in a thousand of any number that goes in."""
    for name in ("DT", "RATE", "LAST"):
        for n, backward in ((1, True), (26, True)) if name != "LAST" else ((26, True), (26, False)):
            with monkeypatch.context() as patch:
                patch.setattr(bounds, name, getattr(bounds, name) * 1.001)
                with pytest.raises(RuntimeError, match="the loop of the registers bound computed"):
                    ArithmeticLoop(n, backward)()


@needs_library
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("instructions", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(1, 1), (77, 1_000_003), (1_000_003, 77)])
def test_traffic_reads_and_writes_all_of_it(
    instructions: int, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "instructions", instructions)
    found = TrafficLoop(*sizes)
    assert found() == 4 * sum(sizes)
    assert bool((found.target == float(bounds.FILLED)).all())
    found.source[-1] = 2
    with pytest.raises(RuntimeError, match=f"read {sizes[0] + 1} of {sizes[0]} numbers"):
        found()


def test_of_a_problem_that_no_cache_holds_a_part_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_READ", 1000)
    found = TrafficLoop(4000, 400)
    assert (found.source.numel(), found.target.numel()) == (1000, 100)


def test_decays_of_the_measured_problem_are_made_as_the_loop_makes_them() -> None:
    """In the cheapest way, ``Decay::NEARER`` of lanes.inl: one exponential in 16, series for the rest."""
    _, dt, A, *_ = (x.detach() for x in make_problem(Size(1, 64, 5, 8, 26), "cpu").arguments)
    assert float(dt.max() * A.diff(dim=2).abs().max()) * np.log2(np.e) < 0.15


def test_the_fastest_call_counts() -> None:
    done = RateGauge(lambda: 6.0, "cpu")
    done.call.wall = [3.0, 2.0, 4.0]
    assert done.rate == 3.0


def test_a_bound_that_fails_is_no_bound() -> None:
    calls: list[int] = []

    def work() -> float:
        calls.append(1)
        if len(calls) > 1 + bounds.WARM:
            raise RuntimeError("wrong")
        return 1.0

    failing = RateGauge(work, "cpu")
    time_in_turns([failing.call], 3)
    with pytest.raises(RuntimeError, match="a bound cannot be measured: RuntimeError: wrong"):
        _ = failing.rate


@needs_library
def test_rates_of_this_machine() -> None:
    meter = RateMeter(SIZE, "cpu")
    time_in_turns(meter.calls, 3)
    rates = meter.rates()
    assert set(rates.bounds(SIZE, backward=True)) == {"registers", "memory"}
    numbers = {name: value for name, value in rates.facts.items() if name != "source"}
    assert len(numbers) == 4
    assert min(numbers.values()) > 0


def test_without_the_library_there_is_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "load_library", lambda: None)
    meter = bounds.RateMeter(SIZE, "cpu")
    assert meter.calls == []
    assert meter.rates().bound(SIZE, backward=True) is None
    assert meter.rates().facts == {"source": "no bounds: the C++ kernels are not installed"}


@needs_library
def test_a_library_from_an_older_source_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FUNCTIONS", ("msbench_bound_of_tomorrow",))
    with pytest.raises(ConfigError, match="was built from an older msbench: install it again"):
        RateMeter(SIZE, "cpu")
