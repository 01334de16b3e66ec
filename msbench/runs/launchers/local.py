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
from functools import partial
from pathlib import Path
from typing import IO

import torch

from msbench import datasets, environment, models
from msbench.config import RunSpec
from msbench.console import say
from msbench.errors import ConfigError, DamagedRecord, DataError, ExitCode, Interrupted
from msbench.ops.scan.dispatch import force_kernel
from msbench.results.record import RunRecord
from msbench.results.store import read_run
from msbench.runs.duration import Campaign, plan_campaign, read_times
from msbench.runs.execution import RunContext, execute
from msbench.runs.launchers import BUSY, NO_WAIT, PoolProgress, RunOptions, RunOutcome, is_placed
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

ProgressFactory = Callable[[RunSpec, Campaign | None], ProgressCallback]
"""Returns the receiver of reports on a run's training, which is a context around it.

The runs of the whole command are None if nothing of them is to be shown.
"""
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
        threads = options.threads
        if threads is None and options.jobs == 1:  # else each of the processes has a share of the cores
            threads = environment.limit_threads()
        if threads is not None:
            settings.enter_context(environment.use_threads(threads))
        if options.deterministic:  # before a kernel's check starts CUDA
            settings.enter_context(environment.use_deterministic(device))
        check_count(options.devices, device)
        if device == "cuda" and is_placed():  # before a kernel's check starts another process's GPU
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if options.scan is not None:
            # Of several processes each checks it on its own GPU, and this one leaves them all their memory.
            force_kernel(options.scan, device, check=options.jobs == 1)
        check_kernels(specs)
        if options.deterministic:
            models.check_fixed_order(specs)
        yield device


def run_locally(
    specs: Sequence[RunSpec],
    options: RunOptions,
    progress: ProgressFactory = lambda *_: ProgressCallback(),
    pool_progress: Callable[[], PoolProgress] = PoolProgress,
) -> RunOutcome:
    """Execute all runs; a failed one does not stop the others.

    With ``options.jobs`` above 1, several run at a time in processes of their own, which print their progress
    themselves. Raises Interrupted if a signal has arrived, and nothing more is started.
    """
    with apply_settings(specs, options) as device:
        if options.jobs > 1:
            return run_in_parallel(specs, options, device, pool_progress)
        with create_flag() as signals, join_processes(device, signals) as processes:
            context = RunContext(
                options.results, datasets.data_root(), options.device, signals, processes, options.loggers
            )
            shown = len(specs) > 1 and processes.first and not options.quiet
            campaign = plan_campaign(specs, options, device) if shown else None
            return run_sequentially(specs, context, progress, campaign, fresh=options.fresh)


def run_sequentially(
    specs: Sequence[RunSpec],
    context: RunContext,
    progress: ProgressFactory,
    campaign: Campaign | None = None,
    *,
    fresh: bool,
) -> RunOutcome:
    """Execute all runs in this process.

    Runs that another process is training are left to the end and then waited for, so that an exit code of 0
    means that all requested runs are done.
    """
    may_wait = os.environ.pop(NO_WAIT, None) is None
    outcome = RunOutcome()
    work = partial(_run_one, context=context, outcome=outcome, progress=progress, campaign=campaign)
    busy = [spec for spec in specs if not work(spec, fresh=fresh)]
    if busy and not may_wait:
        outcome.code = BUSY
        return outcome
    for spec in busy:
        say(f"{name_run(spec)}: waiting for another process that trains it")
        work(spec, wait=True)
    return outcome


def _run_one(
    spec: RunSpec,
    context: RunContext,
    outcome: RunOutcome,
    progress: ProgressFactory,
    campaign: Campaign | None,
    *,
    fresh: bool = False,
    wait: bool = False,
) -> bool:
    """Add a run's record or error to the outcome; return False if another process is training it."""
    known = len(outcome.records)
    if campaign is not None:
        campaign.begin(spec)
    done = _execute_one(spec, context, outcome, partial(progress, spec, campaign), fresh=fresh, wait=wait)
    if done and campaign is not None:
        campaign.end(spec, *outcome.records[known:])
    return done


def _execute_one(
    spec: RunSpec,
    context: RunContext,
    outcome: RunOutcome,
    progress: Callable[[], ProgressCallback],
    *,
    fresh: bool,
    wait: bool,
) -> bool:
    try:
        with progress() as listener:
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


def run_in_parallel(
    specs: Sequence[RunSpec],
    options: RunOptions,
    device: str,
    progress: Callable[[], PoolProgress] = PoolProgress,
) -> RunOutcome:
    """Train missing runs on ``cpu`` or ``cuda``, `options.jobs` at a time.

    Raises Interrupted, once all have saved and ended, if a signal has arrived: then nothing more starts.
    """
    # Edits in the hours that this takes change no waiting run.
    suites = list(map(load_suite, options.suites))
    frozen = {each.name: Path(each.source.name).read_bytes() for each in suites}
    entries, code = plan_with_data(specs, options.results, fresh=options.fresh, quiet=options.quiet)
    if to_train := [entry for entry in entries if entry.action in TO_TRAIN]:
        with tempfile.TemporaryDirectory(prefix="msbench-") as folder:
            files = {name: Path(folder) / name / f"{name}.yaml" for name in frozen}
            for each in suites:
                each.copy_file(frozen[each.name], files[each.name])
            campaign = Campaign(to_train, read_times(to_train, options, device), jobs=options.jobs)
            with progress() as shown:
                code = code or _train(to_train, replace(options, device=device), files, campaign, shown)
    return _read_outcome(plan_runs(specs, options.results, datasets.data_root()), code)


def _train(
    entries: Sequence[PlannedRun],
    options: RunOptions,
    suite_files: Mapping[str, Path],
    campaign: Campaign,
    shown: PoolProgress,
) -> ExitCode:
    """Train these runs; return the exit code of failures that no record shows."""
    codes: list[int] = []

    def on_end(index: int, code: int, said: str) -> None:
        codes.append(code)
        spec = entries[index].spec
        name = name_run(spec)
        campaign.end(spec, _read_record(entries[index]))
        for line in said.splitlines():
            shown.note(line)
        if code < 0 and not received:  # a signal that was passed on may arrive after everything is saved
            killer = signal.Signals(-code).name
            shown.note(f"{name}: ended by {killer}; the same command resumes from its checkpoint")
        elif not options.quiet:
            words = [f"ended, {len(codes)} of {len(entries)}", campaign.describe_left()]
            shown.note(f"{name}: {', '.join(filter(None, words))}")

    def build_command(index: int, retried: bool) -> list[str]:
        # In a second attempt, a run that another process has trained meanwhile counts.
        own = replace(options, fresh=options.fresh and not retried)
        spec = entries[index].spec
        words = own.build_run_command(spec, suite_files[spec.suite])
        quiet = ["--quiet"] if options.quiet or shown.live else []
        return [*build_python_command(), "-m", "msbench", *words, *quiet]

    def move() -> None:
        training = [entries[index].spec for index in pool.working]
        shown.move(campaign.ended, campaign.count, campaign.describe_left(), training)

    slots = build_slots(options.jobs, options.device)
    pool = WorkerPool(
        len(entries),
        build_command,
        slots,
        on_end,
        on_start=lambda index: campaign.begin(entries[index].spec),
        on_wait=move,
        captured=shown.live,
    )
    with forward_signals([]) as received:  # the pool passes them on
        pool.work(received)
    if received:
        raise Interrupted(received[0])
    return choose_worst(codes)


def _read_record(entry: PlannedRun) -> RunRecord | None:
    with suppress(ConfigError, DamagedRecord):
        return None if entry.directory is None else read_run(entry.directory)
    return None


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
    waiting: then it waits for that process. `on_start` is called with the index of each that starts, `on_end`
    with index and exit code of each that ended and, if it is `captured`, what it printed to stderr; `on_wait`
    again and again between.
    """

    def __init__(
        self,
        count: int,
        command: Callable[[int, bool], Sequence[str]],
        slots: Sequence[Slot],
        on_end: Callable[[int, int, str], None],
        *,
        on_start: Callable[[int], None] = lambda _: None,
        on_wait: Callable[[], None] = lambda: None,
        captured: bool = False,
    ) -> None:
        self.command, self.slots, self.captured = command, list(slots), captured
        self.on_start, self.on_wait, self.on_end = on_start, on_wait, on_end
        self.waiting, self.retried = list(range(count)), list[int]()
        self.working: dict[int, tuple[subprocess.Popen[bytes], Slot, IO[bytes] | None]] = {}

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
                self.on_wait()
                time.sleep(POLL)
        finally:
            self._end()

    def _start(self) -> None:
        retried = not self.waiting
        index = (self.waiting or self.retried).pop(0)
        slot = self.slots.pop(0)
        environment = {**os.environ, **slot, **({} if retried else {NO_WAIT: "1"})}
        said = tempfile.TemporaryFile() if self.captured else None  # noqa: SIM115
        process = start_held(self.command(index, retried), environment, subprocess.DEVNULL, said)
        self.working[index] = process, slot, said
        self.on_start(index)

    def _collect(self) -> None:
        for index, (process, slot, said) in list(self.working.items()):
            if (code := process.poll()) is not None:
                process.communicate()
                del self.working[index]
                self.slots.append(slot)
                text = _read_rest(said)
                if code == BUSY:
                    self.retried.append(index)
                else:
                    self.on_end(index, code, text)

    def _send(self, number: int) -> None:
        for process, *_ in self.working.values():
            process.send_signal(number)

    def _end(self) -> None:
        """Let processes that are left after an error here save and end."""
        self._send(signal.SIGTERM)
        end = time.monotonic() + PATIENCE
        for process, *_ in self.working.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            process.kill()
            process.communicate()


def _read_rest(said: IO[bytes] | None) -> str:
    """Return all that was written to a temporary file, and close it."""
    if said is None:
        return ""
    with said:
        said.seek(0)
        return said.read().decode(errors="backslashreplace")
