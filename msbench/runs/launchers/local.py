"""Runs on this machine: one after another in this process, or in parallel in a pool of processes.

In the pool each run has a process of its own, so that none shares threads, memory or signals. Their outcome
is read from the records that they wrote.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from msbench import datasets, environment, models
from msbench.config import RunSpec
from msbench.console import say
from msbench.errors import DamagedRecord, DataError, ExitCode, Interrupted
from msbench.ops.scan.dispatch import force_kernel
from msbench.runs.execution import RunContext, execute
from msbench.runs.launchers import BUSY, NO_WAIT, RunOptions, RunOutcome
from msbench.runs.launchers.distributed import (
    PATIENCE,
    POLL,
    build_python_command,
    check_count,
    create_flag,
    forward_signals,
    join_processes,
    start_held,
)
from msbench.runs.plan import TO_TRAIN, PlannedRun, check_kernels, name_run, plan_runs
from msbench.runs.setup import plan_with_data
from msbench.runs.suite import load_suite
from msbench.training.metrics import ProgressCallback

ProgressFactory = Callable[[RunSpec], ProgressCallback]
"""Returns the receiver of reports on a run's training, which is a context around it."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
SEVERE = (ExitCode.INTERNAL, ExitCode.USAGE, ExitCode.DATA)
"""Exit codes that no record shows, the most severe first."""
Slot = Mapping[str, str]
"""Environment variables of a worker in addition to its parent's."""


@contextmanager
def apply_settings(specs: Sequence[RunSpec], options: RunOptions) -> Iterator[str]:
    """Make the global settings of these runs for the context, and yield their device, ``cpu`` or ``cuda``.

    Raises ConfigError if a kernel, the device or the number of processes does not suit the runs.
    """
    device = environment.choose_accelerator(options.device)
    with ExitStack() as settings:
        threads = environment.limit_threads() if options.threads is None else options.threads
        if threads is not None:
            settings.enter_context(environment.use_threads(threads))
        if options.deterministic:  # before a kernel's check starts CUDA
            settings.enter_context(environment.use_deterministic(device))
        if options.scan is not None:
            force_kernel(options.scan, device)
        check_kernels(specs, device)
        if options.deterministic:
            models.check_fixed_order(specs, device)
        check_count(options.devices, device)
        yield device


def run_locally(
    specs: Sequence[RunSpec],
    options: RunOptions,
    progress: ProgressFactory = lambda _: ProgressCallback(),
) -> RunOutcome:
    """Execute all runs; a failed one does not stop the others.

    With ``options.jobs`` above 1, several run at a time in processes of their own, which print their progress
    themselves. Raises Interrupted if a signal has arrived, and nothing more is started.
    """
    with apply_settings(specs, options) as device:
        if options.jobs > 1:
            return run_in_parallel(specs, options, device)
        with create_flag() as signals, join_processes(device, signals) as processes:
            context = RunContext(options.results, datasets.data_root(), options.device, signals, processes)
            return run_sequentially(specs, context, progress, fresh=options.fresh)


def run_sequentially(
    specs: Sequence[RunSpec], context: RunContext, progress: ProgressFactory, *, fresh: bool
) -> RunOutcome:
    """Execute all runs in this process.

    Runs that another process is training are left to the end and then waited for, so that an exit code of 0
    means that all requested runs are done.
    """
    may_wait = os.environ.pop(NO_WAIT, None) is None
    outcome = RunOutcome()
    busy = [spec for spec in specs if not _run_one(spec, context, outcome, progress, fresh=fresh)]
    if busy and not may_wait:
        outcome.code = BUSY
        return outcome
    for spec in busy:
        say(f"{name_run(spec)}: waiting for another process that trains it")
        _run_one(spec, context, outcome, progress, wait=True)
    return outcome


def _run_one(
    spec: RunSpec,
    context: RunContext,
    outcome: RunOutcome,
    progress: ProgressFactory,
    *,
    fresh: bool = False,
    wait: bool = False,
) -> bool:
    """Add a run's record or error to the outcome; return False if another process is training it."""
    try:
        with progress(spec) as listener:
            record = execute(spec, context, listener, fresh=fresh, wait=wait)
    except DataError as error:
        # A signal to the whole process group can end the workers of a set-up before it is noticed here.
        context.processes.check(context.signals)
        if str(error) not in outcome.data_errors:  # once for all runs on the same data
            say(f"msbench: {error}")
        outcome.data_errors.append(str(error))
        return True
    except DamagedRecord as error:
        say(f"msbench: {error}")
        outcome.damaged += 1
        return True
    if record is None:
        return False
    outcome.records.append(record)
    context.processes.check(context.signals)
    return True


def run_in_parallel(specs: Sequence[RunSpec], options: RunOptions, device: str) -> RunOutcome:
    """Train missing runs on ``cpu`` or ``cuda``, `options.jobs` at a time.

    Raises Interrupted, once all have saved and ended, if a signal has arrived: then nothing more starts.
    """
    # Edits in the hours that this takes change no waiting run.
    frozen = {each.name: Path(each.source.name).read_bytes() for each in map(load_suite, options.suites)}
    entries, code = plan_with_data(specs, options.results, fresh=options.fresh, quiet=options.quiet)
    if to_train := [entry for entry in entries if entry.action in TO_TRAIN]:
        with tempfile.TemporaryDirectory(prefix="msbench-") as folder:
            files = {name: Path(folder) / f"{name}.yaml" for name in frozen}
            for name, file in files.items():
                file.write_bytes(frozen[name])
            code = code or _train(to_train, replace(options, device=device), files)
    return _read_outcome(plan_runs(specs, options.results, datasets.data_root()), code)


def _train(entries: Sequence[PlannedRun], options: RunOptions, suite_files: Mapping[str, Path]) -> ExitCode:
    """Train these runs; return the exit code of failures that no record shows."""
    codes: list[int] = []

    def on_end(index: int, code: int) -> None:
        codes.append(code)
        name = name_run(entries[index].spec)
        if code < 0 and not received:  # a signal that was passed on may arrive after everything is saved
            killer = signal.Signals(-code).name
            say(f"{name}: ended by {killer}; the same command resumes from its checkpoint")
        elif not options.quiet:
            say(f"{name}: ended, {len(codes)} of {len(entries)}")

    def build_command(index: int, retried: bool) -> list[str]:
        # In a second attempt, a run that another process has trained meanwhile counts.
        own = replace(options, fresh=options.fresh and not retried)
        spec = entries[index].spec
        words = own.build_run_command(spec, suite_files[spec.suite])
        return [*build_python_command(), "-m", "msbench", *words, *(["--quiet"] if options.quiet else [])]

    with forward_signals([]) as received:  # the pool passes them on
        slots = build_slots(options.jobs, options.device)
        WorkerPool(len(entries), build_command, slots, on_end).work(received)
    if received:
        raise Interrupted(received[0])
    return choose_worst(codes)


def _read_outcome(entries: Sequence[PlannedRun], code: ExitCode) -> RunOutcome:
    outcome = RunOutcome([entry.record for entry in entries if entry.record is not None], code=code)
    for entry in entries:
        if entry.action == "damaged":
            say(f"msbench: {entry.reason}")
            outcome.damaged += 1
        elif entry.record is None and entry.action in TO_TRAIN:
            say(f"{name_run(entry.spec)}: left no record of run {entry.run_id}; the same command resumes it")
            outcome.code = outcome.code or ExitCode.RUN_FAILED
    return outcome


def build_slots(count: int, device: str) -> list[Slot]:
    """Return `count` slots on ``cpu`` or ``cuda``, each with a share of the cores, and one GPU of several."""
    # A terminal without cursor movement: live bars would overwrite each other.
    plain = {"TERM": "dumb"}
    if not any(os.environ.get(name) for name in environment.THREAD_VARIABLES):  # the user's settings stay
        plain[environment.THREADS] = str(max(1, (environment.count_cores() or 1) // count))
    gpus = _list_gpus() if device == "cuda" else []
    return [plain | ({VISIBLE: gpus[k % len(gpus)]} if gpus else {}) for k in range(count)]


def _list_gpus() -> list[str]:
    """Return the GPUs that this process may use, each by its name in a child process."""
    import torch

    given = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    count = torch.cuda.device_count()
    return given[:count] or [str(index) for index in range(count)]


def choose_worst(codes: Collection[int]) -> ExitCode:
    """Return one exit code for several processes, none of which was asked to stop."""
    known = {code if code in set(ExitCode) else ExitCode.INTERNAL for code in codes if code > 0}
    for code in SEVERE:
        if code in known:
            return code
    return ExitCode.RUN_FAILED if any(codes) else ExitCode.OK


class WorkerPool:
    """A pool of `count` commands that start in order, as many at a time as there are `slots`.

    A command that finds its run `BUSY` in another process is started again, `retried`, when no other is
    waiting: then it waits for that process. `on_end` is called with index and exit code of each that ended.
    """

    def __init__(
        self,
        count: int,
        command: Callable[[int, bool], Sequence[str]],
        slots: Sequence[Slot],
        on_end: Callable[[int, int], None],
    ) -> None:
        self.command, self.on_end, self.slots = command, on_end, list(slots)
        self.waiting, self.retried = list(range(count)), list[int]()
        self.working: dict[int, tuple[subprocess.Popen[bytes], Slot]] = {}

    def work(self, received: Sequence[int]) -> None:
        """Run all commands to their end; once signals are `received`, pass them on and start no more."""
        passed = 0
        try:
            while self.working or ((self.waiting or self.retried) and not received):
                while (self.waiting or self.retried) and self.slots and not received:
                    self._start()
                # Not from a signal's handler: a process that is just being started would miss it.
                for number in received[passed:]:
                    passed += 1
                    self._send(number)
                self._collect()
                time.sleep(POLL)
        finally:
            self._end()

    def _start(self) -> None:
        retried = not self.waiting
        index = (self.waiting or self.retried).pop(0)
        slot = self.slots.pop(0)
        environment = {**os.environ, **slot, **({} if retried else {NO_WAIT: "1"})}
        process = start_held(self.command(index, retried), environment, stdout=subprocess.DEVNULL)
        self.working[index] = process, slot

    def _collect(self) -> None:
        for index, (process, slot) in list(self.working.items()):
            if (code := process.poll()) is not None:
                process.communicate()
                del self.working[index]
                self.slots.append(slot)
                if code == BUSY:
                    self.retried.append(index)
                else:
                    self.on_end(index, code)

    def _send(self, number: int) -> None:
        for process, _ in self.working.values():
            process.send_signal(number)

    def _end(self) -> None:
        """Let processes that are left after an error here save and end."""
        self._send(signal.SIGTERM)
        end = time.monotonic() + PATIENCE
        for process, _ in self.working.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            process.kill()
            process.communicate()
