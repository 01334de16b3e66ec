"""The machine, its limits and its numerics: recorded with every number, never part of a run's id."""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from msbench.errors import ConfigError, UnknownName

PACKAGES = ("msbench", "torch", "lightning-fabric", "numpy", "triton", "mamba-ssm", "safetensors")

CONTAINER = {
    "engine": "MSBENCH_CONTAINER",
    "image": "MSBENCH_IMAGE",
    "digest": "MSBENCH_IMAGE_DIGEST",
    "revision": "MSBENCH_IMAGE_REVISION",
}
"""Variables that say which image this is: ``--container`` sets the first three, the recipe the last."""


def describe_environment() -> dict[str, Any]:
    """Machine, versions, numerics and the state of the checkout, as plain JSON values."""
    return {**_machine(), **describe_numerics()}


@cache
def _machine() -> dict[str, Any]:
    """What does not change while a process runs, or is told as it was at first."""
    import torch

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": cpu_name(),
        "cores": cores(),
        "gpus": gpus(),
        "cuda": torch.version.cuda,
        "packages": versions(),
        "git": git_state(),
        "container": container(),
    }


def cores() -> int | None:
    """CPUs that this process may use, which a batch system makes fewer than there are; None where unknown."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def container() -> dict[str, str] | None:
    """Engine, image, its digest and the commit it was built from, as far as known; None outside of one."""
    return {key: os.environ[name] for key, name in CONTAINER.items() if os.environ.get(name)} or None


def versions() -> dict[str, str]:
    """Installed versions of the packages that numbers depend on."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def gpus() -> list[str]:
    """Names of the CUDA devices that can be seen."""
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def check_device(name: str) -> None:
    """Raise UnknownName for what is not auto, cpu or cuda."""
    if name not in ("auto", "cpu", "cuda"):
        raise UnknownName("device", name, ("auto", "cpu", "cuda"), "--device")


def accelerator(device: str) -> str:
    """The Fabric accelerator for auto, cpu or cuda; ConfigError where cuda is asked for and not there."""
    import torch

    check_device(device)
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"--device cuda: no CUDA device can be used here ({cuda_facts()}); use --device cpu or auto"
        )
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def cuda_facts() -> str:
    """One line on why CUDA is or is not there."""
    import torch

    if torch.version.cuda is None:
        return "this torch was built without CUDA"
    return f"torch {torch.__version__} for CUDA {torch.version.cuda}, {torch.cuda.device_count()} devices"


def free_memory(device: str) -> int:
    """Bytes that could be allocated on ``cpu`` or ``cuda`` now, within the limits of a job or container."""
    import torch

    if device == "cuda":
        # What the allocator keeps but does not use is free to who asks it, though not to the driver.
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return torch.cuda.mem_get_info()[0] + unused
    return min(_available_memory(), _left_of_control_group())


def room_for_splits(device: str) -> int:
    """Bytes of the device that splits may be kept in: a quarter of what is free on ``cuda``, else none."""
    return free_memory(device) // 4 if device == "cuda" else 0


def _available_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        (line,) = (line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _left_of_control_group() -> int:
    """What a control group (a container's, a batch job's) still grants; a very large number without one."""
    left = 2**63
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition(":")[2].strip().lstrip("/")
    except OSError:
        return left
    for folder in {Path("/sys/fs/cgroup") / own, Path("/sys/fs/cgroup")}:
        try:
            limit = int((folder / "memory.max").read_text(encoding="ascii"))
            used = int((folder / "memory.current").read_text(encoding="ascii"))
        except (OSError, ValueError):  # no such group, or "max"
            continue
        left = min(left, limit - used)
    return left


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def git_state() -> dict[str, Any] | None:
    """Commit of the checkout that msbench runs from and whether it differs; None outside a checkout."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        dirty = bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return None
    return {"commit": commit, "dirty": dirty}


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


DETERMINISTIC = "MSBENCH_DETERMINISTIC"
"""Set to 1 while ``--deterministic`` is, and as good as the option: processes that are started inherit it."""
THREADS = "MSBENCH_THREADS"
"""As good as ``--threads``, which sets it, so that processes that are started inherit it."""
THREAD_VARIABLES = (THREADS, "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Any of them decides how many threads PyTorch uses; else the machine's cores do."""
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""What cuBLAS promises equal results with: buffers of one size, one for each stream. The first is set."""


def is_deterministic_wanted() -> bool:
    """Whether this process, or one that started it, was told to be deterministic."""
    return os.environ.get(DETERMINISTIC) == "1"


@contextmanager
def use_deterministic(device: str) -> Iterator[None]:
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
        _put(undo, DETERMINISTIC, "1")
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
def use_threads(count: int) -> Iterator[None]:
    """Within it the CPU computes with `count` threads, in processes started from here too; undone after."""
    import torch

    with ExitStack() as undo:
        _put(undo, THREADS, str(count))
        undo.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(count)
        yield


def describe_numerics() -> dict[str, Any]:
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
