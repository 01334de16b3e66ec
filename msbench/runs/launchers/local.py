"""Runs on this machine: one after another in this process, or in a pool of processes."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msbench import datasets, environment, models
from msbench.config import RunSpec
from msbench.console import say
from msbench.errors import DamagedRecord, DataError
from msbench.ops.scan.dispatch import force_kernel
from msbench.runs.execution import RunContext, execute
from msbench.runs.launchers import BUSY, NO_WAIT, RunOptions, RunOutcome
from msbench.runs.launchers.distributed import check_count, create_flag, join_processes
from msbench.runs.launchers.pool import run_in_parallel
from msbench.runs.plan import check_kernels, name_run
from msbench.training.metrics import ProgressCallback

ProgressFactory = Callable[[RunSpec], ProgressCallback]
"""Returns the receiver of reports on a run's training, which is a context around it."""


@contextmanager
def apply_settings(specs: Sequence[RunSpec], options: RunOptions) -> Iterator[str]:
    """Make the global settings of these runs for the context, and yield their device, ``cpu`` or ``cuda``.

    Raises ConfigError if a kernel, the device or the number of processes does not suit the runs.
    """
    device = environment.choose_accelerator(options.device)
    with ExitStack() as settings:
        if options.threads is not None:
            settings.enter_context(environment.use_threads(options.threads))
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
