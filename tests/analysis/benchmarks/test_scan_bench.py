"""The benchmark of the scan on tiny problems: rows, faults, wrong numbers, order."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from bench_cases import SMALL, broken, contender, modest_rates, right, silent, wrong
from torch import Tensor

from msbench.analysis.benchmarks import bounds, measurement, scan
from msbench.analysis.benchmarks.bounds import make_cpu_rates
from msbench.analysis.benchmarks.contenders import choose_contenders
from msbench.analysis.benchmarks.measurement import TimedCall, explain_no_peak, time_in_turns
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.analysis.benchmarks.problem import NAMES, Size
from msbench.ops import native_library
from msbench.ops.scan.dispatch import KERNELS, choose_kernel
from msbench.ops.scan.reference import Arguments

OPTIONS = BenchmarkOptions(repeats=3, scaling=False, size=SMALL)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    modest_rates(monkeypatch)


def measured(*who: Any, options: BenchmarkOptions = OPTIONS) -> dict[str, dict[str, Any]]:
    found = scan.measure_scan(options, silent, list(who))
    return {row["name"]: row for row in found["rows"]}


def test_every_kernel_and_peer_has_a_row() -> None:
    # Triton's interpreter takes most of a second for every step.
    found = scan.measure_scan(replace(OPTIONS, size=Size(1, 3, 2, 4, 3)), silent)
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == [one.name for one in choose_contenders()]
    here = [name for name, kernel in KERNELS.items() if not kernel.missing("cpu")]
    for name in here:
        assert rows[name]["status"] == "measured", rows[name]
        assert rows[name]["label"] == KERNELS[name].label()
    assert rows["accelerated-scan"]["status"] == "skipped"
    assert "needs a CUDA device" in rows["accelerated-scan"]["reason"]
    assert found["size"] == {"b": 1, "l": 3, "m": 2, "d": 4, "n": 3}
    assert found["scaling"] == []


def test_what_a_row_says_follows_from_its_times() -> None:
    row = measured(contender("reference"), contender("mambapy"))["mambapy"]
    for mode in ("forward", "forward_backward"):
        times = row[mode]
        assert 0 < times["p20"] <= times["median"] <= times["p80"]
        assert times["calls"] >= 3
        assert times["tokens_per_second"] == pytest.approx(38 / times["median"])
        assert times["states_per_second"] == pytest.approx(SMALL.states / times["median"])
    assert row["first_call_s"] > 0
    assert row["over_peer"] == {"forward": 1.0, "forward_backward": 1.0}
    assert set(row["over_loop"]) == {"forward", "forward_backward"}
    assert 0 < max(row["errors"].values()) < 1e-5
    assert row["bit_equal"] == {"runs": True, "threads": True}
    if not explain_no_peak():
        assert row["peak_bytes"] >= 0


def test_wrong_numbers_make_a_row_invalid_without_times_and_ratios() -> None:
    rows = measured(contender("reference"), contender("wrong", wrong))
    assert rows["reference"]["status"] == "measured"
    row = rows["wrong"]
    assert (row["status"], row["reason"]) == (
        "invalid",
        "its gradient of A is off by 5.0e-01 (more than 1e-04)",
    )
    assert row["errors"]["A"] == pytest.approx(0.5, rel=1e-3)
    assert not {"forward", "forward_backward", "over_loop", "peak_bytes"} & set(row)


def with_bounds(monkeypatch: pytest.MonkeyPatch, updates: float, moved: float = 1e30) -> None:
    """A machine that is as fast as this."""
    rates = make_cpu_rates((updates, updates), (moved, moved))
    monkeypatch.setattr(bounds.RateMeter, "rates", lambda _self: rates)


@pytest.mark.parametrize(("updates", "moved", "name"), [(1.0, 1e30, "registers"), (1e30, 1.0, "memory")])
def test_a_time_below_the_bound_makes_a_row_invalid(
    updates: float, moved: float, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At one update or one byte a second the small problem would take minutes."""
    with_bounds(monkeypatch, updates, moved)
    row = measured(contender("reference"))["reference"]
    assert row["status"] == "invalid"
    assert row["reason"].startswith(f"the bound '{name}' is wrong: forward took ")
    assert not {"forward", "forward_backward", "over_loop", "peak_bytes", "note"} & set(row)
    assert set(row["errors"]) == set(NAMES)


@pytest.mark.parametrize(("share", "fault"), [(0.5, False), (1.0, False), (1.001, True)])
def test_only_a_share_above_one_is_impossible(share: float, fault: bool) -> None:
    fine = {"bound": "memory", "bound_s": 1.0, "of_bound": 0.2, "median": 5.0}
    both = {"bound": "registers", "bound_s": 2.0 * share, "of_bound": share, "median": 2.0}
    found = scan.explain_impossible({"forward": fine, "forward_backward": both})
    expected = (
        "the bound 'registers' is wrong: forward and backward took 2 s, and at best would have taken 2 s"
    )
    assert found == (expected if fault else "")


def test_a_share_is_the_bound_over_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    with_bounds(monkeypatch, 1e12)
    row = measured(contender("reference"))["reference"]
    for mode, passes in (("forward", 1), ("forward_backward", 2)):
        assert row[mode]["bound"] == "registers"
        assert row[mode]["bound_s"] == pytest.approx(passes * SMALL.states / 1e12)
        assert row[mode]["of_bound"] == pytest.approx(passes * SMALL.states / 1e12 / row[mode]["median"])


def test_bounds_have_turns_among_those_of_the_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watched(calls: Sequence[TimedCall], repeats: int, say: Any) -> None:
        time_in_turns(calls, repeats, say)
        seen.extend(len(call.wall) for call in calls)

    monkeypatch.setattr(measurement, "time_in_turns", watched)
    found = scan.measure_scan(OPTIONS, silent, [contender("reference")])
    gauges = 0 if native_library.load_library() is None else 4
    assert len(seen) == gauges + 2
    assert min(seen) >= OPTIONS.repeats
    assert len(found["rates"]) == 1 + gauges


def test_without_the_library_a_row_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "load_library", lambda: None)
    found = scan.measure_scan(OPTIONS, silent, [contender("reference")])
    (row,) = found["rows"]
    assert row["status"] == "measured"
    assert [row["forward"][key] for key in ("bound", "bound_s", "of_bound")] == [None] * 3
    assert found["rates"] == {"source": "no bounds: the C++ kernels are not installed"}
    json.dumps(found, allow_nan=False)


def test_no_number_is_invalid_and_still_a_document() -> None:
    def nowhere(arguments: Arguments) -> Tensor:
        return right(arguments) * float("nan")

    row = measured(contender("nan", nowhere))["nan"]
    assert row["status"] == "invalid"
    assert row["errors"]["output"] is None


def test_an_error_marks_its_row_and_the_others_go_on() -> None:
    rows = measured(
        contender("broken", broken), contender("absent", missing="not built"), contender("reference")
    )
    assert (rows["broken"]["status"], rows["broken"]["reason"]) == ("failed", "RuntimeError: no kernel image")
    assert (rows["absent"]["status"], rows["absent"]["reason"]) == ("skipped", "not built")
    assert rows["reference"]["status"] == "measured"


def test_a_late_fault_is_reported_too() -> None:
    calls = []

    def late(arguments: Arguments) -> Tensor:
        calls.append(1)
        if len(calls) > 4:
            raise MemoryError
        return right(arguments)

    row = measured(contender("late", late))["late"]
    assert (row["status"], row["reason"]) == ("failed", "out of memory")


def test_an_error_that_is_tolerated_is_noted() -> None:
    def rough(arguments: Arguments) -> Tensor:
        return right(arguments) * (1 + 5e-5)

    row = measured(contender("rough", rough))["rough"]
    assert row["status"] == "measured"
    assert row["note"].startswith("an error of 5.")


def test_a_shorter_sequence_is_named_and_ratios_are_per_token() -> None:
    rows = measured(contender("reference"), contender("short", longest=4, why="quadratic"))
    assert rows["short"]["size"] == {"b": 1, "l": 4, "m": 3, "d": 5, "n": 4}
    assert rows["short"]["note"] == "quadratic"
    speed = [rows[name]["forward"]["tokens_per_second"] for name in ("short", "reference")]
    assert rows["short"]["over_loop"]["forward"] == pytest.approx(speed[0] / speed[1])


def test_what_is_not_repeatable_is_found() -> None:
    def noisy(arguments: Arguments) -> Tensor:
        return right(arguments) + 1e-7 * torch.rand(())

    assert measured(contender("noisy", noisy))["noisy"]["bit_equal"]["runs"] is False


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    measured(contender("reference"), options=replace(OPTIONS, threads=before))
    assert torch.get_num_threads() == before


def test_each_line_refers_to_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [Size(1, length, 2, 3, 4) for length in (4, 16)]
    monkeypatch.setattr(scan, "list_scaling_sizes", lambda quick: {"l": sizes} if quick else {})
    (table,) = scan.measure_scaling(BenchmarkOptions(repeats=3, quick=True), silent)
    assert table["engine"] == choose_kernel("cpu").engine
    first, second = table["rows"]
    assert first["size"]["l"] == 4
    assert first["forward_ratio"] is None
    for mode in ("forward", "forward_backward"):
        assert second[f"{mode}_ratio"] == pytest.approx(second[mode]["median"] / first[mode]["median"])


def test_a_size_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: Arguments) -> Tensor:
        if arguments[0].shape[1] == 16:
            raise MemoryError
        return right(arguments)

    sizes = [Size(1, length, 2, 3, 4) for length in (4, 16, 64)]
    monkeypatch.setattr(scan, "list_scaling_sizes", lambda quick: {"l": sizes} if quick else {})
    monkeypatch.setattr(scan, "choose_contenders", lambda _only: [contender("fails", fail)])
    (table,) = scan.measure_scaling(BenchmarkOptions(repeats=3, quick=True), silent)
    first, second, third = table["rows"]
    assert second == {"size": asdict(sizes[1]), "error": "out of memory"}
    for row in (first, third):
        assert "error" not in row
        assert row["forward"]["calls"] >= 3
        assert row["forward_ratio"] is None


def test_default_tables_have_lengths_in_steps_of_four() -> None:
    by_dimension = scan.list_scaling_sizes(quick=False)
    assert [size.l for size in by_dimension["l"]] == [256, 1024, 4096, 16384]
    assert [size.n for size in by_dimension["n"]] == [1, 16, 26, 64, 128, 256]
    assert {size.b for sizes in by_dimension.values() for size in sizes} == {1}
