"""The command ``msbench mixing``: a document for each planned run."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from msbench import datasets as data
from msbench import models
from msbench.analysis.mixing import document, sample
from msbench.analysis.mixing.document import Document
from msbench.analysis.mixing.measure import Batch, Measure, bytes_a_position, measure
from msbench.analysis.mixing.options import Options
from msbench.config import RunSpec
from msbench.config.messages import format_bytes
from msbench.console import command_line, say
from msbench.datasets.dataset import Dataset
from msbench.environment import accelerator, describe_environment, free_memory
from msbench.errors import CheckpointError, DataError, OutOfMemory
from msbench.models.classifier import Classifier
from msbench.runs import plan as agenda
from msbench.runs import sources
from msbench.runs.plan import PlannedRun
from msbench.runs.reproduce import words_of
from msbench.training.checkpoint import CheckpointFolder, Unreadable, load_weights
from msbench.training.memory import describe_memory_error, is_out_of_memory

SOURCES = ("msbench.analysis.mixing.measure", "msbench.analysis.mixing.document")
"""Modules that, with their imports, determine a measure besides the run: if they change, it is repeated."""


@dataclass(frozen=True)
class MixingRequest:
    """The options of ``msbench mixing``, as given; `suite` and `overrides` selected the runs."""

    results: Path
    options: Options
    trained: bool = True
    device: str = "auto"
    fresh: bool = False
    quiet: bool = False
    suite: str = ""
    overrides: tuple[str, ...] = ()


@dataclass
class MixingResult:
    """Documents of the measured runs, in order, and a line for each run that is not available."""

    documents: list[Document] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def carry_out(specs: Sequence[RunSpec], request: MixingRequest) -> MixingResult:
    """Measure every planned run, or reuse its earlier measure with the same options.

    All data are checked before anything is measured. Raises DataError if they are not set up, CheckpointError
    if a run has lost its weights, ConfigError and RunError as `measure` does.
    """
    device = accelerator(request.device)
    agenda.check_kernels(specs, device)
    outcome = MixingResult()
    entries = agenda.agenda(specs, request.results, data.data_root())
    lacking = next((entry.reason for entry in entries if entry.dataset is None), None)
    if lacking is not None:
        raise DataError(lacking)
    for entry in entries:
        assert entry.dataset is not None
        if request.trained and (entry.record is None or not entry.record.finished):
            outcome.missing.append(_missing(entry, request))
        else:
            outcome.documents.append(_document(entry, entry.dataset, request, device))
    return outcome


def _missing(entry: PlannedRun, request: MixingRequest) -> str:
    spec = entry.spec
    what = f"{spec.task} · {spec.model_name} · seed {spec.seed} has no finished run ({entry.reason})"
    again = _train(spec, request, fresh=entry.action in ("keep", "damaged"))
    return f"{what}; train it: {again}"


def _train(spec: RunSpec, request: MixingRequest, *, fresh: bool) -> str:
    """Return the command that trains this run."""
    name, seeds = request.suite or spec.suite, [spec.seed]
    words = words_of("run", name, spec.model_name, spec.task, seeds, request.overrides, request.results)
    return command_line((*words, *(("--fresh",) if fresh else ())))


def _document(entry: PlannedRun, dataset: Dataset, request: MixingRequest, device: str) -> Document:
    """Read the document, or measure and write it."""
    assert entry.directory is not None
    path = document.path_of(entry.directory, request.options, trained=request.trained)
    digest = sources.source_digest(sources.source_files(SOURCES))
    old = None if request.fresh else document.read(path)
    # A run trained again under the same id may have other weights, for example on another device.
    ended = entry.record.ended if request.trained and entry.record else None
    of = {"source_digest": digest, "run_ended": ended}
    if old is not None and {key: old.get(key) for key in of} == of:
        return old
    document.check_writable(path)  # before hours of measuring, not after them
    found = _measured(entry, dataset, request, device) | of
    document.write(path, found)
    return found


def _measured(entry: PlannedRun, dataset: Dataset, request: MixingRequest, device: str) -> Document:
    spec, options = entry.spec, request.options
    model, epoch = _model(entry, dataset, request)
    model.to(device)
    if options.dtype == "float64":
        model.double()  # not to(torch.float64), which would make complex parameters real
    began = time.monotonic()
    try:
        measured, examples = _measure_split(model, entry, dataset, request, device)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"{spec.model_name}: {describe_memory_error(error)}") from None
    facts = {
        "run_id": entry.run_id,
        **_named(spec),
        "trained": request.trained,
        "epoch": epoch,
        "data_digest": dataset.digest,
        "split": "test",
        "causal": models.FAMILIES[type(spec.model)].causal(spec.model),
        "kernel": models.family(spec.model_name).kernel(spec.model, device),
        "device": device,
        "environment": describe_environment(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 3),
    }
    return document.build(measured, options, examples, facts)


def _named(spec: RunSpec) -> Document:
    return {"suite": spec.suite, "task": spec.task, "model": spec.model_name, "seed": spec.seed}


def _model(entry: PlannedRun, dataset: Dataset, request: MixingRequest) -> tuple[Classifier, int | None]:
    """Return the run's model, initial or with the weights of its best epoch, and that epoch."""
    spec = entry.spec
    model = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
    if not request.trained:
        return model, None
    assert entry.record is not None
    assert entry.directory is not None
    assert entry.run_id is not None
    epoch = int(entry.record.metrics["best_epoch"])
    folder = CheckpointFolder(entry.directory / "checkpoint", entry.run_id)
    try:
        load_weights(model, folder.load(folder.best(epoch)).tensors)
    except Unreadable:  # the file may be intact: nothing has to be trained again
        raise
    except CheckpointError as error:
        again = _train(spec, request, fresh=True)
        raise CheckpointError(f"{error}; train it again: {again}") from None
    return model, epoch


def _measure_split(
    model: Classifier, entry: PlannedRun, dataset: Dataset, request: MixingRequest, device: str
) -> tuple[Measure, list[int]]:
    """Return the measure of the chosen test examples, and the example number of each sequence."""
    spec, split, sequences = entry.spec, dataset.splits["test"], dataset.info.sequences
    chosen = sample.first(len(split), request.options.examples)
    # A model that reads padding is measured with the padding it was trained with.
    pad_to = spec.train.pad_to if spec.model.padding == "paper" else None
    widths = np.maximum(split.lengths[chosen], pad_to or 0)
    room = _positions_at_once(model, request.options, int(widths.max()) * sequences, device)
    taken = [chosen[places] for places in sample.batches(widths, room // sequences)]
    batches = [_on_device(split.batch(indices, pad_to), model, device) for indices in taken]
    measured = measure(model, batches, request.options, _note(spec, quiet=request.quiet))
    return measured, np.repeat(np.concatenate(taken), sequences).tolist()


def _positions_at_once(model: Classifier, options: Options, longest: int, device: str) -> int:
    """Return the positions per batch: at most half the free memory, and only as many as gain speed.

    Raises OutOfMemory if the longest example does not fit at all.
    """
    each, free = bytes_a_position(model, options), free_memory(device)
    if longest * each > free:
        raise OutOfMemory(
            f"an example of {longest:,} positions takes about {format_bytes(longest * each)} to measure,"
            f" and {format_bytes(free)} are free on {device}"
        )
    # On a CPU a batch beyond its caches is slower; a GPU needs large batches.
    return min(free // 2 // each, 1 << (16 if device == "cuda" else 12))


def _on_device(batch: data.dataset.Batch, model: Classifier, device: str) -> Batch:
    inputs = torch.from_numpy(batch.inputs).to(device)
    if inputs.is_floating_point():
        inputs = inputs.to(next(model.parameters()).dtype)
    return inputs, torch.from_numpy(batch.lengths).to(device)


def _note(spec: RunSpec, *, quiet: bool) -> Callable[[str], None]:
    name = f"{spec.task} · {spec.model_name} · seed {spec.seed}"
    return (lambda _: None) if quiet else (lambda text: say(f"{name}: {text}"))
