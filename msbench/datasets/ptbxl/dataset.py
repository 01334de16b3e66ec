"""PTB-XL (Wagner et al. 2020): electrocardiograms of 10 s with 12 leads, and their labels by cardiologists.

The signals are stored once; a set of labels, its splits and the standardisation are views of them. The stored
arrays, for all records in the order of the database:

::

    records/
        thousandths.npy   (n, 1000, 12) int16, in 1/1000 mV; or millivolts.npy, float32
        moments.npy       (n, 2) float64, sums of the values of a record and of their squares
        likelihoods.npy   (n, statements) float64, NaN where a statement is not made
        folds.npy         (n,) uint8, from 1 to 10
        ecg_ids.npy       (n,) int64
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets import manifest
from msbench.datasets.archive import FileTree, open_tree
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription
from msbench.datasets.dataset import SPLITS, CroppedSamples, Dataset, Samples, TaskInfo
from msbench.datasets.disk import require_space
from msbench.datasets.download import RemoteFile
from msbench.datasets.manifest import Arrays
from msbench.datasets.parallel import count_default_processes
from msbench.datasets.ptbxl import labels as ptbxl_labels
from msbench.datasets.ptbxl.ecg import LEADS, RATE, STEPS, UNITS_PER_MILLIVOLT, Blocks, read_all
from msbench.datasets.ptbxl.labels import DATABASE, STATEMENTS, Statement
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import PtbXlConfig

ABOUT = DatasetDescription(
    what=f"{DATABASE}, {STATEMENTS}, records100 (and records500 for rate: 500), version 1.0.3 or another",
    licence="CC BY 4.0",
    where="https://physionet.org/content/ptb-xl/1.0.3/, then: msbench setup ptbxl --from FOLDER_OR_ZIP",
)
REMOTE = RemoteFile(
    url="https://physionet.org/static/published-projects/ptb-xl/"
    "ptb-xl-a-large-publicly-available-electrocardiography-dataset-1.0.3.zip",
    name="ptb-xl-1.0.3.zip",
    digest=None,
    kind="zip",
    dataset="ptbxl",
)
RECORDS = "records"
THOUSANDTHS, MILLIVOLTS = "thousandths", "millivolts"
"""Names of the array of signals: int16 where all records count in 1/1000 mV, else float32."""
CHUNK = 256


def fill(config: PtbXlConfig, build: DatasetBuild) -> None:
    """Read all records into arrays."""
    (source,) = build.sources
    with open_tree(source) as files:
        base = _find_folder(files, source)
        statements = ptbxl_labels.parse_statements(files.read(base + STATEMENTS))
        entries = ptbxl_labels.parse_database(files.read(base + DATABASE), statements)
    names = [entry.filename_100 if config.rate == RATE else entry.filename_500 for entry in entries]
    signals, repairs = _read_signals(build, Blocks(source, [base + name for name in names]))
    arrays: dict[str, NDArray[Any]] = {
        "moments": sum_moments(signals),
        "likelihoods": ptbxl_labels.collect_likelihoods(entries, statements),
        "folds": np.array([entry.fold for entry in entries], np.uint8),
        "ecg_ids": np.array([entry.ecg_id for entry in entries], np.int64),
    }
    for name, array in arrays.items():
        manifest.save_array(build.folder, RECORDS, name, array)
    build.finish(
        config,
        {RECORDS: {"examples": len(entries)}},
        version=ptbxl_labels.find_version(len(entries)),
        leads=list(LEADS),
        repairs=dict(sorted(repairs.items())),
        statements={code: asdict(statement) for code, statement in statements.items()},
        set_classes={name: list(ptbxl_labels.list_classes(name, statements)) for name in ptbxl_labels.SETS},
    )


def view(
    config: PtbXlConfig, arrays: Arrays, facts: Mapping[str, Any]
) -> tuple[TaskInfo, dict[str, Samples]]:
    """Select the records with a label of the chosen set, standardised by the training records."""
    kept = arrays[RECORDS]
    unit = THOUSANDTHS if THOUSANDTHS in kept else MILLIVOLTS
    statements = {code: Statement(**values) for code, values in facts["statements"].items()}
    labels = ptbxl_labels.label_records(kept["likelihoods"], statements, config.labels, config.min_likelihood)
    rows = ptbxl_labels.select_rows(kept["folds"], labels)
    shift, scale = 0.0, count_units_per_millivolt(kept[unit])
    if config.standardise:
        shift, scale = compute_mean_and_deviation(kept["moments"][rows["train"]])
    splits = {name: Samples(kept[unit], labels.values, shift, scale, rows[name]) for name in SPLITS}
    if config.crop is not None:
        step = config.crop_step or max(1, config.crop // 2)
        splits = {name: CroppedSamples(split, config.crop, step) for name, split in splits.items()}
    return _describe_task(len(labels.names), config.crop or STEPS), splits


@dataclass(frozen=True)
class PtbXl(ArchiveDataset["PtbXlConfig"]):
    """The PTB-XL dataset; its manifest also describes the chosen labels."""

    def open_dataset(self, config: PtbXlConfig, root: Path) -> Dataset:
        """Open the dataset, verified. Raises DataError saying what is wrong and what to run."""
        dataset = super().open_dataset(config, root)
        return replace(dataset, manifest={**dataset.manifest, **_describe_labels(config, dataset)})


PTBXL = PtbXl(
    name="ptbxl",
    about=ABOUT,
    fill=fill,
    view=view,
    outline=lambda config: _describe_task(ptbxl_labels.CLASS_COUNTS[config.labels], config.crop or STEPS),
    remotes=(REMOTE,),
    views=frozenset({"labels", "min_likelihood", "standardise", "crop", "crop_step"}),
    ways=frozenset({"crop", "crop_step"}),
)


def sum_moments(signals: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sums (n, 2) of the values of each record and of their squares: of int16 both are exact."""
    found = np.empty((len(signals), 2))
    for row, signal in zip(found, signals, strict=True):
        values = signal.astype(np.float64).reshape(-1)
        row[:] = values.sum(), values @ values
    return found


def compute_mean_and_deviation(sums: NDArray[np.float64]) -> tuple[float, float]:
    """Return one mean and one deviation (divisor n) of all samples and leads, from the records' `moments`."""
    mean, square = (sums.sum(axis=0) / (len(sums) * STEPS * len(LEADS))).tolist()
    variance = square - mean**2
    if not variance > 1e-12 * square:  # what rounding leaves of 0
        raise DataError("ptbxl: the signals of the train split are all the same, and cannot be standardised")
    return mean, math.sqrt(variance)


def count_units_per_millivolt(signals: NDArray[Any]) -> float:
    """Return the number of stored units in one mV."""
    return float(UNITS_PER_MILLIVOLT) if signals.dtype == np.int16 else 1.0


def _describe_task(classes: int, longest: int) -> TaskInfo:
    return TaskInfo(
        kind="signal",
        vocabulary=0,
        classes=classes,
        longest=longest,
        metric="macro-auroc",
        chance=0.5,
        baselines={},  # a rule that ignores its input ranks nothing: its macro AUROC is chance
        channels=len(LEADS),
        multi_label=True,
    )


def _find_folder(files: FileTree, source: Path) -> str:
    """Return the folder within `files` that has the database, ending in ``/`` unless it is the uppermost."""
    found = [name for name in files.names() if name.rpartition("/")[2] == DATABASE]
    if len(found) != 1:
        listed = f"in {', '.join(sorted(found))}" if found else "nowhere in it"
        raise DataError(f"{source}: {DATABASE} must be there once, and is {listed}")
    return found[0].removesuffix(DATABASE)


def _read_signals(build: DatasetBuild, blocks: Blocks) -> tuple[NDArray[Any], Counter[str]]:
    """Read all records into one array on disk; return it and the counts of repairs."""
    shape = (len(blocks.records), STEPS, len(LEADS))
    require_space(build.folder, int(np.prod(shape)) * np.dtype(np.int16).itemsize, "ptbxl")
    signals = manifest.create_array(build.folder, RECORDS, THOUSANDTHS, shape, "<i2")
    done, repairs = 0, Counter[str]()
    for block, found in read_all(blocks, build.processes or count_default_processes()):
        if signals.dtype == np.int16 and block.dtype != np.int16:
            signals = _convert_to_millivolts(build.folder, signals, done)
        unit = np.float32(UNITS_PER_MILLIVOLT) if block.dtype != signals.dtype else 1
        signals[done : done + len(block)] = block if unit == 1 else block / unit
        done, repairs = done + len(block), repairs + found
        build.progress("reading ptbxl", done, shape[0])
    return signals, repairs


def _convert_to_millivolts(folder: Path, signals: NDArray[Any], done: int) -> NDArray[Any]:
    """Convert to float32, because a record does not count in 1/1000 mV."""
    wider = manifest.create_array(folder, RECORDS, MILLIVOLTS, signals.shape, "<f4")
    for start in range(0, done, CHUNK):
        chunk = slice(start, min(start + CHUNK, done))
        wider[chunk] = signals[chunk] / np.float32(UNITS_PER_MILLIVOLT)
    (folder / RECORDS / f"{THOUSANDTHS}.npy").unlink()
    return wider


def _describe_labels(config: PtbXlConfig, dataset: Dataset) -> dict[str, Any]:
    """Return the manifest fields of the chosen labels."""
    facts = dataset.manifest
    names = facts["set_classes"][config.labels]
    labels = {name: split.targets for name, split in dataset.splits.items()}
    records = facts["kept"][RECORDS]["examples"]
    dropped = records - sum(map(len, labels.values()))
    notes = [*facts["notes"]]
    notes += [f"repaired: {count:,} {name.replace('_', ' ')}" for name, count in facts["repairs"].items()]
    if facts["version"] == ptbxl_labels.SUBSET:
        notes.append(f"no published version of PTB-XL has {records:,} records: taken as a subset of one")
    remark = f"{dropped:,} records dropped: no label in this set ({config.labels})"
    if not config.min_likelihood:
        notes += ptbxl_labels.compare_with_published(facts["version"], config.labels, names, labels)
    return {
        "classes": names,
        "records_dropped": dropped,
        "standardisation": _describe_standardisation(dataset) if config.standardise else None,
        "notes": notes,
        # As in the published benchmark: no difference from its data.
        "remarks": [remark] if dropped else [],
    }


def _describe_standardisation(dataset: Dataset) -> dict[str, float]:
    split = dataset.splits["train"]
    assert isinstance(split, Samples)
    unit = count_units_per_millivolt(split.values)
    return {"mean_mv": float(split.shift) / unit, "deviation_mv": float(split.scale) / unit}
