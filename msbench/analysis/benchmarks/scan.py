"""The benchmark of the scan: all contenders on the same problem, timed in turns, checked in the same run."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from msbench.analysis.benchmarks import accuracy, memory, roofline, scaling
from msbench.analysis.benchmarks.accuracy import Truth
from msbench.analysis.benchmarks.contenders import BASELINE, PEER, Contender, contenders
from msbench.analysis.benchmarks.problem import BenchmarkProblem, Size, first, forward, problem, results
from msbench.analysis.benchmarks.settings import Say, Settings
from msbench.analysis.benchmarks.timing import Spread, Task, expected, failure, interleave, timed
from msbench.environment import measure_free_memory


@dataclass
class ScanEntry:
    """A contender in this run: its problem and its results."""

    contender: Contender
    status: str = "measured"
    """``measured``, ``invalid`` (wrong numbers), ``skipped`` (could not start) or ``failed``."""
    reason: str = ""
    label: str = ""
    given: BenchmarkProblem | None = None
    found: list[Tensor] = field(default_factory=list)
    first_call: float = 0.0
    errors: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    bit_equal: dict[str, bool] = field(default_factory=dict)
    peak: memory.Peak = memory.UNKNOWN

    @property
    def runs(self) -> bool:
        """Return False once it was skipped, has failed or was found invalid."""
        return self.status == "measured"

    @property
    def problem(self) -> BenchmarkProblem:
        """Return the problem that it was given."""
        assert self.given is not None
        return self.given

    def run(self) -> list[Tensor]:
        """Compute output and gradients."""
        return results(self.contender.scan, self.problem)

    def attempt(self, action: Callable[[], object]) -> None:
        """Call `action` unless this entry has failed before; an exception affects this entry only."""
        if self.runs and (fault := failure(action)):
            self.fail(fault)

    def fail(self, fault: str) -> None:
        """Record the reason, and release the results."""
        self.status, self.reason, self.found = "failed", fault, []


def measure(
    size: Size, settings: Settings, say: Say, who: Sequence[Contender] | None = None
) -> dict[str, Any]:
    """Measure rows, rates and scaling, as plain values; `who` replaces the default contenders."""
    who = contenders(settings.only) if who is None else who
    whole = problem(size, settings.device)
    entries = [prepared(one, whole, settings.device) for one in who]
    meter = roofline.Meter(size, settings.device)
    truth = Truth(whole, settings.device)
    for entry in entries:
        if entry.runs:
            say(f"first call and check of {entry.contender.name}")
        entry.attempt(partial(start, entry, settings.device))
        entry.attempt(partial(check, entry, truth))
    time_all(entries, meter, settings, say)
    rates = meter.rates()
    tables = scaling.measure(settings, say) if settings.scaling else []
    for entry in entries:
        if entry.runs:
            say(f"repeatability and memory of {entry.contender.name}")
        entry.attempt(partial(repeat, entry, settings))
        entry.found = []
    # Last: it slows down allocations.
    for entry in entries:
        entry.attempt(partial(weigh, entry, settings.device))
    rows = [row(entry, rates) for entry in entries]
    compare_rows(rows)
    return {"size": asdict(size), "rates": dict(rates.facts), "rows": rows, "scaling": tables}


def prepared(contender: Contender, whole: BenchmarkProblem, device: str) -> ScanEntry:
    """Return an entry with its part of the problem, or with the reason for which it is skipped."""
    entry = ScanEntry(contender)
    entry.reason = contender.missing(device)
    if not entry.reason:
        size, note = contender.fitted(whole.size, measure_free_memory(device))
        entry.reason = note
        if size is not None:
            entry.label, entry.given = contender.label(), first(whole, size)
            return entry
    entry.status = "skipped"
    return entry


def start(entry: ScanEntry, device: str) -> None:
    """Make the first call, including compilation, and a second one to estimate the time of a call."""
    outcome: list[list[Tensor]] = []
    entry.first_call, _ = timed(lambda: outcome.append(entry.run()), device)
    entry.found = outcome[0]
    alone, both = partial(forward, entry.contender.scan, entry.problem), entry.run
    entry.tasks = {"forward": Task(alone, device), "forward_backward": Task(both, device)}
    entry.tasks["forward"].expected, _ = timed(alone, device)
    entry.tasks["forward_backward"].expected = expected(both, entry.first_call, device)


def check(entry: ScanEntry, truth: Truth) -> None:
    """Compare with float64; wrong results make the row invalid."""
    entry.errors = truth.errors(entry.contender.scan, entry.problem.size, entry.found)
    if fault := accuracy.verdict(entry.errors):
        entry.status, entry.reason = "invalid", fault


def time_all(entries: Sequence[ScanEntry], meter: roofline.Meter, settings: Settings, say: Say) -> None:
    """Time the valid entries and the machine's peak rates in turns."""
    tasks = [task for entry in entries if entry.runs for task in entry.tasks.values()]
    interleave([*meter.tasks, *tasks], settings.repeats, say)
    for entry in entries:
        for task in entry.tasks.values():
            if task.error:
                entry.fail(task.error)


def repeat(entry: ScanEntry, settings: Settings) -> None:
    """Record whether a second run, and runs on one and two threads, give the same bits."""
    entry.bit_equal["runs"] = same(entry.run(), entry.found)
    if settings.device == "cpu":
        try:
            one, two = (on_threads(entry, count) for count in (1, 2))
        finally:
            torch.set_num_threads(settings.threads)
        entry.bit_equal["threads"] = same(one, two)


def on_threads(entry: ScanEntry, count: int) -> list[Tensor]:
    """Compute output and gradients with `count` threads."""
    torch.set_num_threads(count)
    return entry.run()


def same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Return True if all tensors are equal to the last bit."""
    return all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def weigh(entry: ScanEntry, device: str) -> None:
    """Measure peak memory beyond arguments, outputs and gradients."""
    found, returned = memory.peak(entry.run, device)
    if found.bytes is not None:
        found = memory.Peak(max(0, found.bytes - memory.size_of(returned)))
    entry.peak = found


def row(entry: ScanEntry, rates: roofline.Rates) -> dict[str, Any]:
    """Return an entry as plain values; speed and memory only if results are right and times possible."""
    found: dict[str, Any] = {
        "name": entry.contender.name,
        "status": entry.status,
        "label": entry.label,
        "note" if entry.status == "measured" else "reason": entry.reason,
        "errors": {name: value if math.isfinite(value) else None for name, value in entry.errors.items()},
    }
    if entry.given is not None:
        found |= {"size": asdict(entry.problem.size), "first_call_s": entry.first_call}
    if entry.status != "measured":
        return found
    size = entry.problem.size
    speeds = {name: figures(task.spread, size, rates, name) for name, task in entry.tasks.items()}
    if fault := impossible(speeds):
        del found["note"]
        return found | {"status": "invalid", "reason": fault}
    worst = max(entry.errors.values())
    if worst > accuracy.NOTED:
        found["note"] = "; ".join(filter(None, (entry.reason, f"an error of {worst:.1e}")))
    inputs = memory.size_of(entry.problem.arguments)
    extra = entry.peak.bytes
    return found | {
        **speeds,
        "bit_equal": entry.bit_equal,
        "peak_bytes": extra,
        "peak_per_input": None if extra is None else extra / inputs,
        "peak_reason": entry.peak.reason,
    }


def figures(spread: Spread | None, size: Size, rates: roofline.Rates, mode: str) -> dict[str, Any]:
    """Return a timing and derived rates; forward with backward counts as one update of every state."""
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


def impossible(speeds: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the contradiction between times and bounds; empty if there is none."""
    for mode, found in speeds.items():
        if found["of_bound"] is not None and found["of_bound"] > 1:
            return (
                f"the bound {found['bound']!r} is wrong: {mode.replace('_', ' and ')} took"
                f" {found['median']:.3g} s, and at best would have taken {found['bound_s']:.3g} s"
            )
    return ""


def compare_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Add speed-ups per token, since sizes may differ, over the loop and over the best-known peer."""
    by_name = {row["name"]: row for row in rows if row["status"] == "measured"}
    for row in by_name.values():
        for other, key in ((BASELINE, "over_loop"), (PEER, "over_peer")):
            if other in by_name:
                row[key] = {
                    mode: row[mode]["tokens_per_second"] / by_name[other][mode]["tokens_per_second"]
                    for mode in ("forward", "forward_backward")
                }
