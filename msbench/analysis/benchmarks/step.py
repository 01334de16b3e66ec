"""The benchmark of a whole training step: forward, loss, backward, check, optimiser."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from msbench import models, ops
from msbench.analysis.benchmarks import memory, step_peers
from msbench.analysis.benchmarks.runner import Runner, runner
from msbench.analysis.benchmarks.settings import Say, Settings
from msbench.analysis.benchmarks.shapes import SHAPES, StepShape, Variant
from msbench.analysis.benchmarks.step_peers import PEERS, Peer, peers_of
from msbench.analysis.benchmarks.timing import SLOW, Task, expected, failure, interleave, timed
from msbench.errors import UnknownName

MODELS = ("mamba", "msssm-s6")
PEER_REPEATS = 2
"""Repeats of a peer whose step is slow."""


@dataclass
class StepEntry:
    """A variant or a peer in this run, with its results."""

    name: str
    variant: Variant
    peer: Peer | None = None
    status: str = "measured"
    """``measured``, ``invalid`` (a peer that computes something else), ``skipped`` or ``failed``."""
    reason: str = ""
    label: str = ""
    runner: Runner | None = None
    parameters: int = 0
    first_call: float = 0.0
    task: Task | None = None
    peak: memory.Peak = memory.UNKNOWN
    agreement: dict[str, float] = field(default_factory=dict)

    def attempt(self, action: Callable[[], object]) -> None:
        """Call `action` unless this entry has failed or was skipped; an exception affects this entry only."""
        if self.status == "measured" and (fault := failure(action)):
            self.status, self.reason, self.runner = "failed", fault, None

    @property
    def ready(self) -> Runner:
        """Return the runner that `start` has built."""
        assert self.runner is not None
        return self.runner


def measure(names: Sequence[str], settings: Settings, say: Say) -> dict[str, Any]:
    """Measure every shape, as plain values; a shape whose data cannot be set up ends the benchmark."""
    for name in settings.only:
        if name not in (*MODELS, *PEERS):
            raise UnknownName("model", name, (*MODELS, *PEERS), "--only")
    timed_shapes = []
    for name in names:
        say(f"{name}: data")
        shape = SHAPES[name]()
        timed_shapes.append((shape, time_shape(shape, settings, say)))
    # After the last timing: it slows down allocations, and steps of many layers by up to 1.8 times.
    for _, entries in timed_shapes:
        for entry in entries:
            entry.attempt(partial(weigh, entry, settings.device))
    found = [described(shape, entries) for shape, entries in timed_shapes]
    return {"shapes": found, "rows": [row for shape in found for row in shape.pop("rows")]}


def time_shape(shape: StepShape, settings: Settings, say: Say) -> list[StepEntry]:
    """Take first steps and checks of one shape, then timings in turns."""
    entries = entries_of(shape, settings, say)
    for entry in entries:
        if entry.status == "measured":
            say(f"{shape.name}: first step of {entry.name}")
        entry.attempt(partial(start, entry, shape, settings.device))
    tasks = [entry.task for entry in entries if entry.status == "measured" and entry.task]
    interleave(tasks, settings.repeats, lambda text: say(f"{shape.name}: {text}"))
    for entry in entries:
        if entry.task is not None and entry.task.error:
            entry.status, entry.reason = "failed", entry.task.error
    return entries


def described(shape: StepShape, entries: Sequence[StepEntry]) -> dict[str, Any]:
    """Return a shape as plain values."""
    rows = [row(entry, shape) for entry in entries]
    return {"name": shape.name, "title": shape.title, "rows": rows, "ratios": ratios(rows, shape)}


def entries_of(shape: StepShape, settings: Settings, say: Say) -> list[StepEntry]:
    """Return the requested variants and peers."""
    only = settings.only
    label = ops.kernel_name(settings.device)
    entries = [
        StepEntry(name, variant, label=label)
        for name, variant in shape.variants.items()
        if not only or variant.model in only
    ]
    if only and not set(only) & set(PEERS):
        return entries
    say(f"{shape.name}: peers")
    for peer in peers_of(shape, settings.device, only):
        if not only or peer.name in only:
            status = "skipped" if peer.skipped else "measured"
            entries.append(StepEntry(peer.name, peer.variant, peer, status, peer.skipped))
    return entries


def start(entry: StepEntry, shape: StepShape, device: str) -> None:
    """Build the model, compare it if it is a peer; take the first step and, if that was short, a second."""
    if entry.peer is None:
        entry.runner = runner(entry.variant, shape, device)
    else:
        entry.label = entry.peer.label()
        entry.runner, entry.agreement = entry.peer.agreement(shape, device)
        if fault := step_peers.verdict(entry.agreement):
            entry.status, entry.reason, entry.runner = "invalid", fault, None
            return
        entry.reason = entry.peer.note
    entry.parameters = models.count_parameters(entry.ready.model)
    step = entry.ready.step
    entry.first_call, _ = timed(step, device)
    seconds = expected(step, entry.first_call, device)
    entry.task = Task(step, device, PEER_REPEATS if entry.peer and seconds > SLOW else None, seconds)


def weigh(entry: StepEntry, device: str) -> None:
    """Measure the peak of one more step, beyond parameters and optimiser state."""
    entry.peak, _ = memory.peak(entry.ready.step, device)
    entry.runner = None if entry.peer else entry.runner  # a peer's layers are large


def row(entry: StepEntry, shape: StepShape) -> dict[str, Any]:
    """Return an entry as plain values."""
    examples = entry.peer.examples if entry.peer else len(shape.batch.labels)
    tokens = int(shape.batch.lengths[:examples].sum())
    found: dict[str, Any] = {
        "shape": shape.name,
        "name": entry.name,
        "status": entry.status,
        "label": entry.label,
        "note" if entry.status == "measured" else "reason": entry.reason,
        "states_per_channel": models.count_states_per_channel(entry.variant.model, entry.variant.config),
        "peer_of": entry.peer.of if entry.peer else None,
        "agreement": entry.agreement,
        "size": {"b": examples, "l": int(shape.batch.inputs.shape[1]), "tokens": tokens},
    }
    if entry.status != "measured" or entry.task is None:
        return found
    spread = entry.task.spread
    assert spread is not None, "a measured row was timed"
    return found | {
        "step": asdict(spread),
        "first_call_s": entry.first_call,
        "tokens_per_second": tokens / spread.median,
        "parameters": entry.parameters,
        "peak_bytes": entry.peak.bytes,
        "peak_reason": entry.peak.reason,
    }


def ratios(rows: Sequence[dict[str, Any]], shape: StepShape) -> list[dict[str, Any]]:
    """Return ratios of times per token: MS-SSM over Mamba, the peer over our Mamba."""
    speed = {row["name"]: row["tokens_per_second"] for row in rows if row["status"] == "measured"}
    peers = [(row["name"], row["peer_of"], "peer, same weights") for row in rows if row["peer_of"]]
    return [
        {"name": name, "over": other, "what": what, "ratio": speed[other] / speed[name]}
        for name, other, what in [*shape.pairs, *peers]
        if name in speed and other in speed
    ]
