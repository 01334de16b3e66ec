"""One RunSpec to one RunRecord: the only place that joins data, model, training and store."""

import contextlib
import io
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from msbench import data, fit, models, store
from msbench.agenda import Identity, identify
from msbench.data.dataset import Dataset
from msbench.environment import accelerator, environment, free_memory, room_for_splits
from msbench.errors import (
    NO_ROOM,
    ConfigError,
    DamagedRecord,
    Diverged,
    Interrupted,
    MsbenchError,
    OutOfMemory,
    RunError,
    unwritten,
)
from msbench.files import require_writable
from msbench.specs import RunSpec
from msbench.store import Failure, RunRecord, Status
from msbench.training.evaluate import Predictions
from msbench.training.loop import Trainer, fabric_for
from msbench.training.signals import SignalFlag
from msbench.training.state import Listener

CPU_OUT_OF_MEMORY = "can't allocate memory"
"""What torch says in a plain RuntimeError where the CPU's memory ran out."""


@dataclass(frozen=True)
class Place:
    """Where runs execute and are kept; `device` is auto, cpu or cuda."""

    results: Path
    data_root: Path
    device: str
    signals: SignalFlag


def execute(
    spec: RunSpec, place: Place, listener: Listener, *, fresh: bool = False, wait: bool = True
) -> RunRecord | None:
    """Set up data, train or resume, evaluate, record; `fresh` sets an earlier run of the same id aside.

    Returns None, at once, where another process is training the very same run and `wait` is off. A run that
    fails is recorded with its typed status and returned; DataError, Interrupted and usage errors are raised
    (Interrupted after the state and the record are written).
    """
    dataset = _dataset(spec, place, listener)
    _check_fit(spec, dataset)
    identity = identify(spec, dataset.digest)
    directory = store.run_directory(place.results, spec, identity.run_id)
    # Before the lock, so that finished results can be read where nothing can be written.
    if not fresh and (record := _ended(directory)) is not None:
        return record
    with store.locked(directory, wait=wait, between=place.signals.check) as mine:
        if not mine:
            return None
        if fresh:
            _set_ended_aside(directory, listener)
        if (record := _ended(directory)) is not None:
            return record
        return _Run(spec, dataset, identity, directory, place, listener).execute()


def _ended(directory: Path) -> RunRecord | None:
    """The record of a run that another attempt would not change."""
    record = store.read_filed(directory)
    return record if record is not None and record.status in ("finished", "diverged") else None


def _set_ended_aside(directory: Path, listener: Listener) -> None:
    try:
        ended = _ended(directory) is not None
    except DamagedRecord:
        ended = True
    # What was stopped goes on instead: so that a --fresh run that is interrupted can be resumed at all.
    if ended and (old := store.set_aside(directory)) is not None:
        listener.note(f"the earlier run was moved to {old}")


def _check_fit(spec: RunSpec, dataset: Dataset) -> None:
    for path, problem in fit.faults(spec, dataset.info):
        raise ConfigError(f"{'.'.join(map(str, path))}: {problem}")
    pad_to, longest = spec.train.pad_to, dataset.info.longest
    if pad_to is not None and pad_to < longest:
        raise ConfigError(f"train.pad_to is {pad_to}, but the longest of {spec.task} has {longest} tokens")


def _dataset(spec: RunSpec, place: Place, listener: Listener) -> Dataset:
    if not data.is_ready(spec.data, place.data_root):
        require_writable(place.results)  # before hours of set-up, not after them
        listener.note(f"setting up {spec.data.dataset} in {place.data_root}")
    return data.setup(spec.data, place.data_root, progress=lambda *_: place.signals.check())


class _Run:
    """One attempt at a run, with the lock held."""

    def __init__(
        self,
        spec: RunSpec,
        dataset: Dataset,
        identity: Identity,
        directory: Path,
        place: Place,
        listener: Listener,
    ) -> None:
        self.spec, self.dataset, self.identity, self.directory = spec, dataset, identity, directory
        self.place, self.listener = place, listener
        self.device = accelerator(place.device)
        self.started = _now()
        self.facts: dict[str, Any] = {}
        self.trainer: Trainer | None = None

    def execute(self) -> RunRecord:
        """The record, written; raises Interrupted, and what is wrong with settings or data."""
        # A record of an earlier attempt would pass for this one's if this one died.
        for name in ("run.json", "error.txt"):
            (self.directory / name).unlink(missing_ok=True)
        try:
            record = self._train_and_test()
            store.write_record(self.directory, record)
        except Interrupted as error:
            self._fail(error, "interrupted")
            raise
        except RunError as error:
            return self._fail(error, error.status)
        except MsbenchError:
            raise
        except Exception as error:
            return self._crash(error)
        return record

    def _crash(self, error: Exception) -> RunRecord:
        first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or CPU_OUT_OF_MEMORY in str(error):
            return self._fail(OutOfMemory(first_line), "out-of-memory")
        if isinstance(error, OSError):
            return self._fail(RunError(self._told(error)), "failed")
        with contextlib.suppress(OSError):
            store.write_atomically(self.directory / "error.txt", traceback.format_exc().encode())
        return self._fail(error, "failed")

    def _told(self, error: OSError) -> str:
        where = error.filename or self.directory
        return (
            unwritten(where, error, "--results") if error.errno in NO_ROOM else f"{where}: {error.strerror}"
        )

    def _train_and_test(self) -> RunRecord:
        spec = self.spec
        fabric = fabric_for(self.device, spec.train.precision)
        model = models.build(spec.model_name, spec.model, self.dataset.info, spec.seed)
        self.facts |= {
            "parameters": models.parameter_count(model),
            "states_per_channel": models.states_per_channel(spec.model_name, spec.model),
            "kernel": models.family(spec.model_name).kernel(spec.model, fabric.device.type),
        }
        signals, run_id = self.place.signals, self.identity.run_id
        self.trainer = Trainer(
            spec, model, self.dataset, self.directory, run_id, fabric, self.listener, signals
        )
        self.trainer.room = room_for_splits(self.device)
        self.trainer.recompute_above = self._recompute_above()
        self.trainer.attempt = self._attempt()
        self.trainer.run()
        began = time.monotonic()
        test = self.trainer.test()
        write_predictions(self.directory / "predictions.parquet", test)
        return self._finish(self.trainer, test, time.monotonic() - began)

    def _attempt(self) -> dict[str, str]:
        found = environment()
        kernel = str(self.facts["kernel"])
        where = {"host": found["host"], "device": self.device, "threads": str(found["threads"])}
        return {"started": self.started, "kernel": kernel, **where}

    def _recompute_above(self) -> int:
        """Positions of a batch beyond which its activations would fill half of what memory is free."""
        spec = self.spec
        each = models.activation_bytes(spec.model_name, spec.model, 1, self.device)
        limit = free_memory(self.device) // 2 // each
        info = self.dataset.info
        if spec.train.batch_size * info.sequences * (spec.train.pad_to or info.longest) > limit:
            self.listener.note(
                f"layers are computed twice for batches of more than {limit:,} tokens, to save memory; "
                "results are the same"
            )
        return limit

    def _finish(self, trainer: Trainer, test: Predictions, test_seconds: float) -> RunRecord:
        progress = trainer.progress
        assert progress.best_epoch is not None, "a finished run has validated at least once"
        metrics = {
            "test_accuracy": test.accuracy,
            "test_loss": test.loss,
            "validation_accuracy": progress.rows[progress.best_epoch]["validation_accuracy"],
            "best_epoch": float(progress.best_epoch),
        }
        if self.dataset.info.metric == "macro-auroc":
            found = test.macro_auroc
            metrics |= {
                store.metric_key("test", "macro-auroc"): found.value,
                store.metric_key("validation", "macro-auroc"): progress.best_score,
                "classes_scored": float(found.scored),
                "classes_left_out": float(found.left_out),
            }
        timing = {
            "train_seconds": progress.train_seconds,
            "test_seconds": test_seconds,
            "tokens_per_second": progress.train_tokens / max(progress.train_seconds, 1e-9),
        }
        return self._record("finished", metrics=metrics, timing=timing, n_test=len(test.labels))

    def _fail(self, cause: BaseException, status: Status) -> RunRecord:
        failure = Failure(type=type(cause).__name__, message=str(cause))
        if isinstance(cause, Diverged):
            failure = failure.model_copy(update={"step": cause.step, "name": cause.name})
        record = self._record(status, failure=failure)
        try:
            store.write_record(self.directory, record)
        except OSError as error:
            self.listener.note(unwritten(error.filename or self.directory, error, "--results"))
        return record

    def _record(self, status: Status, **values: Any) -> RunRecord:
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
            source_digest=identity.source_digest,
            sources=identity.files,
            metric=self.dataset.info.metric,
            chance=self.dataset.info.chance,
            baselines=dict(self.dataset.info.baselines),
            classes=tuple(self.dataset.manifest.get("classes", ())),
            environment={**environment(), "device": self.device},
            started=self.started,
            ended=_now(),
            **{**self.facts, **values},
        )


def write_predictions(path: Path, predictions: Predictions) -> None:
    """``predictions.parquet``: example number, label, predicted class, whether right, and all logits.

    With several labels an example, the first three stand for each class: ``label_0`` and so on.
    """
    given, decided = predictions.labels, predictions.decisions
    columns: dict[str, Any] = {"example": np.arange(len(given))}
    for name, values in {"label": given, "predicted": decided, "correct": decided == given}.items():
        columns |= by_class(name, values) if predictions.multi_label else {name: values}
    columns |= by_class("logit", predictions.logits)
    buffer = io.BytesIO()
    # Without checksums a flipped bit would be read as another answer.
    pd.DataFrame(columns).to_parquet(buffer, index=False, write_page_checksum=True)
    store.write_atomically(path, buffer.getvalue())


def by_class(name: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Columns ``name_0``, ``name_1``, ... of values (n, classes)."""
    return {f"{name}_{index}": column for index, column in enumerate(values.T)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
