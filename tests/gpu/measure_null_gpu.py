"""Do on the null GPU what its tests are about; print what it counted, an object a line.

Usage: measure_null_gpu.py
"""

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import null_gpu
import torch
import triton
import triton.language as tl
from null_gpu import GpuCounts

NUMBERS = torch.arange(1000.0)


@triton.jit
def copy_kernel(source, target, n):  # type: ignore[no-untyped-def]
    """Copy the first numbers; under a device that computes nothing."""
    at = tl.arange(0, 128)
    tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)


def count(work: Callable[[], Any]) -> tuple[GpuCounts, Any]:
    """Return what the GPU counted during `work`, and its result."""
    null_gpu.reset_counts()
    result = work()
    return null_gpu.read_counts(), result


def name_error(work: Callable[[], Any]) -> str:
    """Return the message of what `work` raises."""
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def measure_copies() -> dict[str, Any]:
    """Copy there and back, from pageable and from pinned memory, and wait."""
    pinned = NUMBERS.pin_memory()
    found, same = count(lambda: torch.equal(NUMBERS.cuda().cpu(), NUMBERS))
    ahead, _ = count(lambda: pinned.to("cuda", non_blocking=True))
    seen: Counter[str] = Counter()

    def notice(what: str) -> None:
        seen[f"{what} in {threading.current_thread().name}"] += 1

    with null_gpu.watching(notice):
        x = pinned.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        flag = bool((x > 0).all())
    return {
        "same": same,
        "counters": found.counters,
        "waits": found.waits,
        "ahead": ahead.counters,
        "waits ahead": ahead.waits,
        "seen": seen,
        "flag": flag,
    }


def measure_kernels() -> dict[str, Any]:
    """Launch kernels of torch, of cuBLAS and of Triton, valid and invalid ones."""
    x = torch.zeros(100, 100, device="cuda")
    found, _ = count(lambda: (x + x) @ x)
    once, _ = count(lambda: copy_kernel[(3,)](x, x, 7))
    wide = name_error(lambda: copy_kernel[(1, 2**17)](x, x, 7))
    return {
        "kernels": found.kernels,
        "launches": found.counters["launches"],
        "triton": once.kernels,
        "compiled": once.counters["compiled launches"],
        "wide": wide,
        "capability": torch.cuda.get_device_capability(),
    }


def measure_memory() -> dict[str, Any]:
    """Allocate what fits, and what does not."""
    free, total = torch.cuda.mem_get_info()
    torch.cuda.reset_peak_memory_stats()
    found, x = count(lambda: torch.empty(free // 2, dtype=torch.uint8, device="cuda"))
    peak = torch.cuda.max_memory_allocated()
    error = name_error(lambda: torch.empty(free, dtype=torch.uint8, device="cuda"))
    del x
    torch.cuda.empty_cache()
    again = name_error(lambda: torch.empty(free, dtype=torch.uint8, device="cuda"))
    return {
        "total": total,
        "free": free,
        "allocations": found.counters["allocations"],
        "peak": found.devices[0]["peak"],
        "torch peak": peak,
        "error": error,
        "after release": again,
    }


def measure_graph() -> dict[str, Any]:
    """Capture a graph, replay it, and wait within a capture."""
    x = torch.zeros(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x + 1) * 2

    def replay() -> None:
        for _ in range(3):
            graph.replay()

    found, _ = count(replay)

    def wait() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            float(y.sum())

    return {"replayed": found.counters, "wait": name_error(wait)}


def measure_devices() -> dict[str, Any]:
    """Work on the second device alone."""
    torch.zeros(5, device="cuda:1").add_(1)
    return {
        "devices": null_gpu.read_counts().devices,
        "third": name_error(lambda: torch.zeros(1, device="cuda:2")),
    }


def main() -> None:
    """Measure on two devices."""
    first = measure_devices()  # before anything has a context on the other one
    print(json.dumps(first))
    torch.cuda.set_device(0)
    for measure in (measure_copies, measure_kernels, measure_memory, measure_graph):
        print(json.dumps(measure()))


if __name__ == "__main__":
    main()
