"""What all Triton kernels share: whether a device can run them, their modules, and where to launch them.

Triton is imported when the first kernel is launched. With ``TRITON_INTERPRET=1`` it interprets the same
kernels on the CPU: slow, but enough to test them.
"""

import importlib
import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType

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


def load_kernels(module: str) -> ModuleType:
    """Return the module of some kernels, which imports triton."""
    return importlib.import_module(module)


def use_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Return a context with x's device as the current one, on which Triton launches kernels."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
