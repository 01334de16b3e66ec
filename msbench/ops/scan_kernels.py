"""The choice of the scan kernel: once per process, after a check against the reference."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from msbench.errors import ConfigError, UnknownName
from msbench.ops import scan_mamba_ssm, scan_native, scan_operator, scan_triton
from msbench.ops.operation import isolated
from msbench.ops.scan_arguments import Arguments
from msbench.ops.scan_reference import selective_scan_reference

NAMES = ("output", "u", "dt", "A", "B", "C", "skip", "mix")
TOLERANCE = 1e-4
"""Allowed error relative to the largest value of an output or gradient; float32 kernels are within 1e-5."""

VARIABLE = "MSBENCH_SCAN"
"""The environment variable that forces a kernel; ``auto`` is the same as unset."""


@dataclass(frozen=True)
class Kernel:
    """An implementation of the scan.

    Parameters
    ----------
    engine : its name in options
    scan : ``scan(arguments, scaled=...)``, arguments of one dtype
    missing : ``missing(device type)``: the reason that it cannot be used there, or an empty string
    label : its name in records
    most_states : the most states of a stream, or None without a limit
    """

    engine: str
    scan: Callable[..., Tensor]
    missing: Callable[[str], str]
    label: Callable[[], str]
    most_states: int | None = None


@dataclass(frozen=True)
class Choice:
    """The kernel in use on a device, its name in records, and the reasons against faster kernels."""

    engine: str
    label: str
    passed_over: Mapping[str, str]


def reference(arguments: Arguments, *, scaled: bool) -> Tensor:
    """Scan by the loop over time."""
    return selective_scan_reference(*arguments, discretisation="euler" if scaled else "raw")


def _cpp_missing(device: str) -> str:
    if device != "cpu":
        return f"the C++ kernels do not run on {device}"
    if scan_native.fault():
        return f"the C++ kernels cannot be loaded: {scan_native.fault()}"
    if scan_native.library() is None:
        return (
            "msbench was installed without a C++ compiler; with g++ or clang there, and msbench installed"
            " again, a training step of the suite quick takes about a quarter of the time"
        )
    return ""


KERNELS: dict[str, Kernel] = {
    "triton": Kernel("triton", partial(scan_operator.apply, "triton"), scan_triton.missing, lambda: "triton"),
    "cpp": Kernel("cpp", partial(scan_operator.apply, "cpp"), _cpp_missing, scan_native.name),
    "torch": Kernel(
        "torch", partial(scan_operator.apply, "torch"), lambda _device: "", lambda: "torch-chunked"
    ),
    "mamba-ssm": Kernel(
        "mamba-ssm",
        scan_mamba_ssm.scan,
        scan_mamba_ssm.missing,
        lambda: "mamba-ssm",
        scan_mamba_ssm.MOST_STATES,
    ),
    "reference": Kernel("reference", reference, lambda _device: "", lambda: "torch-loop"),
}
"""Kernels by their name in options."""

AUTOMATIC = {"cpu": ("cpp", "torch"), "cuda": ("triton", "torch")}
"""Kernels to choose from automatically, by device type, in this order; ``torch`` for other types."""


def wanted() -> str:
    """Return the kernel name that the environment requests; raise UnknownName if it does not exist."""
    return known(os.environ.get(VARIABLE) or "auto")


def force(name: str, device: str) -> None:
    """Make this process and its children use a kernel on a device type; raise ConfigError if impossible."""
    _chosen(device, known(name))
    os.environ[VARIABLE] = name


def choose(device: str) -> Choice:
    """Return the kernel for a device type; raise ConfigError if a requested one is unusable or wrong."""
    return _chosen(device, wanted())


def most_states(device: str) -> int | None:
    """Return the most states of a stream in the scan of a device type, or None without a limit."""
    return KERNELS[choose(device).engine].most_states


def known(name: str) -> str:
    """Return the name; raise UnknownName if it is neither ``auto`` nor a kernel's."""
    if name != "auto" and name not in KERNELS:
        raise UnknownName("scan kernel", name, ("auto", *KERNELS), f"--scan or {VARIABLE}")
    return name


@cache
def _chosen(device: str, name: str) -> Choice:
    if name != "auto":
        if fault := fault_of(KERNELS[name], device):
            raise ConfigError(f"the scan kernel {name} cannot be used: {fault}")
        return Choice(name, KERNELS[name].label(), {})
    passed_over: dict[str, str] = {}
    for kernel in map(KERNELS.__getitem__, AUTOMATIC.get(device, ("torch",))):
        fault = fault_of(kernel, device)
        if not fault:
            return Choice(kernel.engine, kernel.label(), passed_over)
        passed_over[kernel.engine] = fault
    raise AssertionError("plain PyTorch scans everywhere")


def fault_of(kernel: Kernel, device: str) -> str:
    """Return the reason that a kernel cannot be used, or an empty string; warn if its results are wrong."""
    if missing := kernel.missing(device):
        return missing
    if kernel.engine in ("torch", "reference") or _interpreted(kernel, device):
        return ""
    if fault := isolated(self_check, kernel, device):
        warnings.warn(f"the {kernel.label()} scan is left out: {fault}", RuntimeWarning, stacklevel=4)
        return f"it is wrong here: {fault}"
    return ""


def _interpreted(kernel: Kernel, device: str) -> bool:
    """Return True if the kernel is interpreted on the device: only for tests, too slow for anything else."""
    return kernel.engine == "triton" and device == "cpu"


def self_check(kernel: Kernel, device: str = "cpu") -> str:
    """Return the first wrong output or gradient of a kernel on two problems, or an empty string.

    One mixes two streams of an odd number of channels, the other has one stream, no mixer, and is large
    enough for several threads. Both have slow decays over many spans of steps, because a fast decay hides a
    fault in the carried state.
    """
    small, large = _problem(2, 37, 2, 19, 5, mixed=True), _problem(2, 100, 1, 144, 16, mixed=False)
    return _check(kernel, small, device) or _check(kernel, large, device)


def _check(kernel: Kernel, arguments: list[Tensor], device: str) -> str:
    missing = [None] * (len(NAMES) - 1 - len(arguments))
    on_device = [x.to(device) for x in arguments]
    return compare(
        lambda *x: kernel.scan((*x, *missing), scaled=True), selective_scan_reference, on_device, NAMES
    )


def compare(
    kernel: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    arguments: Sequence[Tensor],
    names: Sequence[str],
) -> str:
    """Return a message about the first wrong output or gradient of `kernel`, by `names`, or an empty string.

    The expected values are those of `reference` in float64.
    """
    try:
        found = _output_and_gradients(kernel, arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    expected = _output_and_gradients(reference, [x.cpu().double() for x in arguments])
    for name, one, truth in zip(names, found, expected, strict=False):
        distance = float((one.cpu() - truth).abs().max() / truth.abs().max())
        if not distance < TOLERANCE:
            return f"its {name} is off by {distance:.1e}"
    return ""


def _problem(b: int, length: int, m: int, d: int, n: int, *, mixed: bool) -> list[Tensor]:
    """Return u, dt, A, B, C, skip and, if `mixed`, mix: fixed values; global generators are unchanged."""
    source = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=source)

    dt, A = normal(b, length, m, d).abs() * 0.1, -normal(m, d, n).abs()
    u, B, C = normal(b, length, m, d), normal(b, length, m, n), normal(b, length, m, n)
    return [u, dt, A, B, C, normal(m, d), *([normal(b, length, m)] if mixed else [])]


def _output_and_gradients(scan: Callable[..., Tensor], arguments: Sequence[Tensor]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in arguments]
    output = scan(*leaves)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype, device=output.device)
    gradients = torch.autograd.grad((output * weights.view(output.shape)).sum(), leaves)
    return [output.detach(), *gradients]
