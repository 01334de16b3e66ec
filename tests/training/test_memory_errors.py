"""Lack of memory is recognised by the messages of torch, C++ and the CUDA libraries, and by no others."""

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import msbench
from msbench.training.memory import MESSAGES, describe_memory_error, is_out_of_memory


@pytest.mark.parametrize(
    "text",
    [
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
        " to allocate 9000000000000 bytes. Error code 12",
        "[enforce fail at alloc_cpu.cpp:116] data. DefaultCPUAllocator: not enough memory: you tried to"
        " allocate 9000000000000 bytes.",
        "Storage size calculation overflowed with sizes=[9223372036854775807]",
        "unable to mmap 4096 bytes from file </torch_1>: Cannot allocate memory (12)",
        "std::bad_alloc",
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.81 GiB.",
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at another call",
        "CUDA driver error: out of memory",
        "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuFFT error: CUFFT_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    ],
)
def test_every_message_is_recognised(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("Allocation on device"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
)
def test_every_type_is_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("out of range"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("out of resource: shared memory, Required: 300000, Hardware limit: 232448"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    ],
)
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    assert not is_out_of_memory(error)


def test_errors_that_torch_and_numpy_raise_are_recognised_and_shortened() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**52, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert describe_memory_error(caught.value).startswith(
        "can't allocate memory: you tried to allocate 4503599627370496 bytes"
    )
    with pytest.raises(MemoryError) as numpys:
        np.empty(2**52, dtype=np.uint8)
    assert is_out_of_memory(numpys.value)


def test_the_description_has_no_advice_and_is_never_empty() -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB"
    error = torch.OutOfMemoryError(f"{text}. If reserved but unallocated memory is large, ...\nmore")
    assert describe_memory_error(error) == text
    assert describe_memory_error(MemoryError()) == "MemoryError"


def test_there_is_one_detector() -> None:
    """Exceptions and messages of a lack of memory are named in one module, which the others ask."""
    package = Path(msbench.__file__).parent
    detects = re.compile(rf"OutOfMemoryError|in str\(error\).*memory|{'|'.join(map(re.escape, MESSAGES))}")
    sources = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    found = {path.relative_to(package).as_posix() for path, text in sources.items() if detects.search(text)}
    assert found == {"training/memory.py"}
    callers = {
        path.relative_to(package).as_posix() for path, text in sources.items() if "is_out_of_memory(" in text
    }
    assert callers >= {
        *("training/step.py", "training/process_group.py", "runs/execution.py", "runs/memory.py"),
        *("analysis/mixing/command.py", "analysis/benchmarks/measurement.py"),
    }
