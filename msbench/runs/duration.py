"""Durations of runs: from earlier runs of this machine or a few timed steps; without either, none."""

import heapq
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from msbench import datasets, environment, models
from msbench.config import RunSpec
from msbench.config.base import Config
from msbench.config.data import DATASETS
from msbench.config.differences import flatten
from msbench.config.messages import format_duration
from msbench.config.models import MODELS
from msbench.config.run import SECTIONS, TrainConfig
from msbench.console import format_count
from msbench.datasets.dataset import Dataset
from msbench.errors import RunError
from msbench.results import store
from msbench.results.metrics_log import parse_number, read_log
from msbench.results.record import RunRecord
from msbench.runs.launchers import RunOptions
from msbench.runs.memory import count_steps, limit_step_memory, plan_recomputation
from msbench.runs.plan import TO_TRAIN, PlannedRun, plan_runs
from msbench.training.batches import BatchLoader, count_batches, sort_into_batches
from msbench.training.evaluation import predict
from msbench.training.loop import Trainer, make_fabric
from msbench.training.memory import is_out_of_memory
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag

Clock = Callable[[], float]

FREE = frozenset(
    f"train.{name}"
    for name in (
        *("lr", "ssm_lr", "dt_lr", "dt_decay", "kernel_lr", "min_lr", "weight_decay", "beta1", "beta2"),
        *("warmup_epochs", "schedule", "plateau_factor", "plateau_patience"),
        *("one_cycle_div_factor", "one_cycle_beta1", "epochs", "max_steps"),
    )
)
"""Settings that do not change the time of a step; any other is taken to change it."""
LEAST_STEPS = 50
"""Steps of a run from which the time of another number of steps is inferred: the first ones are slower."""
UNTIMED, TIMED, LONGEST = 2, 5, 20.0
"""Steps before the timed ones, timed ones, and the seconds after which those that there are must do."""


@dataclass(frozen=True)
class Estimate:
    """The time that a run will take from now on, and what it is inferred from."""

    seconds: float
    source: str


class RunTimes:
    """Times of finished runs on hardware as of this machine, by which those of others are estimated.

    A run counts if it was trained in one piece, by the same kernel, on the same device and as many of them,
    on a CPU with the same number of threads. It counts for runs with the same settings of data, model and
    training, but for those that cost no time; for one with fewer or more epochs, by its steps.
    """

    def __init__(self, records: Iterable[RunRecord], device: str, *, devices: int, threads: int) -> None:
        self.device = device
        gpus = environment.list_gpus()
        self.here = {
            "hardware": gpus[0] if device == "cuda" else device,
            "cpu": environment.read_cpu_name(),
            "cores": environment.count_cores(),
            "deterministic": environment.describe_numerics()["deterministic"],
            "devices": devices,
            "threads": threads if device == "cpu" else None,
        }
        self.known: dict[str, list[PastRun]] = {}
        for record in records:
            self.add(record)

    def add(self, record: RunRecord) -> None:
        """Count a run, if it is one that counts."""
        known = {**record.environment, "hardware": record.hardware}
        here = all(known.get(name) == value for name, value in self.here.items() if value is not None)
        seconds = _measure_wall_time(record)
        if not here or not record.finished or record.resumed or seconds is None:
            return
        if (costs := _list_costs(record.spec)) is not None:
            run = PastRun(_find_length(record.spec), record.steps, seconds)
            self.known.setdefault(_describe_work(costs, record.kernel), []).append(run)

    def estimate(self, spec: RunSpec, steps: int | None, done: int = 0) -> Estimate | None:
        """Estimate the time of a run with `steps`, of which some are `done`; None if no run counts for it."""
        values = spec.model_dump(mode="json")
        kernel = models.find_family(spec.model_name, spec.model).name_kernel(spec.model, self.device)
        alike = self.known.get(_describe_work(_list_costs(values), kernel), [])
        left = 1 - done / steps if steps else 1.0
        if whole := [run.seconds for run in alike if run.length == _find_length(values)]:
            return Estimate(statistics.median(whole) * left, format_count(len(whole), "run"))
        rates = [run.seconds / run.steps for run in alike if run.steps >= LEAST_STEPS]
        if steps is None or not rates:
            return None
        source = f"{format_count(len(rates), 'run')}, by steps"
        return Estimate(statistics.median(rates) * steps * left, source)


@dataclass(frozen=True)
class PastRun:
    """A finished run: its epochs and largest number of steps as set, its steps, and the time it took."""

    length: tuple[Any, ...]
    steps: int
    seconds: float


def _list_costs(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return those settings of a run that its time depends on; None for a model or data unknown now.

    What a record of an earlier version lacks has its default.
    """
    given = {section: values.get(section) or {} for section in SECTIONS}
    name, data = str(values["model_name"]), DATASETS.get(str(given["data"].get("dataset")))
    if "use" in given["model"] or "use" in given["data"]:  # the defaults are those of the user's code
        return {key: value for key, value in flatten(given).items() if key not in FREE} | {"model_name": name}
    if name not in MODELS or data is None:
        return None
    found: dict[str, Any] = {"model_name": name}
    sections: dict[str, type[Config]] = {"data": data, "model": MODELS[name].config, "train": TrainConfig}
    for section, config in sections.items():
        defaults = config.model_construct().model_dump(mode="json", warnings=False)
        found |= flatten(defaults | given[section], section)
    return {key: value for key, value in found.items() if key not in FREE}


def _find_length(values: Mapping[str, Any]) -> tuple[Any, ...]:
    train = values.get("train") or {}
    return tuple(train.get(name) for name in ("epochs", "max_steps"))


def _describe_work(costs: Mapping[str, Any] | None, kernel: str | None) -> str:
    return json.dumps([costs, kernel], sort_keys=True)


def _measure_wall_time(record: RunRecord) -> float | None:
    """Return the seconds from the start to the end of a run, with validation and test."""
    try:
        seconds = datetime.fromisoformat(record.ended) - datetime.fromisoformat(record.started)
    except (ValueError, TypeError):
        return None
    return max(seconds.total_seconds(), 0.0)


def read_times(entries: Sequence[PlannedRun], options: RunOptions, device: str) -> RunTimes:
    """Return the times of the runs in the results of these suites; within `apply_settings`."""
    suites = dict.fromkeys(entry.spec.suite for entry in entries)
    records = (each for suite in suites for each in store.read_records(options.results, suite)[0])
    return RunTimes(records, device, devices=options.devices, threads=count_threads(options.jobs))


def count_threads(jobs: int) -> int:
    """Return the threads of each of so many runs at a time, as they are started."""
    if jobs == 1 or any(os.environ.get(name) for name in environment.THREAD_VARIABLES):
        return torch.get_num_threads()
    return max(1, (environment.count_cores() or 1) // jobs)


def estimate_durations(
    entries: Sequence[PlannedRun], times: RunTimes, *, timed: bool = False
) -> list[Estimate | None]:
    """Return the estimate for each run; those that are kept take no time.

    With `timed`, steps are timed for those that no earlier run counts for.
    """
    measured: dict[str, StepTimes | None] = {}
    return [_estimate(entry, times, measured if timed else None) for entry in entries]


def _estimate(
    entry: PlannedRun, times: RunTimes, measured: "dict[str, StepTimes | None] | None"
) -> Estimate | None:
    if not is_to_train(entry):
        return Estimate(0.0, "")
    spec, steps, done = entry.spec, count_steps(entry), count_done_steps(entry)
    if (found := times.estimate(spec, steps, done)) is not None or measured is None:
        return found
    if entry.dataset is None or steps is None or times.here["devices"] != 1:
        return None
    key = _describe_work(_list_costs(spec.model_dump(mode="json")), None)
    if key not in measured:
        measured[key] = time_steps(spec, entry.dataset, times.device)
    if (each := measured[key]) is None:
        return None
    return Estimate(each.extrapolate(spec, entry.dataset, steps) * (1 - done / steps), "a few steps")


def is_to_train(entry: PlannedRun) -> bool:
    """Return True for a run that the command will train, perhaps after setting up its data."""
    return entry.action in (*TO_TRAIN, "set up")


def count_done_steps(entry: PlannedRun) -> int:
    """Return the steps that a stopped run has done, up to the last row of its log if it was killed."""
    if entry.action not in ("resume", "retry") or entry.directory is None:
        return 0
    rows, _ = read_log(entry.directory)
    logged = parse_number(rows[-1], "step") if rows else None
    done = max(entry.record.steps if entry.record else 0, int(logged or 0))
    return min(done, count_steps(entry) or 0)


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a training step, and of a position of an evaluation."""

    step: float
    position: float

    def extrapolate(self, spec: RunSpec, dataset: Dataset, steps: int) -> float:
        """Return the seconds of so many steps, a validation after each epoch, and the test."""
        per_epoch = count_batches(len(dataset.splits["train"]), spec.train.batch_size)
        validations = -(-steps // per_epoch)
        positions = validations * _count_evaluated(spec, dataset, "validation")
        return self.step * steps + self.position * (positions + _count_evaluated(spec, dataset, "test"))


def _count_evaluated(spec: RunSpec, dataset: Dataset, split: str, batches: int | None = None) -> int:
    """Return the positions, with padding, of the batches of an evaluation, or of its first ones."""
    lengths = dataset.splits[split].lengths
    chosen = sort_into_batches(lengths, spec.train.batch_size)[:batches]
    return sum(len(each) * (spec.train.pad_to or int(lengths[each].max())) for each in chosen)


class _EnoughSteps(Exception):
    """Enough was timed."""


class _Stopwatch:
    """Times of the calls of a hook, which raises _EnoughSteps once there are enough."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.times = clock, [clock()]

    def __call__(self, *_: int) -> None:
        self.times.append(self.clock())
        calls = len(self.times) - 1
        if calls >= UNTIMED + TIMED or (calls > UNTIMED and self.times[-1] - self.times[0] > LONGEST):
            raise _EnoughSteps

    def measure(self) -> float:
        """Return the mean seconds between calls, without the first ones if there are more."""
        first = UNTIMED if len(self.times) > UNTIMED + 1 else 0
        return (self.times[-1] - self.times[first]) / (len(self.times) - 1 - first)


def time_steps(
    spec: RunSpec, dataset: Dataset, device: str, clock: Clock = time.monotonic
) -> StepTimes | None:
    """Train a few steps of a run and evaluate a few batches, in a folder that is removed.

    Returns None for a run that fails in them, as for lack of memory.
    """
    numerics = environment.use_matmul(spec.train.matmul, device)
    with numerics, tempfile.TemporaryDirectory(prefix="msbench-") as folder:
        try:
            model = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
            trainer = Trainer(
                spec,
                model,
                dataset,
                directory=Path(folder),
                run_id="0" * 12,
                fabric=make_fabric(device, spec.train.precision),
                callback=ProgressCallback(),
                signals=SignalFlag(),
            )
            trainer.room = environment.measure_split_memory(device)
            limit = limit_step_memory(device)
            trainer.gradients.count_recomputed, _ = plan_recomputation(spec, dataset.info, device, limit)
            trainer.after_step = steps = _Stopwatch(clock)
            with suppress(_EnoughSteps):
                trainer.run()
            batches = _Stopwatch(clock)
            with suppress(_EnoughSteps):
                predict(
                    trainer.model,
                    BatchLoader(dataset.splits["validation"], trainer.fabric.device),
                    spec.train.batch_size,
                    pad_to=spec.train.pad_to,
                    at_once=trainer.gradients.size,
                    between=batches,
                )
        except RunError:
            return None
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                return None
            raise
    count = len(batches.times) - 1
    positions = _count_evaluated(spec, dataset, "validation", count)
    return StepTimes(steps.measure(), batches.measure() * count / positions)


def compute_makespan(seconds: Iterable[float], jobs: int) -> float:
    """Return the time until all runs are done, `jobs` at a time, each begun in order as soon as it can."""
    ends = [0.0] * jobs
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


@dataclass(frozen=True)
class _Work:
    """A run to train: its steps, if they are known, and how many of them are done."""

    spec: RunSpec
    steps: int | None
    done: int


class Campaign:
    """The runs of one command: how many are to be trained, how many have ended, and the time left.

    Finished runs of the command count for others as earlier ones do.
    """

    def __init__(
        self, entries: Sequence[PlannedRun], times: RunTimes, *, jobs: int = 1, clock: Clock = time.monotonic
    ) -> None:
        self.times, self.jobs, self.clock = times, jobs, clock
        self._left = {
            _label(each.spec): _Work(each.spec, count_steps(each), count_done_steps(each))
            for each in entries
            if is_to_train(each)
        }
        self._numbers = {label: number for number, label in enumerate(self._left, 1)}
        self._began: dict[str, float] = {}
        self._estimates = self._estimate()

    def begin(self, spec: RunSpec) -> None:
        """Note that a run begins."""
        self._began[_label(spec)] = self.clock()

    def end(self, spec: RunSpec, record: RunRecord | None = None) -> None:
        """Note that a run has ended, with its record if it left one; one that was kept changes nothing."""
        if self._left.pop(_label(spec), None) is not None and record is not None:
            self.times.add(record)
            self._estimates = self._estimate()

    def _estimate(self) -> dict[str, Estimate | None]:
        return {
            label: self.times.estimate(work.spec, work.steps, work.done) for label, work in self._left.items()
        }

    @property
    def count(self) -> int:
        """The number of runs to train, those that have ended included."""
        return len(self._numbers)

    @property
    def ended(self) -> int:
        """The number of runs that have ended."""
        return self.count - len(self._left)

    def describe_run(self, spec: RunSpec) -> str:
        """Return text such as ``run 3 of 95``; empty for a single run, or for one that is kept."""
        number = self._numbers.get(_label(spec))
        return "" if number is None or self.count < 2 else f"run {number} of {self.count}"

    def describe_left(self, spec: RunSpec | None = None, seconds: float | None = None) -> str:
        """Return the time left, such as ``2 h 10 min left``; empty if it is unknown or nothing is left.

        `seconds` are what is left of the run in progress, if that is known better than by its estimate.
        """
        now, mine = self.clock(), None if spec is None or seconds is None else _label(spec)
        known = []
        for label in self._left:
            if label == mine and seconds is not None:
                known.append(seconds)
            elif (found := self._estimates[label]) is not None:
                known.append(max(0.0, found.seconds - (now - self._began.get(label, now))))
        if not known:
            return ""
        least = "at least " if len(known) < len(self._left) else ""
        return f"{least}{format_duration(compute_makespan(known, self.jobs))} left"


def plan_campaign(specs: Sequence[RunSpec], options: RunOptions, device: str) -> Campaign:
    """Plan the runs of a command; within `apply_settings`."""
    entries = plan_runs(specs, options.results, datasets.data_root(), fresh=options.fresh)
    return Campaign(entries, read_times(entries, options, device))


def _label(spec: RunSpec) -> str:
    return f"{spec.suite}/{spec.task}/{spec.digest}"
