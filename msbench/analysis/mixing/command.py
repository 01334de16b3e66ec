"""The command ``msbench mixing``: a document for each planned run."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from msbench import datasets, models
from msbench.analysis.mixing.document import build_document
from msbench.analysis.mixing.measure import Batch, Measure, estimate_bytes_per_position, measure_model
from msbench.analysis.mixing.options import MixingOptions, choose_sample
from msbench.config import RunSpec
from msbench.config.messages import format_bytes
from msbench.console import command_line, say
from msbench.datasets.dataset import CroppedSamples, Dataset, Split, TaskInfo
from msbench.environment import choose_accelerator, describe_environment, measure_free_memory
from msbench.errors import CheckpointError, ConfigError, DataError, OutOfMemory
from msbench.models.classifier import Classifier
from msbench.results.files import require_writable
from msbench.results.mixing_documents import (
    MixingDocument,
    document_path,
    read_document,
    write_document,
)
from msbench.runs import plan as run_plan
from msbench.runs.identity import define
from msbench.runs.plan import PlannedRun, name_run
from msbench.runs.reproduce import build_command
from msbench.runs.trained import load_trained_model
from msbench.training.checkpoint import UnreadableCheckpoint
from msbench.training.memory import describe_memory_error, is_out_of_memory
from msbench.training.step_memory import measure_step_memory, try_to_trace

SOURCES = ("msbench.analysis.mixing.measure", "msbench.analysis.mixing.document")
"""Modules that, with their imports, determine a measure besides the run: if they change, it is repeated."""


def measure_runs(specs: Sequence[RunSpec], options: MixingOptions) -> tuple[list[MixingDocument], list[str]]:
    """Measure every planned run, or reuse its earlier measure with the same options.

    Returns the documents in order, and a line for each run that is not available. All data are checked before
    anything is measured. Raises DataError if they are not set up, CheckpointError if a run has lost its
    weights, ConfigError and RunError as `measure_model` does.
    """
    device = choose_accelerator(options.device)
    run_plan.check_kernels(specs)
    planned = run_plan.plan_runs(specs, options.results, datasets.data_root())
    other = None if options.data is None else datasets.open_dataset(options.data, datasets.data_root())
    for entry in planned:
        if entry.dataset is None:
            raise DataError(entry.reason)
        if other is not None:
            _require_same_inputs(entry.spec, entry.dataset.info, other.info, options)
    documents: list[MixingDocument] = []
    missing: list[str] = []
    for entry in planned:
        if options.trained and (entry.record is None or not entry.record.finished):
            missing.append(_describe_missing(entry, options))
        else:
            documents.append(_load_or_measure(entry, other, options, device))
    return documents, missing


def _require_same_inputs(spec: RunSpec, own: TaskInfo, other: TaskInfo, options: MixingOptions) -> None:
    """Raise ConfigError if a model of a task cannot read the examples of another."""
    for name in ("kind", "vocabulary", "channels"):
        if (mine := getattr(own, name)) != (its := getattr(other, name)):
            raise ConfigError(
                f"{name_run(spec)}: --on {options.measure.on}: its {name} is {its!r}, and the model was built"
                f" for {mine!r}"
            )


def _describe_missing(entry: PlannedRun, options: MixingOptions) -> str:
    train = _training_command(entry.spec, options, fresh=entry.action in ("keep", "damaged"))
    return f"{name_run(entry.spec)} has no finished run ({entry.reason}); train it: {train}"


def _training_command(spec: RunSpec, options: MixingOptions, *, fresh: bool) -> str:
    """Return the command that trains this run."""
    words = build_command(
        "run",
        options.suite or spec.suite,
        model=spec.model_name,
        task=spec.task,
        seeds=[spec.seed],
        overrides=options.overrides,
        results=options.results,
    )
    return command_line((*words, *(("--fresh",) if fresh else ())))


def _load_or_measure(
    entry: PlannedRun, other: Dataset | None, options: MixingOptions, device: str
) -> MixingDocument:
    """Read the document, or measure and write it; on the examples of the `other` dataset, if there is one."""
    assert entry.directory is not None
    assert entry.dataset is not None
    path = document_path(entry.directory, options.measure.digest, trained=options.trained)
    origin = _describe_origin(entry, options)
    old = None if options.fresh else read_document(path)
    if old is not None and is_measure_of(origin, old):
        return old
    require_writable(path.parent)  # before hours of measuring, not after them
    document = _measure_run(entry, other or entry.dataset, options, device) | origin
    write_document(path, document)
    return document


def is_measure_of(origin: Mapping[str, Any], document: MixingDocument) -> bool:
    """Return True if a document has all of `origin`, and so need not be measured again."""
    return {key: document.get(key) for key in origin} == origin


def _describe_origin(entry: PlannedRun, options: MixingOptions) -> dict[str, Any]:
    """Return the fields of a document that are known before measuring: of which run, and by which code."""
    spec, record = entry.spec, entry.record if options.trained else None
    if record is not None and "best_epoch" not in record.metrics:
        train = _training_command(spec, options, fresh=True)
        raise CheckpointError(f"{name_run(spec)}: its record has no best_epoch; train it again: {train}")
    return {
        "run_id": entry.run_id,
        "suite": spec.suite,
        "task": spec.task,
        "model": spec.model_name,
        "seed": spec.seed,
        "trained": options.trained,
        # A run trained again under the same id may have other weights, for example on another device.
        "run_ended": record.ended if record else None,
        "epoch": int(record.metrics["best_epoch"]) if record else None,
        "options": options.measure.describe(),
        "source_digest": define(SOURCES).digest,
    }


def _measure_run(entry: PlannedRun, dataset: Dataset, options: MixingOptions, device: str) -> MixingDocument:
    spec = entry.spec
    model = _load_model(entry, options)
    model.to(device)
    if options.measure.dtype == "float64":
        model.double()  # not to(torch.float64), which would make complex parameters real
    began = time.monotonic()
    try:
        measured, examples = _measure_split(model, entry, dataset, options, device)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"{spec.model_name}: {describe_memory_error(error)}") from None
    facts = {
        "data_digest": dataset.digest,
        "split": "test",
        "causal": models.find_family(spec.model_name, spec.model).is_causal(spec.model),
        "kernel": models.find_family(spec.model_name, spec.model).name_kernel(spec.model, device),
        "device": device,
        "environment": describe_environment(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 3),
    }
    return build_document(measured, options.measure, examples, facts)


def _load_model(entry: PlannedRun, options: MixingOptions) -> Classifier:
    """Return the run's model, initial or with the weights of its best epoch."""
    spec, dataset = entry.spec, entry.dataset
    assert dataset is not None
    if not options.trained:
        return models.build(spec.model_name, spec.model, dataset.info, spec.seed)
    assert entry.record is not None
    assert entry.directory is not None
    try:
        return load_trained_model(spec, dataset.info, entry.record, entry.directory)
    except UnreadableCheckpoint:  # the file may be intact: nothing has to be trained again
        raise
    except CheckpointError as error:
        train = _training_command(spec, options, fresh=True)
        raise CheckpointError(f"{error}; train it again: {train}") from None


def _measure_split(
    model: Classifier, entry: PlannedRun, dataset: Dataset, options: MixingOptions, device: str
) -> tuple[Measure, list[int]]:
    """Return the measure of the chosen test examples, and the example number of each sequence."""
    spec, sequences = entry.spec, dataset.info.sequences
    split = find_whole_examples(spec, dataset.splits["test"])
    chosen = choose_sample(len(split), options.measure.examples)
    # A model that reads padding is measured with the padding it was trained with.
    pad_to = spec.train.pad_to if spec.model.padding == "paper" else None
    widths = np.maximum(split.lengths[chosen], pad_to or 0)
    length = int(widths.max())
    settings = (spec.model_name, spec.model, dataset.info)
    memory = try_to_trace(partial(measure_step_memory, *settings, examples=1, length=length, device=device))
    limit = 0  # an example at a time
    if memory is not None:
        each = estimate_bytes_per_position(memory, options.measure)
        limit = _limit_positions(each, length * sequences, device)
    taken = [chosen[places] for places in split_batches(widths, limit // sequences)]
    batches = [_to_device(split.batch(indices, pad_to), model, device) for indices in taken]

    def note(text: str) -> None:
        if not options.quiet:
            say(f"{name_run(spec)}: {text}")

    measured = measure_model(model, batches, options.measure, note)
    return measured, np.repeat(np.concatenate(taken), sequences).tolist()


def find_whole_examples(spec: RunSpec, split: Split) -> Split:
    """Return the split with whole examples. Raises ConfigError if the model only takes their crops."""
    if not isinstance(split, CroppedSamples):
        return split
    if spec.model.positions == "learned":
        raise ConfigError(
            f"{name_run(spec)}: mixing is measured on whole examples of {split.whole.length:,} positions, and"
            f" model.positions 'learned' end with a crop, at {split.length:,}"
        )
    return split.whole


def _limit_positions(each: int, longest: int, device: str) -> int:
    """Return the positions per batch: at most half the free memory, and only as many as gain speed.

    `each` position takes so many bytes. Raises OutOfMemory if the `longest` example does not fit at all.
    """
    free = measure_free_memory(device)
    if longest * each > free:
        raise OutOfMemory(
            f"an example of {longest:,} positions takes about {format_bytes(longest * each)} to measure,"
            f" and {format_bytes(free)} are free on {device}"
        )
    # On a CPU a batch beyond its caches is slower; a GPU needs large batches.
    return min(free // 2 // each, 1 << (16 if device == "cuda" else 12))


def split_batches(lengths: NDArray[np.int64], positions: int) -> Iterator[NDArray[np.int64]]:
    """Yield batches of example indices, sorted by length: at most `positions` padded positions each.

    A batch has at least one example.
    """
    pending: list[int] = []
    for place in np.argsort(lengths, kind="stable").tolist():
        if pending and (len(pending) + 1) * lengths[place] > positions:
            yield np.array(pending)
            pending = []
        pending.append(place)
    if pending:
        yield np.array(pending)


def _to_device(batch: datasets.dataset.Batch, model: Classifier, device: str) -> Batch:
    inputs = torch.from_numpy(batch.inputs).to(device)
    if inputs.is_floating_point():
        inputs = inputs.to(next(model.parameters()).dtype)
    return inputs, torch.from_numpy(batch.lengths).to(device)
