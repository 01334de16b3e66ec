"""How arithmetic is done: what ``--threads`` and ``--deterministic`` set, and what a record says of it.

Never part of a run's id: it is how a run is executed, not what it is.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from msbench.errors import ConfigError

if TYPE_CHECKING:
    from msbench.specs import RunSpec

VARIABLE = "MSBENCH_DETERMINISTIC"
"""Set to 1 while ``--deterministic`` is, and as good as the option: processes that are started inherit it."""
THREADS = "MSBENCH_THREADS"
"""As good as ``--threads``, which sets it, so that processes that are started inherit it."""
THREAD_VARIABLES = (THREADS, "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Any of them decides how many threads PyTorch uses; else the machine's cores do."""
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""What cuBLAS promises equal results with: buffers of one size, one for each stream. The first is set."""
NO_FIXED_ORDER = {
    "mamba-ssm": "its backward adds up the gradients of B and C by atomic additions, in no fixed order"
    " (state-spaces/mamba #493); leave --scan out, or use --scan triton",
}
"""Scan kernels that no setting makes deterministic, and why; torch cannot know of them."""


def wanted() -> bool:
    """Whether this process, or one that started it, was told to be deterministic."""
    return os.environ.get(VARIABLE) == "1"


@contextmanager
def deterministic(device: str) -> Iterator[None]:
    """Within it the same work on the same machine gives the same bits, or an operation raises; undone after.

    What is set: cuBLAS's workspaces, PyTorch's deterministic algorithms, cuDNN's too and without its search
    for the fastest, and no TF32. All that is new where `device` is ``cpu`` is that PyTorch fills memory that
    it hands out, so that no kernel can depend on what was there.

    Raises ConfigError where it is too late on ``cuda``, or the environment contradicts it.
    """
    import torch

    cudnn = torch.backends.cudnn
    with ExitStack() as undo:
        if device == "cuda":
            _check_workspace(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        _put(undo, VARIABLE, "1")
        if os.environ.get(WORKSPACE) not in WORKSPACES:
            _put(undo, WORKSPACE, WORKSPACES[0])
        undo.callback(
            torch.use_deterministic_algorithms,
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        torch.use_deterministic_algorithms(True)
        # Not allow_tf32 of matmul: torch refuses to be asked for its precision once both ways were used.
        undo.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest")
        for name, value in {"deterministic": True, "benchmark": False, "allow_tf32": False}.items():
            undo.callback(setattr, cudnn, name, getattr(cudnn, name))
            setattr(cudnn, name, value)
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within it the CPU computes with `count` threads, in processes started from here too; undone after."""
    import torch

    with ExitStack() as undo:
        _put(undo, THREADS, str(count))
        undo.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(count)
        yield


def in_use() -> dict[str, Any]:
    """What holds now, as plain JSON values for a record; it may change within a process."""
    import torch

    cudnn = torch.backends.cudnn
    return {
        "threads": torch.get_num_threads(),
        "threads_given": any(os.environ.get(name) for name in THREAD_VARIABLES),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn": {
            "deterministic": cudnn.deterministic,
            "benchmark": cudnn.benchmark,
            "tf32": cudnn.allow_tf32,
        },
    }


def refuse(specs: Iterable["RunSpec"], device: str) -> None:
    """ConfigError, naming kernel and models, where a run cannot be deterministic on a device type."""
    from msbench import models, ops

    engine = ops.choose(device).engine
    reason = NO_FIXED_ORDER.get(engine)
    scanning = {spec.model_name for spec in specs if models.family(spec.model_name).scanned(spec.model)}
    if reason and scanning:
        raise ConfigError(
            f"--deterministic: the scan {engine}, which {', '.join(sorted(scanning))} would use, cannot be:"
            f" {reason}"
        )


def _check_workspace(started: bool) -> None:
    """`started`: whether CUDA runs in this process, and has read the variable."""
    given = os.environ.get(WORKSPACE)
    if given in WORKSPACES:
        return
    if given is not None:
        raise ConfigError(
            f"--deterministic: {WORKSPACE} is {given!r}, with which cuBLAS promises nothing; unset it, or set"
            f" {' or '.join(WORKSPACES)}"
        )
    if started:
        raise ConfigError(
            f"--deterministic: CUDA has started in this process without {WORKSPACE}; set it to"
            f" {WORKSPACES[0]} before"
        )


def _put(undo: ExitStack, name: str, value: str) -> None:
    """Set an environment variable until `undo` is closed."""
    before = os.environ.get(name)
    if before is None:
        undo.callback(os.environ.pop, name, None)
    else:
        undo.callback(os.environ.__setitem__, name, before)
    os.environ[name] = value
