"""Registers and spills of the Triton kernels that the suites' models launch, compiled for absent GPUs.

Usage::

    python tests/gpu/kernels.py [--capability 90]... [suite/task/model]...    a table, in minutes
    python tests/gpu/kernels.py --update                                      and write `kernel_ceilings.csv`

Nothing lists the kernels: a forward and a backward in training, and a forward in evaluation, launch them at
the sizes of a suite, on a null GPU of each compute capability.
"""

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import null_gpu
import numpy as np
import torch
from traffic import describe_versions, find_spec, make_dataset

from msbench import datasets, models
from msbench.ops.scan import dispatch
from msbench.training.batches import send_batch
from msbench.training.step import compute_loss

CEILINGS = Path(__file__).with_name("kernel_ceilings.csv")
CAPABILITIES = (80, 90, 100, 120)
"""A100, H100, B200 and RTX 50."""
CELLS = ("listops/listops/msssm-s6", "listops/listops/mamba", "lra/image/mamba")
RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")


@dataclass(frozen=True)
class KernelResources:
    """What a kernel takes at the sizes of a cell, at most over its variants.

    Parameters
    ----------
    capability : of the GPU that it is compiled for
    cell, kernel : suite/task/model, and the kernel's name
    variants : how often it is compiled
    registers : of a thread
    stack : bytes of a thread in memory, into which registers are spilled
    shared : bytes of a block
    """

    capability: int
    cell: str
    kernel: str
    variants: int
    registers: int
    stack: int
    shared: int


def read_resources(cubin: bytes) -> tuple[int, int, int]:
    """Return registers, stack and shared memory of compiled code."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = RESOURCES.search(text)
    assert found is not None, text
    registers, stack, shared = map(int, found.groups())
    return registers, stack, shared


@contextmanager
def collecting_kernels() -> Iterator[dict[str, dict[str, Any]]]:
    """Collect the compiled kernels that are launched inside the context, by name and hash."""
    from triton.runtime.jit import JITFunction

    launched: dict[str, dict[str, Any]] = {}
    original = JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = original(self, *args, **kwargs)
        if self.fn.__module__.startswith("msbench."):  # torch has some of its own
            launched.setdefault(self.fn.__name__, {})[kernel.hash] = kernel
        return kernel

    JITFunction.run = run
    try:
        yield launched
    finally:
        JITFunction.run = original


def launch_cell(cell: str) -> None:
    """Compute a cell's loss and gradients, and a prediction, at its own sizes."""
    spec = find_spec(cell)
    info = datasets.outline(spec.data)
    model = models.build(spec.model_name, spec.model, info, spec.seed).cuda()
    split = make_dataset(spec).splits["test"]
    batch = send_batch(split.batch(np.arange(spec.train.batch_size)), torch.device("cuda"))
    loss = compute_loss(model.train()(batch.inputs, batch.lengths).float(), batch.labels, spec.train.loss)
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        model.eval()(batch.inputs, batch.lengths)


def measure_cell(cell: str) -> Iterator[KernelResources]:
    """Yield what each kernel of a cell takes, in the process that has the null GPU."""
    with collecting_kernels() as launched:
        launch_cell(cell)
    major, minor = torch.cuda.get_device_capability()
    for name, variants in sorted(launched.items()):
        found = [read_resources(kernel.asm["cubin"]) for kernel in variants.values()]
        registers, stack, shared = (max(each) for each in zip(*found, strict=True))
        yield KernelResources(10 * major + minor, cell, name, len(variants), registers, stack, shared)


def skip_checks() -> None:
    """Use all kernels without a check, which compiles them for other sizes."""
    vars(dispatch)["call_isolated"] = lambda *_args: ""


def read_ceilings() -> list[KernelResources]:
    """Return the recorded resources."""
    with CEILINGS.open(encoding="utf-8", newline="") as file:
        next(file)  # versions
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        values: dict[str, Any] = {n: x if n in ("cell", "kernel") else int(x) for n, x in row.items()}
        found.append(KernelResources(**values))
    return found


def write_ceilings(found: Sequence[KernelResources]) -> None:
    """Write resources as the new ceilings."""
    with CEILINGS.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {describe_versions()}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(each.name for each in fields(KernelResources))
        writer.writerows(asdict(each).values() for each in found)


def print_table(found: Sequence[KernelResources]) -> None:
    """Print a row for each kernel, with those that spill marked."""
    print(f"{'cell':28}{'kernel':34}{'sm':>4}{'variants':>10}{'registers':>11}{'stack':>7}{'shared':>8}")
    for x in found:
        numbers = f"{x.capability:4}{x.variants:10}{x.registers:11}{x.stack:7}{x.shared:8}"
        print(f"{x.cell:28}{x.kernel:34}{numbers}{'  spills' if x.stack else ''}")


def main() -> None:
    """Start this program on null GPUs, or be it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="*", metavar="SUITE/TASK/MODEL", default=CELLS)
    parser.add_argument("--capability", type=int, action="append", help="compute capability, 90 for 9.0")
    parser.add_argument("--update", action="store_true", help=f"write {CEILINGS.name}")
    options = parser.parse_args()
    if null_gpu.is_loaded():
        skip_checks()
        for cell in options.cells:
            for each in measure_cell(cell):
                print(json.dumps(asdict(each)), flush=True)
        null_gpu.leave()
    if missing := null_gpu.find_missing():
        sys.exit(missing)
    found: list[KernelResources] = []
    with tempfile.TemporaryDirectory(prefix="null-gpu-") as folder:
        gpu = null_gpu.NullGpu(null_gpu.build_library(Path(folder) / "library"), Path(folder))
        for capability in options.capability or CAPABILITIES:
            lines = gpu.run("kernels.py", *options.cells, timeout=3600, capability=capability)
            found += [KernelResources(**line) for line in lines]
    print_table(found)
    if options.update:
        write_ceilings(found)


if __name__ == "__main__":
    main()
