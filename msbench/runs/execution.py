"""Execution of one RunSpec to one RunRecord: the only place that joins data, model, training and store."""

import contextlib
import json
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from msbench import __version__, datasets, models
from msbench.config import RunSpec
from msbench.config.differences import flatten
from msbench.config.messages import describe_first_fault
from msbench.config.own import find_own
from msbench.config.run import EXECUTION_OPTIONS
from msbench.datasets.dataset import Dataset, Progress, TaskInfo, ignore_progress
from msbench.environment import choose_accelerator, describe_environment, measure_split_memory, use_matmul
from msbench.errors import (
    NO_ROOM,
    ConfigError,
    DamagedRecord,
    DataError,
    Diverged,
    Interrupted,
    Lost,
    MsbenchError,
    OutOfMemory,
    RunError,
    explain_unwritable,
)
from msbench.models.own import check_own
from msbench.results import store
from msbench.results.files import require_writable
from msbench.results.metrics_log import follow_log
from msbench.results.predictions import write_predictions
from msbench.results.record import Failure, RunRecord, Status, encode_record, get_metric_key, write_record
from msbench.results.run_log import RunLog
from msbench.runs.amounts import log_amounts
from msbench.runs.identity import Identity, digest_kernels, identify
from msbench.runs.memory import advise_on_memory, limit_step_memory, plan_recomputation
from msbench.runs.plan import name_run
from msbench.runs.suite import check_fit
from msbench.training.batches import count_resident_bytes
from msbench.training.evaluation import Predictions
from msbench.training.loggers import LoggedRun, RunLoggers
from msbench.training.loop import Trainer, make_fabric
from msbench.training.memory import is_out_of_memory
from msbench.training.metrics import (
    EpochRow,
    ProgressCallback,
    StepReport,
    TrainingProgress,
    describe_epoch,
)
from msbench.training.processes import SINGLE, Processes
from msbench.training.signals import SignalFlag


@dataclass(frozen=True)
class RunContext:
    """Folders, device, signals, processes and loggers of runs; `device` is auto, cpu or cuda.

    Several `processes` execute the same runs in the same order, and the first of them writes.
    """

    results: Path
    data_root: Path
    device: str
    signals: SignalFlag
    processes: Processes = SINGLE
    loggers: tuple[str, ...] = ()


def execute(
    spec: RunSpec, context: RunContext, listener: ProgressCallback, *, fresh: bool = False, wait: bool = True
) -> RunRecord | None:
    """Set up data, train or resume, evaluate, record; `fresh` archives an earlier run of the same id.

    Returns None at once if another process is training the same run and `wait` is off. A run that fails is
    recorded with its typed status and returned; DataError, Interrupted and usage errors are raised
    (Interrupted after the state and the record are written).
    """
    processes = context.processes
    with processes.agreed():
        dataset = _set_up_dataset(spec, context, listener)
        check_fit(spec, dataset.info)
        identity = identify(spec, dataset.digest)
        _check_alike(identity, processes)
        directory = store.get_run_folder(context.results, spec, identity.run_id)
        # Before the lock, so that finished results can be read where nothing can be written.
        if not fresh and (record := _read_completed(directory, processes)) is not None:
            return record
        with _hold_lock(directory, context, wait=wait) as mine:
            if processes.broadcast(b"" if mine else None) is None:
                return None
            if fresh and processes.first:
                _archive_completed(directory, listener)
            if (record := _read_completed(directory, processes)) is not None:
                return record
            return _RunAttempt(spec, dataset, identity, directory, context, listener).execute()


@contextlib.contextmanager
def _hold_lock(directory: Path, context: RunContext, *, wait: bool) -> Iterator[bool]:
    """Hold the run's lock in the first process, on behalf of all."""
    if not context.processes.first:
        yield True
        return

    def between() -> None:
        context.processes.wait()
        context.processes.check(context.signals)

    with store.lock_run(directory, wait=wait, between=between) as mine:
        yield mine


def _read_completed(directory: Path, processes: Processes = SINGLE) -> RunRecord | None:
    """Return the record of a completed run, as the first process finds it; None if it is not completed."""
    record = store.read_run(directory) if processes.first else None
    if record is not None and record.status not in ("finished", "diverged"):
        record = None
    if processes.count == 1:
        return record
    data = processes.broadcast(None if record is None else record.model_dump_json().encode())
    return None if data is None else RunRecord.model_validate_json(data)


def _archive_completed(directory: Path, listener: ProgressCallback) -> None:
    """Archive a completed run, or one with a damaged record, next to its folder, for ``--fresh``."""
    try:
        completed = _read_completed(directory) is not None
    except DamagedRecord:
        completed = True
    # A stopped run is resumed instead, so that an interrupted --fresh run can be resumed at all.
    if completed and (old := store.archive_run(directory)) is not None:
        listener.note(f"the earlier run was moved to {old}")


def _check_alike(identity: Identity, processes: Processes) -> None:
    """Raise DataError if this process has other data or another source than the first."""
    first = processes.broadcast(identity.run_id.encode())
    if first != identity.run_id.encode():
        raise DataError("not the data and the source code that the first process has; set them up alike")


def _check_kernels_alike(kernel: str, processes: Processes) -> None:
    """Raise ConfigError if this process would compute by another kernel than the first."""
    first = (processes.broadcast(kernel.encode()) or b"").decode()
    if first != kernel:
        raise ConfigError(
            f"process {processes.rank} would compute with the kernel {kernel}, the first with {first};"
            " give all of them the same GPUs and packages, or choose one with --scan"
        )


def _set_up_dataset(spec: RunSpec, context: RunContext, listener: ProgressCallback) -> Dataset:
    processes = context.processes
    show: Progress = ignore_progress

    def progress(what: str, done: int, total: int) -> None:
        if processes.first:
            processes.wait()
            show(what, done, total)
        processes.check(context.signals)

    if not datasets.is_ready(spec.data, context.data_root):
        require_writable(context.results)  # before hours of set-up, not after them
        listener.note(f"setting up {spec.data.dataset} in {context.data_root}")
        show = log_amounts(listener.note)
    found = datasets.setup(spec.data, context.data_root, progress=progress) if processes.first else None
    # The others continue once it is set up; those on another machine may have to set it up themselves.
    processes.broadcast(b"")
    return found or datasets.setup(spec.data, context.data_root, progress=progress)


class _LoggedProgress(ProgressCallback):
    """Progress of a run that is also written to its log."""

    def __init__(self, shown: ProgressCallback, log: RunLog, epochs: int) -> None:
        self.shown, self.log, self.epochs = shown, log, epochs

    def step(self, report: StepReport) -> None:
        self.shown.step(report)

    def epoch(self, row: EpochRow) -> None:
        self.shown.epoch(row)
        self.log.write(describe_epoch(row, self.epochs))

    def note(self, text: str) -> None:
        self.shown.note(text)
        self.log.write(text)

    def warn(self, text: str) -> None:
        self.shown.warn(text)
        with contextlib.suppress(OSError):
            self.log.write(f"warning: {text}")


@contextlib.contextmanager
def _log_warnings(log: RunLog) -> Iterator[None]:
    """Write Python's warnings to the log too."""
    show = warnings.showwarning

    def write(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        with contextlib.suppress(OSError):  # not out of whatever warns; the next entry fails as well
            log.write(f"{category.__name__}: {message} ({filename}:{lineno})")
        show(message, category, filename, lineno, file, line)

    warnings.showwarning = write
    try:
        yield
    finally:
        warnings.showwarning = show


@dataclass
class _RunAttempt:
    """One attempt at a run, with the lock held."""

    spec: RunSpec
    dataset: Dataset
    identity: Identity
    directory: Path
    context: RunContext
    listener: ProgressCallback
    trainer: Trainer | None = None

    def __post_init__(self) -> None:
        self.device, self.first = choose_accelerator(self.context.device), self.context.processes.first
        self.started = _now()
        self.facts: dict[str, Any] = {}
        self.log = RunLog(self.directory)
        self.listener = _LoggedProgress(self.listener, self.log, self.spec.train.epochs)
        self.loggers: RunLoggers | None = None
        self.recorded = False
        """True once the record of a finished run is being written: nothing may replace it."""

    def execute(self) -> RunRecord:
        """Run, write the record and return it; raises Interrupted, and errors of settings or data."""
        with (
            use_matmul(self.spec.train.matmul, self.device),
            self.context.processes.calling(self._record_lost),
            _log_warnings(self.log),
        ):
            record = None
            try:
                record = self._execute()
            finally:
                self._end_loggers(record)
        return record

    def _end_loggers(self, record: RunRecord | None) -> None:
        """End the loggers, after the record was written: what they wait for or fail at costs no result."""
        if self.loggers is not None:
            finished = record is not None and record.finished
            self.loggers.end(record.metrics if record is not None else {}, finished=finished)

    def _record_lost(self, error: Lost) -> None:
        if not self.recorded:
            self._record_failure(error, error.status)

    def _execute(self) -> RunRecord:
        try:
            with self.context.processes.agreed():
                record = self._train_with_advice()
                self.recorded = True
                self._write_record(record)
            self._log_ending(f"finished: {json.dumps(record.metrics)}")
        except Interrupted as error:
            self._record_failure(error, "interrupted")
            raise
        except Lost as error:
            self._record_failure(error, error.status)
            raise
        except RunError as error:
            return self._record_failure(error, error.status)
        except MsbenchError:
            raise
        except Exception as error:
            return self._record_crash(error)
        return record

    def _train_with_advice(self) -> RunRecord:
        try:
            return self._train_and_test()
        except Exception as error:
            if isinstance(error, MsbenchError) or not is_out_of_memory(error):
                raise
            raise OutOfMemory(advise_on_memory(error, self.spec, self.device)) from None

    def _record_crash(self, error: Exception) -> RunRecord:
        if isinstance(error, OSError):
            where = error.filename or self.directory
            full = error.errno in NO_ROOM
            text = explain_unwritable(where, error, "--results") if full else f"{where}: {error.strerror}"
            return self._record_failure(RunError(text), "failed")
        self._log_ending(traceback.format_exc())
        return self._record_failure(error, "failed")

    def _begin_log(self) -> None:
        spec = self.spec
        name = f"suite {spec.suite}, task {spec.task}, model {spec.model_name}, seed {spec.seed}"
        entries = (
            f"msbench {__version__}: run {self.identity.run_id}: {name}",
            f"settings: {json.dumps(flatten(spec.model_dump(mode='json')))}",
            f"environment: {json.dumps(self._describe_environment())}",
            *(f"data: {note}" for note in self.dataset.manifest.get("notes", ())),
        )
        self.log.begin("\n".join(entries))

    def _log_ending(self, text: str) -> None:
        """Write how the attempt ended. A disk that is full here hides neither result nor failure."""
        if self.first:
            with contextlib.suppress(OSError):
                if not self.log.begun:
                    self._begin_log()
                self.log.write(text)

    def _write_record(self, record: RunRecord) -> None:
        if self.first:
            write_record(self.directory, record)

    def _train_and_test(self) -> RunRecord:
        spec = self.spec
        processes = self.context.processes
        self._check_record()
        fabric = make_fabric(self.device, spec.train.precision, processes)
        model = models.build(spec.model_name, spec.model, self.dataset.info, spec.seed)
        check_own(
            spec.model,
            model.to(fabric.device),
            self.dataset.info,
            self.dataset.splits["train"],
            spec.train.pad_to,
        )
        self.facts |= {
            "parameters": models.count_parameters(model),
            "states_per_channel": models.count_states_per_channel(spec.model_name, spec.model),
            "kernel": models.find_family(spec.model_name, spec.model).name_kernel(
                spec.model, fabric.device.type
            ),
        }
        _check_kernels_alike(str(self.facts["kernel"]), processes)
        signals, run_id = self.context.signals, self.identity.run_id
        self.trainer = Trainer(
            spec,
            model,
            self.dataset,
            directory=self.directory,
            run_id=run_id,
            fabric=fabric,
            callback=self.listener,
            signals=signals,
            processes=processes,
        )
        self.trainer.room = measure_split_memory(self.device)
        self.trainer.gradients.count_recomputed = self._plan_recomputation(self.trainer.room)
        self.trainer.attempt = self._describe_attempt()
        self._check_record()  # now with the model's counts
        self._remove_earlier_record()
        with contextlib.ExitStack() as following:
            if self.first:
                self._begin_log()
                self.loggers = self._start_loggers()
                following.enter_context(follow_log(self.directory, self.loggers.log))
            self.trainer.run()
        began = time.monotonic()
        test = self.trainer.test()
        if self.first:
            write_predictions(
                self.directory / "predictions.parquet",
                self.identity.run_id,
                labels=test.labels,
                decisions=test.decisions,
                logits=test.logits,
                properties=datasets.describe_examples(self.spec.data, self.dataset.splits["test"]),
            )
        return self._finish(self.trainer, test, time.monotonic() - began)

    def _check_record(self) -> None:
        """Raise ConfigError for values that the record cannot hold, before training."""
        try:
            RunRecord.model_validate_json(encode_record(self._build_record("interrupted")))
        except ValidationError as error:
            fault = describe_first_fault(error)
            raise ConfigError(f"{name_run(self.spec)}: no record could hold {fault}") from None

    def _remove_earlier_record(self) -> None:
        """Remove the record of an earlier attempt: it would pass for this one's if this one died."""
        # Only after all checks that may refuse the run: an attempt that never began changes nothing.
        if self.first:
            (self.directory / "run.json").unlink(missing_ok=True)

    def _start_loggers(self) -> RunLoggers:
        spec, run_id = self.spec, self.identity.run_id
        facts = {name: self.facts[name] for name in ("parameters", "states_per_channel", "kernel")}
        settings = {"run": run_id, **flatten(spec.model_dump(mode="json")), **facts}
        title = f"{spec.suite} {spec.task} {spec.model_name} s{spec.seed}"

        def warn(text: str) -> None:
            self.listener.warn(f"{name_run(spec)}: {text}")

        return RunLoggers(self.context.loggers, LoggedRun(self.directory, run_id, title, settings, warn))

    def _describe_attempt(self) -> dict[str, str]:
        found = describe_environment()
        kernel = str(self.facts["kernel"])
        options = {name: str(value) for name, value in self._list_execution_options().items()}
        options |= {"deterministic": "yes"} if found["deterministic"] else {}
        where = {"host": found["host"], "device": self.device, "threads": str(found["threads"])}
        return {"started": self.started, "kernel": kernel, **where, **options}

    def _describe_environment(self) -> dict[str, Any]:
        return {
            **describe_environment(),
            "device": self.device,
            **self._list_execution_options(),
            **self._list_own_code(),
        }

    def _list_execution_options(self) -> dict[str, Any]:
        """Return the execution options, which the run's id does not depend on."""
        options = {name: getattr(self.spec.train, name) for name in EXECUTION_OPTIONS}
        given = {name: value for name, value in options.items() if value is not None}
        return {"devices": self.context.processes.count, **given}

    def _list_own_code(self) -> dict[str, Any]:
        """Return where the code of a user's own model and dataset is here, so that the run can be opened."""
        codes = {"model": find_own(self.spec.model), "data": find_own(self.spec.data)}
        found = {key: code.location for key, code in codes.items() if code is not None}
        return {"own_code": found} if found else {}

    def _plan_recomputation(self, room: int) -> Callable[[int], int]:
        """Return how many blocks to recompute for a batch of some positions, with splits kept in `room`."""
        spec, processes, info = self.spec, self.context.processes, self.dataset.info
        held = sum(count_resident_bytes(split, room) for split in self.dataset.splits.values())
        # One limit for all: a recomputed layer may be a batch norm, which all processes compute together.
        mine = limit_step_memory(self.device, held, processes.here)
        limit = int(processes.broadcast(str(mine).encode()) or mine)
        count, most = plan_recomputation(spec, info, self.device, limit, processes.count)
        if most is not None:
            self.listener.note(
                f"some layers are computed twice for batches of more than {most:,} tokens, to save memory; "
                "results are the same"
            )
        return count

    def _finish(self, trainer: Trainer, test: Predictions, test_seconds: float) -> RunRecord:
        progress = trainer.progress
        metrics = compute_metrics(progress, test, self.dataset.info)
        timing = {
            "train_seconds": progress.train_seconds,
            "tokens_per_second": progress.train_tokens / max(progress.train_seconds, 1e-9),
            "test_seconds": test_seconds,
        }
        return self._build_record("finished", metrics=metrics, timing=timing, n_test=len(test.labels))

    def _record_failure(self, cause: BaseException, status: Status) -> RunRecord:
        self._log_ending(f"{status}: {type(cause).__name__}: {cause}")
        failure = Failure(type=type(cause).__name__, message=str(cause))
        if isinstance(cause, Diverged):
            failure = failure.model_copy(update={"step": cause.step, "name": cause.name})
        record = self._build_record(status, failure=failure)
        try:
            self._write_record(record)
        except OSError as error:
            self.listener.note(explain_unwritable(error.filename or self.directory, error, "--results"))
        return record

    def _build_record(self, status: Status, **values: Any) -> RunRecord:
        spec, identity = self.spec, self.identity
        if self.trainer is not None:
            progress = self.trainer.progress
            self.facts |= {"steps": progress.step, "resumed": progress.resumes, "attempts": progress.attempts}
        return RunRecord(
            run_id=identity.run_id,
            status=status,
            suite=spec.suite,
            task=spec.task,
            model=spec.model_name,
            seed=spec.seed,
            spec=spec.model_dump(mode="json"),
            spec_digest=spec.digest,
            data_digest=identity.data_digest,
            data_notes=tuple(self.dataset.manifest.get("notes", ())),
            data_remarks=tuple(self.dataset.manifest.get("remarks", ())),
            source_digest=identity.source_digest,
            sources=identity.files,
            kernel_digest=digest_kernels(),
            metric=self.dataset.info.metric,
            chance=self.dataset.info.chance,
            baselines=dict(self.dataset.info.baselines),
            classes=tuple(self.dataset.manifest.get("classes", ())),
            environment=self._describe_environment(),
            started=self.started,
            ended=_now(),
            **{**self.facts, **values},
        )


def compute_metrics(progress: TrainingProgress, test: Predictions, info: TaskInfo) -> dict[str, float]:
    """Return metrics on the test split and, of the best epoch, on the validation split."""
    assert progress.best_epoch is not None, "a finished run has validated at least once"
    metrics = {
        "test_accuracy": test.accuracy,
        "test_loss": test.loss,
        "validation_accuracy": progress.rows[progress.best_epoch - 1]["validation_accuracy"],
        "best_epoch": float(progress.best_epoch),
    }
    if info.metric == "macro-auroc":
        found = test.macro_auroc
        metrics |= {
            get_metric_key("test", "macro-auroc"): found.value,
            get_metric_key("validation", "macro-auroc"): progress.best_score,
            "classes_scored": float(found.scored),
            "classes_left_out": float(found.left_out),
        }
    return metrics


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
