"""Training steps of the suites' models at their own sizes, counted on the null GPU.

Usage::

    python tests/gpu/traffic.py                       estimates of all that `step_ceilings.csv` has
    python tests/gpu/traffic.py --update              and write them into that file
    python tests/gpu/traffic.py listops/listops/msssm-s6 [--lines 30]
    python tests/gpu/traffic.py --real [--out FILE]   on a real GPU: times of `TIMED` next to their estimates

The batch is the suite's, every example as long as the longest. A step is the trainer's own: with its checks,
its copies and its waits.
"""

import argparse
import csv
import gc
import json
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import null_gpu
import numpy as np
import torch
from counting import CallCost, TrafficCounter, counting_triton
from null_gpu import GpuCounts

from msbench import datasets, models
from msbench.config import MODELS, RunSpec
from msbench.datasets.dataset import SPLITS, Dataset, RaggedPairs, RaggedTokens, Samples, Split, TaskInfo
from msbench.environment import list_versions, measure_split_memory, use_matmul
from msbench.errors import Interrupted
from msbench.reporting.tables.definitions import PAPER_SUITES
from msbench.runs import memory as run_memory
from msbench.runs.memory import limit_step_memory, plan_recomputation, trace_memory
from msbench.runs.suite import load_suite
from msbench.training import batches, loop
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag
from msbench.training.step_memory import StepMemory

CEILINGS = Path(__file__).with_name("step_ceilings.csv")
EVERYWHERE = ("msssm-s6", "mamba", "msssm-s4")
"""Models that are measured on every task of the paper's suites; of other families one, on one task."""
SLOW = ("lstm", "r-lstm")
"""Loops over positions whose step takes half a minute to count; hippo-rnn is measured for them."""
TIMED = tuple(
    f"{task}/{model}"
    for task in ("listops/listops", "lra/text", "lra/image", "lra/pathx")
    for model in ("mamba", "msssm-s6", "msssm-s4")
)
"""Cells that are timed on a real GPU."""
LEADING = (
    *(
        f"{task}/{model}"
        for task in ("listops/listops", "lra/text", "lra/image")
        for model in ("mamba", "msssm-s6", "msssm-s4")
    ),
    "lra/retrieval/msssm-s4",  # pairs of sequences
    "imagenet/imagenet/msssm-s4",  # patches, which a device does not keep, and layers that are recomputed
    "ptbxl/all/wavelet-features",  # several labels, without layers
    "lra/text/lru",  # linear recurrences
    "scifar/scifar/multiresnet",  # filters
    "scifar/scifar/ckconv",  # Fourier transforms
    "listops/listops/cdil",  # PyTorch's convolutions
    "listops/listops/local-attention",
)
"""Cells that stand for all others in an ordinary run of the tests: of each kind of data and of operation."""
WARM, COUNTED, TRAFFIC = 2, 3, 4
"""Steps: the last before counting, that whose launches and waits are counted, that whose bytes are."""


@dataclass(frozen=True)
class StepMeasurement:
    """One training step: what happened, and what it would take.

    Parameters
    ----------
    cell : suite/task/model
    launches : kernels of all libraries, and of Triton
    waits : times that the host waited for the device
    to_device, to_host : copies
    gigabytes : read and written by all kernels
    milliseconds : estimated, on an H100
    peak : gigabytes that PyTorch had allocated at most
    recomputed : True if layers are computed twice, to save memory
    estimate : the peak as it was estimated before the step, in GB
    """

    cell: str
    launches: int
    waits: int
    to_device: int
    to_host: int
    gigabytes: float
    milliseconds: float
    peak: float
    recomputed: bool
    estimate: float


def list_cells() -> list[str]:
    """Return the cells that are measured: suite/task/model."""
    cells: list[str] = []
    families: set[str] = set()
    for suite in PAPER_SUITES:
        planned = load_suite(suite).planned
        first_task = next(iter(planned))[0]
        for task, model in planned:
            if suite == "ptbxl" and task != first_task:
                continue  # its tasks differ in their labels alone
            if model in SLOW:
                continue
            family = MODELS[model].module
            if model in EVERYWHERE or family not in families | {MODELS[x].module for x in EVERYWHERE}:
                cells.append(f"{suite}/{task}/{model}")
                families.add(family)
    return cells


def find_spec(cell: str) -> RunSpec:
    """Return the run of a cell."""
    suite, task, model = cell.split("/")
    return load_suite(suite).planned[task, model]


def make_dataset(spec: RunSpec) -> Dataset:
    """Return data of the task's kind and sizes, as many as are needed here, every example of full length."""
    info, batch = datasets.outline(spec.data), spec.train.batch_size
    counts = dict.fromkeys(SPLITS, batch) | {"train": (TRAFFIC + 1) * batch}
    return Dataset(info, {name: make_split(info, count) for name, count in counts.items()}, "0" * 64, {})


def make_split(info: TaskInfo, examples: int) -> Split:
    """Return examples of the longest length; labels have every class that a ranking needs."""
    labels = (np.arange(examples) % info.classes).astype(np.uint16)
    if info.multi_label:
        labels = np.tile(np.arange(examples, dtype=np.uint16) % 2, (info.classes, 1)).T
    if info.real_valued:
        return Samples(np.zeros((examples, info.longest, info.channels), np.uint8), labels)
    count = examples * info.sequences
    tokens = np.ones(count * info.longest, np.uint8)
    kind = RaggedPairs if info.kind == "pairs" else RaggedTokens
    return kind(tokens, np.arange(count + 1) * info.longest, labels.astype(np.uint8))


_traced: dict[RunSpec, StepMemory] = {}


def trace_once(spec: RunSpec, *arguments: Any) -> StepMemory:
    """Return the memory of a cell's step, traced once for both the plan of recomputation and the estimate."""
    if spec not in _traced:
        _traced[spec] = trace_memory(spec, *arguments)
    return _traced[spec]


def train_steps(cell: str, is_last: Callable[[int], bool]) -> tuple[bool, float]:
    """Train a cell as a run does, until `is_last` is true of a step.

    Returns True if layers are recomputed, and the estimated peak of memory in GB.
    """
    spec = find_spec(cell)
    # At the suite's own number of steps, less than one in a hundred has a row in the log.
    spec = spec.model_copy(update={"train": spec.train.model_copy(update={"log_every": 10**6})})
    folder, flag = Path(tempfile.mkdtemp(prefix="msbench-")), SignalFlag()
    dataset = make_dataset(spec)
    with use_matmul(spec.train.matmul, "cuda"):
        trainer = Trainer(
            spec,
            models.build(spec.model_name, spec.model, dataset.info, spec.seed),
            dataset,
            directory=folder,
            run_id="0" * 12,
            fabric=make_fabric("cuda", spec.train.precision),
            callback=ProgressCallback(),
            signals=flag,
        )
        # Of the suites' data only images of 224 pixels are more than a device would keep.
        trainer.room = 0 if dataset.info.patch else measure_split_memory("cuda")
        held = sum(batches.count_resident_bytes(split, trainer.room) for split in dataset.splits.values())
        limit = limit_step_memory("cuda", held)
        trainer.gradients.count_recomputed, most = plan_recomputation(spec, dataset.info, "cuda", limit)
        memory = trace_once(spec, dataset.info, "cuda")
        estimate = memory.estimate(trainer.gradients.count_recomputed(memory.positions)) + held

        def after(step: int) -> None:
            if is_last(step):
                flag.received = signal.SIGTERM

        trainer.after_step = after
        try:
            trainer.run()
        except Interrupted:
            return most is not None, estimate / 1e9
        finally:
            shutil.rmtree(folder)
    raise AssertionError("the training ended before its last step")


def release_memory() -> int:
    """Release what the last cell has left; return the bytes that are still allocated."""
    gc.collect()  # its parts refer to each other
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def measure_step(cell: str, *, lines: bool = False) -> tuple[StepMeasurement, dict[str, CallCost]]:
    """Train a few steps; return what one of them is made of, and its costs by line or operation."""
    before = release_memory()
    counter, stack = TrafficCounter(lines=lines), ExitStack()
    counted: list[tuple[GpuCounts, int]] = []

    def count(step: int) -> bool:
        if step == WARM:
            null_gpu.reset_counts()
        elif step == COUNTED:
            counted.append((null_gpu.read_counts(), torch.cuda.max_memory_allocated() - before))
            if lines:
                warnings.simplefilter("ignore")
                stack.enter_context(torch.autograd.detect_anomaly(check_nan=False))
            stack.enter_context(counter)
        elif step == TRAFFIC:
            stack.close()
        return step == TRAFFIC

    with stack:
        recomputed, memory = train_steps(cell, count)
    ((counts, peak),) = counted
    found, total = counts.counters, counter.total
    measured = StepMeasurement(
        cell,
        found["launches"],
        counts.waits,
        found["copies to device"] + found["pageable copies to device"],
        found["copies to host"],
        round(total.bytes / 1e9, 2),
        round(1e3 * total.seconds, 2),
        round(peak / 1e9, 3),
        recomputed,
        round(memory, 3),
    )
    return measured, dict(counter.costs)


def time_step(cell: str) -> dict[str, Any]:
    """Return a cell's time a step and peak memory on a real GPU, next to what is recorded of a null one."""
    before = release_memory()
    seconds: list[float] = []

    def time_steps(step: int) -> bool:
        if step in (WARM, TRAFFIC):
            torch.cuda.synchronize()
            seconds.append(time.perf_counter())
        return step == TRAFFIC

    recomputed, memory = train_steps(cell, time_steps)
    estimate = read_ceilings()[cell]
    measured = 1e3 * (seconds[1] - seconds[0]) / (TRAFFIC - WARM)
    peak = (torch.cuda.max_memory_allocated() - before) / 1e9
    return {
        "cell": cell,
        "milliseconds": measured,
        "estimated": estimate.milliseconds,
        "error": estimate.milliseconds / measured - 1,
        "peak": peak,
        "peak_of_null_gpu": estimate.peak,
        "estimated_peak": memory,
        "recomputed": recomputed,
    }


def measure_cells(cells: Sequence[str], *, lines: bool = False) -> Iterator[dict[str, Any]]:
    """Measure cells one after another, in the process that has the null GPU."""
    batches.AHEAD = 0  # a thread would prepare later batches now or then
    loop.SAVE_SECONDS = float("inf")  # on a slow machine a checkpoint would be due
    vars(run_memory)["trace_memory"] = trace_once
    torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")  # cuBLAS keeps a workspace from now on
    with counting_triton(null_gpu.count_launch):
        for cell in cells:
            measured, costs = measure_step(cell, lines=lines)
            top = sorted(costs.items(), key=lambda item: -item[1].seconds)
            yield {"step": asdict(measured), "costs": {name: asdict(cost) for name, cost in top}}


def read_ceilings() -> dict[str, StepMeasurement]:
    """Return the recorded measurements by cell."""
    with CEILINGS.open(encoding="utf-8", newline="") as file:
        next(file)  # versions
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        values: dict[str, Any] = {name: x if name == "cell" else json.loads(x) for name, x in row.items()}
        found[row["cell"]] = StepMeasurement(**values)
    return found


def read_versions(path: Path) -> str:
    """Return the versions of PyTorch and Triton with which ceilings were recorded."""
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def describe_versions() -> str:
    """Return the versions of PyTorch and Triton here."""
    versions = list_versions()
    return ", ".join(f"{name} {versions[name].split('+')[0]}" for name in ("torch", "triton"))


def write_ceilings(steps: Sequence[StepMeasurement]) -> None:
    """Write measurements as the new ceilings."""
    with CEILINGS.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {describe_versions()}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(each.name for each in fields(StepMeasurement))
        writer.writerows(
            [json.dumps(x) if not isinstance(x, str) else x for x in asdict(step).values()] for step in steps
        )


def print_table(steps: Sequence[StepMeasurement]) -> None:
    """Print a row for each cell, with the ratio to Mamba's time on the same task."""
    mamba = {s.cell.rsplit("/", 1)[0]: s.milliseconds for s in steps if s.cell.endswith("/mamba")}
    heads = f"{'cell':42}{'ms':>9}{'/ mamba':>9}{'GB':>9}{'launches':>10}{'waits':>7}{'in':>4}{'out':>4}"
    print(f"{heads}{'peak GB':>9}{'estimate':>10}")
    for step in steps:
        task = step.cell.rsplit("/", 1)[0]
        ratio = f"{step.milliseconds / mamba[task]:.2f}" if task in mamba else ""
        again = "  recomputed" if step.recomputed else ""
        print(
            f"{step.cell:42}{step.milliseconds:9.1f}{ratio:>9}{step.gigabytes:9.1f}{step.launches:10}{step.waits:7}"
            f"{step.to_device:4}{step.to_host:4}{step.peak:9.2f}{step.estimate:10.2f}{again}"
        )


def print_costs(costs: dict[str, dict[str, float]], most: int) -> None:
    """Print the most expensive lines."""
    for name, cost in list(costs.items())[:most]:
        milliseconds, gigabytes = 1e3 * cost["seconds"], cost["bytes"] / 1e9
        print(f"{milliseconds:10.2f} ms {gigabytes:9.2f} GB {cost['calls']:6.0f} calls  {name}")


def print_times(cells: Sequence[str], out: Path | None) -> None:
    """Time cells on a real GPU; print a row for each, and write all as JSON."""
    found = []
    for cell in cells:
        try:
            found.append(time_step(cell))
        except Exception as error:  # the others have their times
            found.append({"cell": cell, "failed": f"{type(error).__name__}: {error}"})
        print(json.dumps(found[-1]), flush=True)
    if out is not None:
        device = {"name": torch.cuda.get_device_name(), "versions": describe_versions()}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"device": device, "steps": found}, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Start this program on the null GPU, or be it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="*", metavar="SUITE/TASK/MODEL")
    parser.add_argument("--lines", type=int, default=0, metavar="N", help="also the N most expensive lines")
    parser.add_argument("--update", action="store_true", help=f"write {CEILINGS.name}")
    parser.add_argument("--real", action="store_true", help="time steps on the GPU that is there")
    parser.add_argument("--out", type=Path, help="file for the times as JSON")
    options = parser.parse_args()
    if options.real:
        print_times(options.cells or TIMED, options.out)
        return
    cells = options.cells or list_cells()
    if null_gpu.is_loaded():
        for measured in measure_cells(cells, lines=options.lines > 0):
            print(json.dumps(measured), flush=True)
        null_gpu.leave()
    if missing := null_gpu.find_missing():
        sys.exit(missing)
    with tempfile.TemporaryDirectory(prefix="null-gpu-") as folder:
        gpu = null_gpu.NullGpu(null_gpu.build_library(Path(folder) / "library"), Path(folder))
        found = gpu.run("traffic.py", *sys.argv[1:], timeout=3600, caching=True)
    steps = [StepMeasurement(**each["step"]) for each in found]
    print_table(steps)
    for each in found if options.lines else []:
        print(f"\n{each['step']['cell']}")
        print_costs(each["costs"], options.lines)
    if options.update:
        write_ceilings(steps)


if __name__ == "__main__":
    main()
