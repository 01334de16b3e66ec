"""The machine, its limits and its numerics: recorded with every result, never part of a run's id."""

import math
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from msbench import __version__
from msbench.console import format_count
from msbench.errors import ConfigError, UnknownName

PACKAGES = ("torch", "lightning-fabric", "numpy", "triton", "mamba-ssm", "safetensors")

CGROUPS, PROCESS_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CONTAINER = {
    "engine": "MSBENCH_CONTAINER",
    "image": "MSBENCH_IMAGE",
    "digest": "MSBENCH_IMAGE_DIGEST",
    "revision": "MSBENCH_IMAGE_REVISION",
}
"""Variables that identify the image: ``--container`` sets the first three, the recipe the last."""


def describe_environment() -> dict[str, Any]:
    """Describe machine, versions, numerics and the state of the checkout, as plain JSON values."""
    return {**_describe_machine(), **describe_numerics()}


@cache
def _describe_machine() -> dict[str, Any]:
    """Describe what does not change within a process; read once and cached."""
    import torch

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": read_cpu_name(),
        "cores": count_cores(),
        "gpus": list_gpus(),
        "cuda": torch.version.cuda,
        "packages": list_versions(),
        "git": read_git_state(),
        "container": describe_container(),
    }


def count_cores() -> int | None:
    """Return how many CPUs this process may use, which a batch system or container may limit, or None."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return None if cores is None else math.ceil(min(cores, _read_cgroup_cores()))


def limit_threads() -> int | None:
    """Return the number of threads to use where PyTorch's own is more than the cores' time; else None.

    PyTorch starts one a core of the machine, and knows nothing of the time that a container may use.
    """
    import torch

    cores = count_cores()
    given = any(os.environ.get(name) for name in THREAD_VARIABLES)
    return None if given or cores is None or torch.get_num_threads() <= cores else cores


def describe_container() -> dict[str, str] | None:
    """Return engine, image, digest and commit of the container, as far as known; None outside a container."""
    return {key: os.environ[name] for key, name in CONTAINER.items() if os.environ.get(name)} or None


def list_versions() -> dict[str, str]:
    """Return the installed versions of the packages that affect results."""
    found = {"msbench": __version__}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def list_gpus() -> list[str]:
    """Return the names of the visible CUDA devices."""
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def check_device(name: str) -> None:
    """Raise UnknownName unless `name` is auto, cpu or cuda."""
    if name not in ("auto", "cpu", "cuda"):
        raise UnknownName("device", name, ("auto", "cpu", "cuda"), "--device")


def choose_accelerator(device: str) -> str:
    """Return the Fabric accelerator for auto, cpu or cuda; ConfigError if cuda is requested but absent."""
    import torch

    check_device(device)
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"--device cuda: no CUDA device can be used here ({explain_cuda()}); use --device cpu or auto"
        )
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def explain_cuda() -> str:
    """Return one line that explains why CUDA is or is not available."""
    import torch

    if torch.version.cuda is None:
        return "this torch was built without CUDA"
    devices = format_count(torch.cuda.device_count(), "device")
    return f"torch {torch.__version__} for CUDA {torch.version.cuda}, {devices}"


def measure_free_memory(device: str) -> int:
    """Return the bytes that can be allocated on ``cpu`` or ``cuda`` now, within job and container limits."""
    import torch

    if device == "cuda":
        # Memory that the allocator has reserved but does not use is free to PyTorch, though not to the
        # driver.
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return torch.cuda.mem_get_info()[0] + unused
    return min(_read_available_memory(), _read_cgroup_memory())


def measure_split_memory(device: str) -> int:
    """Return the bytes of the device for keeping splits: a quarter of free memory on ``cuda``, else none."""
    return measure_free_memory(device) // 4 if device == "cuda" else 0


def _read_available_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        (line,) = (line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_cgroup_memory() -> int:
    """Return the bytes left to the control groups (of containers, batch jobs and slices); very large without.

    Cached pages of files count as used there, but are given back to whoever allocates.
    """
    left = 2**63
    for folder in _list_cgroups("memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            try:
                bytes_left = int(_read_text(folder / limit)) - int(_read_text(folder / used))
            except (OSError, ValueError):  # no limit here, the word "max", or the other version
                continue
            left = min(left, bytes_left + _count_cached_bytes(folder))
    return max(left, 0)


def _count_cached_bytes(folder: Path) -> int:
    """Return the bytes of cached files in a control group and those below it."""
    try:
        lines = [line.split() for line in _read_text(folder / "memory.stat").splitlines()]
        found = {name: int(value) for name, value in lines}
    except (OSError, ValueError):
        return 0
    # In version 1 the plain keys leave out the groups below.
    prefix = "total_" if "total_inactive_file" in found else ""
    return found.get(f"{prefix}inactive_file", 0) + found.get(f"{prefix}active_file", 0)


def _read_cgroup_cores() -> float:
    """Return how many cores' time the control groups allow; infinite without a limit."""
    cores = math.inf
    for folder in _list_cgroups("cpu"):
        try:
            if (folder / "cpu.max").exists():
                quota, period = map(float, _read_text(folder / "cpu.max").split())
            else:
                quota, period = (
                    float(_read_text(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period")
                )
        except (OSError, ValueError):  # no limit here, or the word "max"
            continue
        if quota > 0 and period > 0:
            cores = min(cores, quota / period)
    return cores


def _list_cgroups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups, its own and those above it, of both versions.

    In a container the path may be that of the host; its own group is then the top of what is mounted.
    """
    try:
        lines = _read_text(PROCESS_CGROUPS).splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        tops = (CGROUPS / controller,) if names else (CGROUPS, CGROUPS / "unified")
        own = PurePosixPath(path.lstrip("/"))
        yield from (top / each for top in tops for each in (own, *own.parents))


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def read_cpu_name() -> str:
    """Return the processor's name as reported by the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def read_git_state() -> dict[str, Any] | None:
    """Return the checkout's commit and whether files differ from it.

    None where git does not track this package: one installed below somebody's repository is no part of it.
    """
    folder = Path(__file__).parent
    try:
        _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
        commit = _git(folder, "rev-parse", "HEAD")
        dirty = bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return None
    return {"commit": commit, "dirty": dirty}


def describe_commit(git: Mapping[str, Any] | None, before: str) -> str:
    """Return the commit of a git state, after the text `before`; an empty string without one."""
    return f"{before}{git['commit'][:12]}{' (changed)' if git['dirty'] else ''}" if git else ""


def _git(folder: Path, *arguments: str) -> str:
    # GIT_DIR and its like, as in a hook of the user's, are of another repository.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", env=own)
    return done.stdout.strip()


SWITCH = {"on": ("1", "true", "t", "yes", "y", "on"), "off": ("", "0", "false", "f", "no", "n", "off")}
"""Values of a variable that is on or off, as typer reads those of options (``MSBENCH_DETERMINISTIC``)."""


def read_switch(name: str) -> bool:
    """Return True if the environment variable is on, False if it is off or unset; ConfigError for another."""
    value = os.environ.get(name, "")
    for state, values in SWITCH.items():
        if value.strip().lower() in values:
            return state == "on"
    raise ConfigError(f"{name}={value}: is neither on nor off; write 1 or 0")


def expand_home(path: str | Path, choice: str = "") -> Path:
    """Return a path with a leading ``~`` or ``~user`` replaced by that home folder, as a shell does.

    Raises ConfigError where that folder is unknown; `choice` is the option or variable that the path is of.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        user = Path(path).parts[0][1:]
        why = f"there is no user {user!r} here" if user else "HOME is not set, and this user is in no list"
        remedy = "give the whole path" if user else f"set HOME{f' or {choice}' if choice else ''}"
        raise ConfigError(f"{path}: no home folder is known: {why}; {remedy}") from None


DETERMINISTIC = "MSBENCH_DETERMINISTIC"
"""Set to 1 by ``--deterministic`` and equivalent to it; child processes inherit it."""
THREADS = "MSBENCH_THREADS"
"""Set by ``--threads`` and equivalent to it; child processes inherit it."""
THREAD_VARIABLES = (THREADS, "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that set PyTorch's number of threads; without any, the number of cores decides."""
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""Values for which cuBLAS is deterministic: buffers of one size, one per stream. The first is the default."""


@contextmanager
def use_deterministic(device: str) -> Iterator[None]:
    """Make the same work on the same machine give the same bits, or raise; settings are restored on exit.

    Sets cuBLAS's workspaces, PyTorch's and cuDNN's deterministic algorithms, and turns off cuDNN's search for
    the fastest algorithm and TF32. Where `device` is ``cpu``, the only change is that PyTorch fills newly
    allocated memory, so that no kernel can depend on its former content.

    Raises ConfigError on ``cuda`` if CUDA has already started without the workspace setting, or if the
    environment contradicts it.
    """
    import torch

    cudnn = torch.backends.cudnn
    with ExitStack() as undo:
        if device == "cuda":
            _check_workspace(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        _set_variable(undo, DETERMINISTIC, "1")
        if os.environ.get(WORKSPACE) not in WORKSPACES:
            _set_variable(undo, WORKSPACE, WORKSPACES[0])
        undo.callback(
            torch.use_deterministic_algorithms,
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        torch.use_deterministic_algorithms(True)
        # Not allow_tf32 of matmul: torch refuses to report its precision once both interfaces were used.
        undo.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest")
        for name, value in {"deterministic": True, "benchmark": False, "allow_tf32": False}.items():
            undo.callback(setattr, cudnn, name, getattr(cudnn, name))
            setattr(cudnn, name, value)
        yield


@contextmanager
def use_matmul(precision: Literal["highest", "tf32"], device: str) -> Iterator[None]:
    """Compute float32 matrix products on a GPU in this precision; restored on exit. No effect on a CPU."""
    import torch

    before = torch.get_float32_matmul_precision()
    try:
        if device == "cuda":
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with `count` CPU threads, in child processes too; restored on exit."""
    import torch

    with ExitStack() as undo:
        _set_variable(undo, THREADS, str(count))
        undo.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(count)
        yield


def describe_numerics() -> dict[str, Any]:
    """Describe the current numerical settings as plain JSON values; they may change within a process."""
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
    """Check the variable; `started`: whether CUDA runs in this process, and has read it."""
    given = os.environ.get(WORKSPACE)
    if given in WORKSPACES:
        return
    if given is not None:
        raise ConfigError(
            f"--deterministic: {WORKSPACE} is {given!r}, with which cuBLAS is not deterministic; unset it, or"
            f" set {' or '.join(WORKSPACES)}"
        )
    if started:
        raise ConfigError(
            f"--deterministic: CUDA has started in this process without {WORKSPACE}; set it to"
            f" {WORKSPACES[0]} before"
        )


def _set_variable(undo: ExitStack, name: str, value: str) -> None:
    """Set an environment variable until `undo` is closed."""
    before = os.environ.get(name)
    if before is None:
        undo.callback(os.environ.pop, name, None)
    else:
        undo.callback(os.environ.__setitem__, name, before)
    os.environ[name] = value
