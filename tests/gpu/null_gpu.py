"""Python programs on a GPU that computes nothing: how it is built, started, and read.

`null_cuda.cpp` says what it is. A test starts a script with `NullGpu.run`, in a process of its own, in which
kernels pass their checks (`startup/sitecustomize.py`) and the script reads the GPU's counters.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import torch

HERE = Path(__file__).parent
SOURCES = ("null_cuda.cpp", "null_nccl.cpp")
LIBRARY = "libnull_gpu.so"
DRIVER, MANAGEMENT = "libcuda.so.1", "libnvidia-ml.so.1"
"""Names under which torch and Triton open the driver; and torch what counts real cards: an empty file."""
REPLACED = re.compile(r"(__cuda|cuda|cu[A-EG-Z]|cublas|cufft|curand|cusolver|cusparse(?!Lt)|nccl)\w*")
"""Symbols of the libraries that the GPU stands in for; not of cuDNN, whose functions are better not there."""
COMPUTING = re.compile(
    r"cublas(?!Create|Destroy|Set)([SDCZ][a-z]|I[sdcz]a|Gemm|Dot)\w*|cublasLtMatmul|cufftXtExec"
    r"|cusolverDn(?!Create|Destroy|Set)[SDCZX][a-z]+"
)
"""Those among them that start work on the device."""
CUDA = "13"
"""The version whose functions the sources have."""
FOLDER, LOADED, REPORTS = "NULL_GPU_FOLDER", "NULL_GPU_LIBRARY", "NULL_GPU_REPORTS"


def find_missing() -> str:
    """Return the reason that the null GPU cannot be built or used here, or an empty string."""
    if torch.version.cuda is None:
        return "this torch is built without CUDA"
    if torch.version.cuda.split(".")[0] != CUDA:
        return f"the null GPU is written for CUDA {CUDA}, this torch is built for {torch.version.cuda}"
    if sys.platform != "linux":
        return "the null GPU is preloaded by Linux's loader"
    if absent := [name for name in ("g++", "nm") if shutil.which(name) is None]:
        return f"{' and '.join(absent)} not found"
    return "" if find_spec("triton") else "triton is not installed"


def build_library(folder: Path) -> Path:
    """Compile the GPU into `folder`, with a function for every symbol that torch's libraries lack."""
    folder.mkdir(parents=True, exist_ok=True)
    packages = Path(torch.__file__).parents[1]
    headers = [packages / f"nvidia/cu{CUDA}/include", packages / "triton/backends/nvidia/include"]
    compile_ = ["g++", "-O1", "-fPIC", "-std=c++17", *(f"-I{path}" for path in headers)]
    objects = []
    for source in SOURCES:
        objects.append(folder / Path(source).with_suffix(".o"))
        _call([*compile_, "-c", HERE / source, "-o", objects[-1]])
    needed = _list_symbols("--undefined-only", *sorted((packages / "torch/lib").glob("*.so")))
    stubs = folder / "stubs.cpp"
    stubs.write_text(generate_stubs(needed - _list_symbols("--defined-only", *objects)))
    exported = folder / "exported.map"
    exported.write_text("{ global: cu*; __cu*; nccl*; null_gpu_*; local: *; };")
    library = folder / LIBRARY
    link = [f"-Wl,--version-script={exported}", f"-Wl,-soname,{DRIVER}", "-ldl", "-lpthread"]
    _call([*compile_, "-shared", stubs, *objects, "-o", library, *link])
    (folder / DRIVER).symlink_to(LIBRARY)
    (folder / MANAGEMENT).touch()
    return library


def generate_stubs(symbols: set[str]) -> str:
    """Return C++ that defines these functions: each counts its call and returns 0."""
    lines = ['extern "C" int null_gpu_call(const char *, int);']
    for name in sorted(symbols):
        computes = int(COMPUTING.fullmatch(name) is not None)
        lines.append(f'extern "C" int {name}() {{ return null_gpu_call("{name}", {computes}); }}')
    return "\n".join(lines) + "\n"


def _list_symbols(which: str, *files: Path) -> set[str]:
    dynamic = ["-D"] if files[0].suffix == ".so" else []
    lines = _call(["nm", *dynamic, which, "--format=posix", *files]).splitlines()
    names = {line.split(" ")[0].split("@")[0] for line in lines}
    return {name for name in names if REPLACED.fullmatch(name)}


def _call(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class NullGpu:
    """A built library, with a folder for what processes share: compiled kernels, and what ranks exchange."""

    library: Path
    folder: Path

    def environment(
        self, *, count: int = 1, capability: int = 90, memory: int = 80 * 2**30, caching: bool = False
    ) -> dict[str, str]:
        """Return the environment of a process that has so many cards, each with `memory` bytes.

        With PyTorch's `caching` of memory it is as on a real card, but memory that is used again has the
        content of its last use, where kernels compute nothing; without, it is zeros.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TRITON_", "MSBENCH_SCAN", "CUDA_", "PYTEST_", "PYTORCH_"))
        }
        if not caching:
            kept["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        here = str(self.library.parent)
        search = [str(HERE), str(HERE / "startup"), os.environ.get("PYTHONPATH", "")]
        return kept | {
            "LD_PRELOAD": str(self.library),
            "LD_LIBRARY_PATH": here,
            "TRITON_LIBCUDA_PATH": here,
            "TRITON_CACHE_DIR": str(self.folder / "triton"),
            "PYTHONPATH": os.pathsep.join(filter(None, search)),
            "OMP_NUM_THREADS": "1",
            LOADED: str(self.library),
            FOLDER: str(self.folder),
            "NULL_GPU_COUNT": str(count),
            "NULL_GPU_CAPABILITY": str(capability),
            "NULL_GPU_BYTES": str(memory),
        }

    def run(self, script: str, *arguments: str, timeout: float = 600, **card: Any) -> list[dict[str, Any]]:
        """Run a script of this folder, and return what it printed: an object a line."""
        done = _run([str(HERE / script), *arguments], self.environment(**card), timeout)
        return [json.loads(line) for line in done.splitlines()]

    def run_command(self, *arguments: str, reports: Path, **card: Any) -> dict[str, dict[str, Any]]:
        """Run msbench, and return the counters of each of its processes: those of a rank, or ``parent``."""
        reports.mkdir()
        _run(["-m", "msbench", *arguments], self.environment(**card) | {REPORTS: str(reports)}, 600)
        return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in reports.glob("*.json")}


def _run(arguments: Sequence[str], environment: dict[str, str], timeout: float) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    text = f"{' '.join(arguments)} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-6000:]}"
    assert done.returncode == 0, text
    return done.stdout


@dataclass(frozen=True)
class GpuCounts:
    """What happened since the last `reset_counts`.

    Parameters
    ----------
    counters : launches, copies, waits and allocations, by kind
    kernels : launches by the name of the kernel, or of the library's function
    calls : calls of functions that are only counted
    devices : of each card whether it has a context, its launches, its allocations and their peak in bytes
    """

    counters: Counter[str]
    kernels: Counter[str]
    calls: Counter[str]
    devices: list[dict[str, int]]

    @property
    def waits(self) -> int:
        """Return how often the host waited for the device."""
        return sum(self.counters[f"{what} waits"] for what in ("device", "stream", "event"))


def is_loaded() -> bool:
    """Return True in a process that has the null GPU."""
    return LOADED in os.environ


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(os.environ[LOADED])
    library.null_gpu_report.restype = ctypes.c_char_p
    return library


def count_launch(name: str) -> None:
    """Count the launch of a kernel that is not even launched."""
    _load().null_gpu_call(name.encode(), 1)


def reset_counts() -> None:
    """Set all counters to 0."""
    _load().null_gpu_reset()


def read_counts() -> GpuCounts:
    """Return the counters."""
    found = json.loads(_load().null_gpu_report())
    counts = {name: Counter(found[name]) for name in ("counters", "kernels", "calls")}
    return GpuCounts(**counts, devices=found["devices"])


@contextmanager
def watching(notice: Callable[[str], None]) -> Iterator[None]:
    """Call `notice` with the kind of each copy and wait inside the context, in the thread that makes it."""
    called = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(lambda what: notice(what.decode()))
    library = _load()
    library.null_gpu_watch(called)
    try:
        yield
    finally:
        library.null_gpu_watch(None)


def accept_any_result(dispatch: Any) -> None:
    """Let kernels pass their checks whatever they compute, and do without cuDNN, which is not there.

    `dispatch` is the module with these checks; each process calls this when it imports that.
    """
    dispatch.TOLERANCE = float("inf")
    torch.backends.cudnn.enabled = False


def write_report() -> None:
    """Write this process's counters into the folder for reports, by its rank."""
    path = Path(os.environ[REPORTS], f"{os.environ.get('RANK', 'parent')}.json")
    path.write_text(_load().null_gpu_report().decode(), encoding="utf-8")


def leave() -> NoReturn:
    """End this process at once: where threads of autograd still run, Python's own end aborts now and then."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
