"""Support of all Triton kernels: if a device can run them, their modules, and the device to launch on.

Triton is imported when the first kernel is launched. With ``TRITON_INTERPRET=1`` it interprets the same
kernels on the CPU: slow, but enough to test them.
"""

import importlib
import importlib.util
import os
import shutil
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

CAPABILITY = (7, 0)
"""Compute capability of the oldest GPUs that Triton supports."""


def find_missing(device: str) -> str:
    """Return the reason that the kernels cannot be used on a device type, or an empty string."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device == "cpu":
        interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        return "" if interpreted else "triton runs on the CPU under TRITON_INTERPRET=1 only"
    if device != "cuda" or not torch.cuda.is_available():
        return f"triton needs a CUDA device, this is {device}"
    found = torch.cuda.get_device_capability()
    return "" if found >= CAPABILITY else f"triton needs a GPU of compute capability 7.0, this has {found}"


def find_lacking() -> str:
    """Return what the compilation of a kernel lacks here and how to get it, or an empty string.

    Triton's own errors do not say: it calls a C compiler once, for a module that includes Python's headers.
    """
    lacking = []
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if os.environ.get("CC"):
        if shutil.which(os.environ["CC"]) is None:
            lacking.append(f"CC is {os.environ['CC']}, which cannot be run: unset it, or name a C compiler")
    elif not any(map(shutil.which, ("clang", "gcc"))):
        lacking.append("no C compiler is installed: install gcc (Debian: apt-get install gcc), or set CC")
    elif not header.exists():
        lacking.append(f"there is no {header}: install Python's headers (Debian: python3-dev)")
    folder = find_cache()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        lacking.append(f"kernels cannot be stored in {folder}: set TRITON_CACHE_DIR to a folder that can")
    return "; ".join(lacking)


def find_cache() -> Path:
    """Return the folder in which Triton keeps compiled kernels."""
    given = os.environ.get("TRITON_CACHE_DIR")
    return Path(given or Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache")


def load_kernels(module: str) -> Any:
    """Return the module of some kernels, which imports triton."""
    return _NoKernels() if getattr(_state, "skipped", False) else importlib.import_module(module)


@contextmanager
def skip_launches() -> Iterator[None]:
    """Launch no kernel in this thread: what allocates for one runs, on tensors without numbers."""
    before = getattr(_state, "skipped", False)
    _state.skipped = True
    try:
        yield
    finally:
        _state.skipped = before


class _NoKernels:
    """Kernels with any name that do nothing on any grid."""

    def __getattr__(self, name: str) -> Self:
        return self

    def __getitem__(self, grid: object) -> Self:
        return self

    def __call__(self, *_: object, **__: object) -> None:
        return None


_state = threading.local()


def use_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Return a context with x's device as the current one, on which Triton launches kernels."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
