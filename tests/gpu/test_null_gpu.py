"""The null GPU itself: it counts what happens, copies, and refuses what a real one would."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from null_gpu import COMPUTING, REPLACED, NullGpu, find_missing, generate_stubs

MEMORY = 10 * 2**30


@pytest.fixture(scope="module")
def found(null_gpu: NullGpu) -> list[dict[str, Any]]:
    return null_gpu.run("measure_null_gpu.py", count=2, capability=80, memory=MEMORY, caching=True)


def test_devices(found: list[dict[str, Any]]) -> None:
    first, second = found[0]["devices"]
    assert first["context"] == first["launches"] == first["allocations"] == 0
    assert second["context"] == second["allocations"] == 1
    assert "cudaErrorInvalidDevice" in found[0]["third"]


def test_copies_copy_and_are_counted(found: list[dict[str, Any]]) -> None:
    copies = found[1]
    assert copies["same"]
    assert copies["counters"]["bytes to device"] == copies["counters"]["bytes to host"] == 4000
    assert copies["counters"]["pageable copies to device"] == copies["counters"]["copies to host"] == 1
    assert copies["waits"] == 2
    assert copies["ahead"] == {"bytes to device": 4000, "copies to device": 1}
    assert copies["waits ahead"] == 0
    assert copies["flag"]
    assert copies["seen"] == {
        f"{what} in MainThread": 1
        for what in ("copies to device", "copies to host", "device waits", "stream waits")
    }


def test_launches_are_counted_by_kernel(found: list[dict[str, Any]]) -> None:
    kernels = found[2]
    assert kernels["launches"] == 2
    assert kernels["kernels"]["cublasSgemm_v2"] == 1
    assert sum("CUDAFunctor_add<float>" in name for name in kernels["kernels"]) == 1
    assert kernels["triton"] == {"copy_kernel": 1}
    assert kernels["compiled"] == 1
    assert kernels["capability"] == [8, 0]


def test_a_grid_that_is_too_wide_is_refused(found: list[dict[str, Any]]) -> None:
    assert "refused" in found[2]["wide"]


def test_more_memory_than_the_card_has_is_refused(found: list[dict[str, Any]]) -> None:
    memory = found[3]
    assert memory["total"] == MEMORY
    assert memory["free"] // 2 <= memory["torch peak"] <= memory["peak"] < memory["free"]
    assert memory["allocations"] == 1
    assert memory["error"].startswith("OutOfMemoryError")
    assert memory["after release"] == ""


def test_graphs_are_one_launch_and_cannot_wait(found: list[dict[str, Any]]) -> None:
    graph = found[4]
    assert graph["replayed"] == {"graph launches": 3, "launches in graphs": 6}
    assert "CaptureUnsupported" in graph["wait"]


def test_which_functions_are_generated() -> None:
    """Those of the libraries that it stands in for; of these, the ones that compute are launches."""
    assert all(
        map(REPLACED.fullmatch, ("cudaMalloc", "cuLaunchKernel", "cublasSgemm_v2", "ncclSend", "cufftXtExec"))
    )
    assert not any(
        map(REPLACED.fullmatch, ("cudnnCreate", "cuptiFinalize", "cuFileRead", "cusparseLtInit", "culong"))
    )
    assert all(map(COMPUTING.fullmatch, ("cublasSgemm_v2", "cublasGemmEx", "cublasLtMatmul", "cufftXtExec")))
    assert not any(
        map(COMPUTING.fullmatch, ("cublasCreate_v2", "cublasSetStream_v2", "cusolverDnDestroy", "ncclSend"))
    )
    assert 'int cufftXtExec() { return null_gpu_call("cufftXtExec", 1); }' in generate_stubs({"cufftXtExec"})


def test_why_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert find_missing() == "this torch is built without CUDA"
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    assert "for CUDA 13" in find_missing()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert find_missing() == "g++ and nm not found"


def test_a_card_of_unknown_capability_is_an_error(null_gpu: NullGpu) -> None:
    environment = null_gpu.environment(capability=35)
    done = subprocess.run(
        [sys.executable, "-c", ""], env=environment, capture_output=True, text=True, check=False
    )
    assert "no card of capability 35" in done.stderr
