"""Time of the default scan kernel over the length and over the number of states."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

from msbench.analysis.benchmarks.contenders import contenders
from msbench.analysis.benchmarks.problem import Size, forward, problem, results
from msbench.analysis.benchmarks.settings import Say, Settings
from msbench.analysis.benchmarks.timing import Task, failure, interleave, timed
from msbench.ops.scan.dispatch import choose_kernel

LENGTHS = (256, 1024, 4096, 16384)
"""Each four times the previous: the time of a linear scan grows by four."""
STATES = (1, 16, 26, 64, 128, 256)
QUICK_LENGTHS = (64, 256, 1024)
QUICK_STATES = (1, 26, 128)


def tables(*, quick: bool) -> list[tuple[str, list[Size]]]:
    """Return the varied dimensions and their sizes: length of one example, states of one 1024-step stream."""
    lengths, states = (QUICK_LENGTHS, QUICK_STATES) if quick else (LENGTHS, STATES)
    return [
        ("l", [Size(b=1, l=length) for length in lengths]),
        ("n", [Size(b=1, l=1024, m=1, n=n) for n in states]),
    ]


def measure(settings: Settings, say: Say) -> list[dict[str, Any]]:
    """Measure one table for each of `tables`, for the default kernel of this device."""
    engine = choose_kernel(settings.device).engine
    found = []
    for varied, sizes in tables(quick=settings.quick):
        say(f"scaling of {engine} over {varied}")
        found.append({"engine": engine, "varied": varied, "rows": rows(engine, sizes, settings)})
    return found


def rows(engine: str, sizes: Iterable[Size], settings: Settings) -> list[dict[str, Any]]:
    """Time one kernel at each size, with the ratio to the previous row."""
    (contender,) = contenders((engine,))
    found: list[tuple[Size, dict[str, Task]]] = []
    for size in sizes:
        given = problem(size, settings.device)
        calls = {"forward": forward, "forward_backward": results}
        tasks = {name: task(partial(call, contender.scan, given), settings) for name, call in calls.items()}
        found.append((size, tasks))
    interleave([one for _, tasks in found for one in tasks.values()], settings.repeats)
    table: list[dict[str, Any]] = []
    for size, tasks in found:
        table.append(line(size, tasks, table[-1] if table else {}))
    return table


def task(call: Callable[[], object], settings: Settings) -> Task:
    """Return a task whose call was made twice; with its error if it failed."""
    made = Task(call, settings.device)

    def warm() -> None:
        call()
        made.expected, _ = timed(call, settings.device)

    made.error = failure(warm)
    return made


def line(size: Size, tasks: dict[str, Task], before: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one size; `before` is the row that its ratios refer to."""
    found: dict[str, Any] = {"size": asdict(size)}
    for mode, one in tasks.items():
        if one.spread is None:
            found["error"] = one.error
            continue
        found[mode] = asdict(one.spread)
        found[f"{mode}_ratio"] = one.spread.median / before[mode]["median"] if mode in before else None
    return found
