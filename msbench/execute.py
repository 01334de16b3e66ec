"""One RunSpec to one RunRecord: the only place that joins data, model, training and store."""

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
from lightning_fabric import Fabric

from msbench import data, models, ops, store
from msbench.agenda import Identity, identify
from msbench.data.dataset import Dataset
from msbench.environment import environment, free_memory
from msbench.errors import (
    ConfigError,
    Diverged,
    Interrupted,
    MsbenchError,
    OutOfMemory,
    RunError,
    UnknownName,
)
from msbench.specs import RunSpec
from msbench.store import Failure, RunRecord, Status
from msbench.training.checkpoint import load_weights
from msbench.training.evaluate import Predictions, predict
from msbench.training.loop import Trainer
from msbench.training.signals import SignalFlag
from msbench.training.state import Listener

PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed"}


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
    identity = identify(spec, dataset.digest)
    directory = store.run_directory(place.results, spec, identity.run_id)
    with store.locked(directory, wait=wait) as mine:
        if not mine:
            return None
        if fresh and (old := store.set_aside(directory)) is not None:
            listener.note(f"the earlier run was moved to {old}")
        record = store.read_record(directory)
        if record is not None and record.status in ("finished", "diverged"):
            return record
        return _Run(spec, dataset, identity, directory, place, listener).execute()


def _dataset(spec: RunSpec, place: Place, listener: Listener) -> Dataset:
    if not data.is_ready(spec.data, place.data_root):
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

    def execute(self) -> RunRecord:
        # A record of an earlier attempt would pass for this one's if this one died.
        (self.directory / "run.json").unlink(missing_ok=True)
        (self.directory / "error.txt").unlink(missing_ok=True)
        try:
            record = self._train_and_test()
        except Interrupted as error:
            self._fail(error, "interrupted")
            raise
        except (torch.OutOfMemoryError, MemoryError) as error:
            return self._fail(
                OutOfMemory(f"{error}".strip().splitlines()[0] or "out of memory"), "out-of-memory"
            )
        except RunError as error:
            return self._fail(error, error.status)
        except MsbenchError:
            raise
        except Exception as error:
            store.write_atomically(self.directory / "error.txt", traceback.format_exc().encode())
            return self._fail(error, "failed")
        store.write_record(self.directory, record)
        return record

    def _train_and_test(self) -> RunRecord:
        spec = self.spec
        fabric = Fabric(accelerator=self.device, devices=1, precision=PRECISIONS[spec.train.precision])  # type: ignore[arg-type]
        model = models.build(spec.model_name, spec.model, self.dataset.info, spec.seed)
        self.facts |= {
            "parameters": models.parameter_count(model),
            "states_per_channel": models.states_per_channel(spec.model_name, spec.model),
            "kernel": ops.kernel_name(fabric.device),
        }
        trainer = Trainer(
            spec,
            model,
            self.dataset,
            self.directory,
            self.identity.run_id,
            fabric,
            self.listener,
            self.place.signals,
        )
        trainer.recompute_above = self._recompute_above()
        trainer.run()
        best = trainer.folder.load(trainer.folder.best)
        load_weights(model, best.tensors)
        began = time.monotonic()
        test = predict(
            trainer.model,
            self.dataset.splits["test"],
            spec.train.batch_size,
            fabric.device,
            pad_to=spec.train.pad_to,
            between=lambda _done, _total: self.place.signals.check(),
        )
        write_predictions(self.directory / "predictions.parquet", test)
        return self._finish(trainer, test, time.monotonic() - began)

    def _recompute_above(self) -> int:
        """Positions of a batch beyond which its activations would fill half of what memory is free."""
        spec = self.spec
        each = models.activation_bytes(spec.model_name, spec.model, 1)
        limit = free_memory(self.device) // 2 // each
        if spec.train.batch_size * (spec.train.pad_to or self.dataset.info.longest) > limit:
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
            "validation_accuracy": progress.best_accuracy,
            "best_epoch": float(progress.best_epoch),
        }
        timing = {
            "train_seconds": progress.train_seconds,
            "test_seconds": test_seconds,
            "tokens_per_second": progress.train_tokens / max(progress.train_seconds, 1e-9),
        }
        self.facts |= {"steps": progress.step, "resumed": progress.resumes, "n_test": len(test.labels)}
        return self._record("finished", metrics=metrics, timing=timing)

    def _fail(self, error: BaseException, status: Status) -> RunRecord:
        failure = Failure(type=type(error).__name__, message=str(error))
        if isinstance(error, Diverged):
            failure = failure.model_copy(update={"step": error.step, "name": error.name})
            self.facts["steps"] = error.step
        record = self._record(status, failure=failure)
        store.write_record(self.directory, record)
        return record

    def _record(self, status: Status, **values: Any) -> RunRecord:
        spec, identity = self.spec, self.identity
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
            source_digest=identity.source_digest,
            sources=identity.files,
            baselines=dict(self.dataset.info.baselines),
            environment={**environment(), "device": self.device},
            started=self.started,
            ended=_now(),
            **{**self.facts, **values},
        )


def accelerator(device: str) -> str:
    """The Fabric accelerator for auto, cpu or cuda; ConfigError where cuda is asked for and not there."""
    if device not in ("auto", "cpu", "cuda"):
        raise UnknownName("device", device, ("auto", "cpu", "cuda"), "--device")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"--device cuda: no CUDA device can be used here ({cuda_facts()}); use --device cpu or auto"
        )
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def cuda_facts() -> str:
    """One line on why CUDA is or is not there."""
    if torch.version.cuda is None:
        return "this torch was built without CUDA"
    return f"torch {torch.__version__} for CUDA {torch.version.cuda}, {torch.cuda.device_count()} devices"


def write_predictions(path: Path, predictions: Predictions) -> None:
    """``predictions.parquet``: example number, label, predicted class, whether right, and all logits."""
    columns: dict[str, Any] = {
        "example": np.arange(len(predictions.labels)),
        "label": predictions.labels,
        "predicted": predictions.classes,
        "correct": predictions.classes == predictions.labels,
    }
    columns |= {
        f"logit_{index}": predictions.logits[:, index] for index in range(predictions.logits.shape[1])
    }
    buffer = io.BytesIO()
    pd.DataFrame(columns).to_parquet(buffer, index=False)
    store.write_atomically(path, buffer.getvalue())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
