"""The command ``msbench check --calibrate``: margins from the seeds of results, printed, never written."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msbench import console
from msbench.errors import Undecided
from msbench.gate.baseline_file import BaselineEntry, Place
from msbench.gate.calibrate import Calibration, calibrate
from msbench.gate.check import check_reference, with_runs
from msbench.gate.collect import collect
from msbench.results import store
from msbench.runs import suite
from msbench.runs.suite_gate import WIDEST_MARGIN

HEADER = (
    *("suite", "task", "hardware", "model", "seeds", "mean", "sd", "pooled sd", "margin", "passes", "fails"),
    "fails at twice",
)


@dataclass(frozen=True)
class Learned:
    """Results of the seeds of one task on one class of hardware; `found` is None if they show no spread."""

    suite: str
    task: str
    hardware: str
    seen: Mapping[str, BaselineEntry]
    found: Calibration | None


def learn(names: Sequence[str], against: str, results: Path) -> list[Learned]:
    """Calibrate every task of these suites, or of all with runs.

    The margins are for results checked `against` the paper, whose numbers count as exact, or against a
    baseline from these same seeds. Raises Undecided if no run has a result, and ConfigError if `against` is
    neither of them, nor a file.
    """
    check_reference(against)
    learned = []
    for chosen in [suite.load(name) for name in names] or with_runs(results):
        stored = store.read_runs(results, chosen.name)
        collected = collect(chosen, stored, results)
        for text in (*stored.warnings, *collected.left_out):
            console.say(f"msbench: {text}")
        for (task, hardware), seen in _by_task(collected.entries).items():
            groups = [each.values for each in seen.values()]
            expected = 0 if against == "paper" else min(each.n for each in seen.values())
            found = calibrate(groups, len(chosen.seeds), expected)
            learned.append(Learned(chosen.name, task, hardware, seen, found))
    if not learned:
        raise Undecided(f"{results}: no run under the protocol of a suite has a result to learn from")
    return learned


def _by_task(entries: Mapping[Place, BaselineEntry]) -> dict[tuple[str, str], dict[str, BaselineEntry]]:
    found: dict[tuple[str, str], dict[str, BaselineEntry]] = defaultdict(dict)
    for (task, model, hardware), seen in entries.items():
        found[task, hardware][model] = seen
    return found


def rows(learned: Sequence[Learned]) -> list[tuple[str, ...]]:
    """Return a row for each model, with the values shared by its task's seeds."""
    return [
        (*place(each), model, str(seen.n), f"{seen.mean:.2%}", _percent(seen.sd), *_shared(each.found))
        for each in learned
        for model, seen in each.seen.items()
    ]


def place(each: Learned) -> tuple[str, str, str]:
    """Return suite, task and class of hardware."""
    return each.suite, each.task, each.hardware


def _shared(found: Calibration | None) -> tuple[str, ...]:
    if found is None:
        return ("--",) * 5
    rates = (found.passes, found.fails, found.fails_at_twice)
    return (_percent(found.sd), _percent(found.margin), *(f"{rate:.1%}" for rate in rates))


def suggestion(learned: Sequence[Learned]) -> str:
    """Return the YAML for the suites, with the reason; a comment if the seeds allow no margin."""
    return "\n".join(_suggested(each) for each in learned)


def _suggested(each: Learned) -> str:
    where = f"# suites/{each.suite}.yaml, for {each.task} on {each.hardware}"
    if each.found is None:
        return f"{where}: two seeds of a model at least are needed, and they must differ"
    found = each.found
    spread = f"sd {found.sd:.2%} of {found.degrees} degrees of freedom"
    against = f"{found.n_expected} seeds" if found.n_expected else "the paper"
    if found.margin is None:
        return f"{where}: {spread}: not even a margin of {WIDEST_MARGIN:.0%} passes reliably; run more seeds"
    return (
        f"{where}\n"
        f"gate:\n"
        f"  tasks:\n"
        f"    {each.task}:\n"
        f"      margin: {found.margin:g}\n"
        f'      reason: "{spread}; {found.n} against {against}:'
        f' {found.passes:.0%} pass at no gap, {found.fails_at_twice:.0%} fail at twice the margin"\n'
        f"      sd: {found.sd:.5f}\n"
        f"      degrees: {found.degrees}"
    )


def as_dicts(learned: Sequence[Learned]) -> list[dict[str, Any]]:
    """Return everything as plain values for JSON."""
    return [
        {
            "suite": each.suite,
            "task": each.task,
            "hardware": each.hardware,
            "models": {model: seen.model_dump(mode="json") for model, seen in each.seen.items()},
            "calibration": asdict(each.found) if each.found else None,
        }
        for each in learned
    ]


def _percent(value: float | None) -> str:
    return "--" if value is None else f"{value:.2%}"
