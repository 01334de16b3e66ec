"""Trained models: those of completed runs, built again with the weights of their best epoch."""

from pathlib import Path

from msbench import datasets, models
from msbench.config import RunSpec
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError
from msbench.models.classifier import Classifier
from msbench.results.record import RunRecord
from msbench.training.checkpoint import CheckpointFolder, load_weights


def find_task_info(spec: RunSpec) -> TaskInfo:
    """Return the facts of a run's task: those of its data where they are set up, else their outline."""
    root = datasets.data_root()
    ready = datasets.is_ready(spec.data, root)
    return datasets.open_dataset(spec.data, root).info if ready else datasets.outline(spec.data)


def load_trained_model(spec: RunSpec, info: TaskInfo, record: RunRecord, directory: Path) -> Classifier:
    """Return the model of a finished run, on the CPU, with the weights of ``checkpoint/best-<epoch>``.

    That is the epoch with the best validation score, whose weights were tested. Raises ConfigError for a run
    without a result, and CheckpointError where the file is missing, damaged or of another model. Writes
    nothing.
    """
    if not record.finished or "best_epoch" not in record.metrics:
        problem = f"is {record.status}" if not record.finished else "has no best_epoch in its record"
        raise ConfigError(f"{directory}: run {record.run_id} {problem}: it has no trained model to load")
    model = models.build(spec.model_name, spec.model, info, spec.seed)
    folder = CheckpointFolder(directory / "checkpoint", record.run_id)
    best = folder.load(folder.best_path(int(record.metrics["best_epoch"])))
    load_weights(model, best.tensors)
    return model
