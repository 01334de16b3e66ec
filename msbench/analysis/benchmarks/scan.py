"""The benchmark of the scan: all contenders on the same problem, timed in turns, checked in the same run.

The default kernel is also timed over the length and over the number of states (``scaling``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, equal

from msbench.analysis.benchmarks import measurement
from msbench.analysis.benchmarks.bounds import PeakRates, RateMeter
from msbench.analysis.benchmarks.contenders import BASELINE, PEER, Contender, choose_contenders
from msbench.analysis.benchmarks.measurement import BenchmarkEntry, Report, TimedCall
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.analysis.benchmarks.problem import (
    NOTED_ERROR,
    BenchmarkProblem,
    ScanReference,
    Size,
    crop_problem,
    explain_errors,
    make_problem,
    run_both,
    run_forward,
)
from msbench.environment import measure_free_memory, use_threads
from msbench.ops.scan.dispatch import choose_kernel

MODES = ("forward", "forward_backward")
LENGTHS = (256, 1024, 4096, 16384)
"""Each four times the previous: the time of a linear scan grows by four."""
STATES = (1, 16, 26, 64, 128, 256)
QUICK_LENGTHS = (64, 256, 1024)
QUICK_STATES = (1, 26, 128)


@dataclass(kw_only=True)
class ScanEntry(BenchmarkEntry):
    """A contender in this run: its problem and its results."""

    contender: Contender
    given: BenchmarkProblem | None = None
    found: list[Tensor] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)
    bit_equal: dict[str, bool] = field(default_factory=dict)

    @property
    def problem(self) -> BenchmarkProblem:
        """Return the problem that it was given."""
        assert self.given is not None
        return self.given

    def run(self) -> list[Tensor]:
        """Compute output and gradients."""
        return run_both(self.contender.scan, self.problem)

    def stop(self, status: str, reason: str) -> None:
        """Stop measuring, and release the results."""
        super().stop(status, reason)
        self.found = []


def measure_scan(
    options: BenchmarkOptions, report: Report, contenders: Sequence[Contender] | None = None
) -> dict[str, Any]:
    """Measure rows, rates and scaling, as plain values; `contenders` replaces the default ones."""
    contenders = choose_contenders(options.only) if contenders is None else contenders
    whole = make_problem(options.size, options.device)
    entries = [prepare_entry(one, whole, options.device) for one in contenders]
    meter = RateMeter(options.size, options.device)
    reference = ScanReference(whole, options.device)
    for entry in entries:
        if entry.is_measured:
            report(f"first call and check of {entry.name}")
        entry.attempt(partial(start_entry, entry, options.device))
        entry.attempt(partial(check_entry, entry, reference))
    measurement.time_entries(entries, options.repeats, report, meter.calls)
    rates = meter.rates()
    scaling = measure_scaling(options, report) if options.scaling else []
    for entry in entries:
        if entry.is_measured:
            report(f"repeatability and memory of {entry.name}")
        entry.attempt(partial(check_bits, entry, options.device))
        entry.found = []
    # Last: it slows down allocations.
    for entry in entries:
        entry.attempt(partial(measure_memory, entry, options.device))
    rows = [describe_entry(entry, rates) for entry in entries]
    add_speedups(rows)
    return {"size": asdict(options.size), "rates": dict(rates.facts), "rows": rows, "scaling": scaling}


def prepare_entry(contender: Contender, whole: BenchmarkProblem, device: str) -> ScanEntry:
    """Return an entry with its part of the problem, or with the reason for which it is skipped."""
    entry = ScanEntry(name=contender.name, contender=contender)
    if fault := contender.missing(device):
        entry.stop("skipped", fault)
        return entry
    size, entry.reason = contender.fit(whole.size, measure_free_memory(device))
    if size is None:
        entry.stop("skipped", entry.reason)
        return entry
    entry.given, entry.label = crop_problem(whole, size), contender.label()
    return entry


def start_entry(entry: ScanEntry, device: str) -> None:
    """Make the first call, including compilation, and a second one to estimate the time of a call."""
    outcome: list[list[Tensor]] = []
    entry.first_call, _ = measurement.time_call(lambda: outcome.append(entry.run()), device)
    entry.found = outcome[0]
    forward = partial(run_forward, entry.contender.scan, entry.problem)
    entry.calls = {
        "forward": TimedCall(forward, device, expected=measurement.time_call(forward, device)[0]),
        "forward_backward": TimedCall(
            entry.run, device, expected=measurement.estimate_seconds(entry.run, entry.first_call, device)
        ),
    }


def check_entry(entry: ScanEntry, reference: ScanReference) -> None:
    """Compare with float64; wrong results make the row invalid."""
    entry.errors = reference.errors(entry.contender.scan, entry.problem.size, entry.found)
    if fault := explain_errors(entry.errors):
        entry.stop("invalid", fault)


def check_bits(entry: ScanEntry, device: str) -> None:
    """Record whether a second run, and runs on one and two threads, give the same bits."""
    entry.bit_equal["runs"] = are_equal(entry.run(), entry.found)
    if device == "cpu":
        with use_threads(1):
            one = entry.run()
        with use_threads(2):
            entry.bit_equal["threads"] = are_equal(one, entry.run())


def are_equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Return True if all tensors are equal to the last bit."""
    return all(equal(x, y) for x, y in zip(one, other, strict=True))


def measure_memory(entry: ScanEntry, device: str) -> None:
    """Measure peak memory beyond arguments, outputs and gradients."""
    found, returned = measurement.measure_peak(entry.run, device)
    if found.bytes is not None:
        found = measurement.MemoryPeak(max(0, found.bytes - measurement.count_bytes(returned)))
    entry.peak = found


def describe_entry(entry: ScanEntry, rates: PeakRates) -> dict[str, Any]:
    """Return an entry as plain values; speed and memory only if results are right and times possible."""
    errors = {name: value if math.isfinite(value) else None for name, value in entry.errors.items()}
    found = entry.describe() | {"errors": errors}
    if entry.given is not None:
        found |= {"size": asdict(entry.problem.size), "first_call_s": entry.first_call}
    if entry.status != "measured":
        return found
    size = entry.problem.size
    speeds = {mode: describe_speed(call, size, rates, mode) for mode, call in entry.calls.items()}
    if fault := explain_impossible(speeds):
        del found["note"]
        return found | {"status": "invalid", "reason": fault}
    worst = max(entry.errors.values())
    if worst > NOTED_ERROR:
        found["note"] = "; ".join(filter(None, (entry.reason, f"an error of {worst:.1e}")))
    inputs = measurement.count_bytes(entry.problem.arguments)
    extra = entry.peak.bytes
    return found | {
        **speeds,
        "bit_equal": entry.bit_equal,
        "peak_bytes": extra,
        "peak_per_input": None if extra is None else extra / inputs,
        "peak_reason": entry.peak.reason,
    }


def describe_speed(call: TimedCall, size: Size, rates: PeakRates, mode: str) -> dict[str, Any]:
    """Return a timing and derived rates; forward with backward counts as one update of every state."""
    spread = call.spread
    assert spread is not None, "a measured row was timed"
    bound = rates.bound(size, backward=mode == "forward_backward")
    name, seconds = bound or (None, None)
    return {
        **asdict(spread),
        "tokens_per_second": size.tokens / spread.median,
        "states_per_second": size.states / spread.median,
        "bound": name,
        "bound_s": seconds,
        "of_bound": None if seconds is None else seconds / spread.median,
    }


def explain_impossible(speeds: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the contradiction between times and bounds; empty if there is none."""
    for mode, found in speeds.items():
        if found["of_bound"] is not None and found["of_bound"] > 1:
            return (
                f"the bound {found['bound']!r} is wrong: {mode.replace('_', ' and ')} took"
                f" {found['median']:.3g} s, and at best would have taken {found['bound_s']:.3g} s"
            )
    return ""


def add_speedups(rows: Sequence[dict[str, Any]]) -> None:
    """Add speed-ups per token, since sizes may differ, over the loop and over the best-known peer."""
    by_name = {row["name"]: row for row in rows if row["status"] == "measured"}
    for row in by_name.values():
        for other, key in ((BASELINE, "over_loop"), (PEER, "over_peer")):
            if other in by_name:
                row[key] = {
                    mode: row[mode]["tokens_per_second"] / by_name[other][mode]["tokens_per_second"]
                    for mode in MODES
                }


def list_scaling_sizes(*, quick: bool) -> dict[str, list[Size]]:
    """Return sizes by the dimension that varies: length of one example, states of one 1024-step stream."""
    lengths, states = (QUICK_LENGTHS, QUICK_STATES) if quick else (LENGTHS, STATES)
    return {
        "l": [Size(b=1, l=length) for length in lengths],
        "n": [Size(b=1, l=1024, m=1, n=n) for n in states],
    }


def measure_scaling(options: BenchmarkOptions, report: Report) -> list[dict[str, Any]]:
    """Time the default kernel of this device at each of `list_scaling_sizes`: a table per dimension."""
    engine = choose_kernel(options.device).engine
    (contender,) = choose_contenders((engine,))
    tables = []
    for varied, sizes in list_scaling_sizes(quick=options.quick).items():
        report(f"scaling of {engine} over {varied}")
        entries = [
            ScanEntry(name=engine, contender=contender, given=make_problem(size, options.device))
            for size in sizes
        ]
        for entry in entries:
            entry.attempt(partial(start_entry, entry, options.device))
            entry.found = []
        measurement.time_entries(entries, options.repeats, report)
        rows: list[dict[str, Any]] = []
        for entry in entries:
            rows.append(describe_size(entry, rows[-1] if rows else {}))
        tables.append({"engine": engine, "varied": varied, "rows": rows})
    return tables


def describe_size(entry: ScanEntry, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of one size; `before` is the row that its ratios refer to."""
    found: dict[str, Any] = {"size": asdict(entry.problem.size)}
    if not entry.is_measured:
        return found | {"error": entry.reason}
    for mode, call in entry.calls.items():
        assert call.spread is not None, "a measured row was timed"
        found[mode] = asdict(call.spread)
        found[f"{mode}_ratio"] = call.spread.median / before[mode]["median"] if mode in before else None
    return found
