"""Which kernel scans: chosen once a process, after it has shown that it computes what the reference does."""

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
"""Of the largest value of an output or gradient; the kernels are within 1e-5 in float32."""

VARIABLE = "MSBENCH_SCAN"
"""The environment variable that forces a kernel; ``auto`` is the same as none."""


@dataclass(frozen=True)
class Kernel:
    """One way to scan.

    Parameters
    ----------
    engine : what the option calls it
    scan : ``scan(arguments, scaled=...)``, arguments of one dtype
    missing : ``missing(device type)``: why it cannot be used there; empty where it can
    label : the name for records
    most_states : of a stream; None where there is no limit
    """

    engine: str
    scan: Callable[..., Tensor]
    missing: Callable[[str], str]
    label: Callable[[], str]
    most_states: int | None = None


@dataclass(frozen=True)
class Choice:
    """The kernel in use on a device, its name for records, and why the faster ones were passed over."""

    engine: str
    label: str
    passed_over: Mapping[str, str]


def reference(arguments: Arguments, *, scaled: bool) -> Tensor:
    """The loop over time."""
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
"""By the name that an option has for each."""

AUTOMATIC = {"cpu": ("cpp", "torch"), "cuda": ("triton", "torch")}
"""Those that are chosen without being asked for, by device type, in this order; elsewhere ``torch``."""


def wanted() -> str:
    """What the environment asks for; UnknownName where there is no such kernel."""
    return known(os.environ.get(VARIABLE) or "auto")


def force(name: str, device: str) -> None:
    """Make this process and its children use a kernel on a device type; ConfigError where it cannot be."""
    _chosen(device, known(name))
    os.environ[VARIABLE] = name


def choose(device: str) -> Choice:
    """The kernel for a device type; ConfigError where the one asked for cannot be used or is wrong."""
    return _chosen(device, wanted())


def most_states(device: str) -> int | None:
    """How many states a stream may have in the scan of a device type; None where there is no limit."""
    return KERNELS[choose(device).engine].most_states


def known(name: str) -> str:
    """The name; UnknownName where it is not ``auto`` and no kernel has it."""
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
    """Why a kernel cannot be used, with one warning where it is there and wrong; empty where it can."""
    if missing := kernel.missing(device):
        return missing
    if kernel.engine in ("torch", "reference") or _interpreted(kernel, device):
        return ""
    if fault := isolated(self_check, kernel, device):
        warnings.warn(f"the {kernel.label()} scan is left out: {fault}", RuntimeWarning, stacklevel=4)
        return f"it is wrong here: {fault}"
    return ""


def _interpreted(kernel: Kernel, device: str) -> bool:
    """Whether it can only be interpreted there: for tests of the kernel, too slow for anything else."""
    return kernel.engine == "triton" and device == "cpu"


def self_check(kernel: Kernel, device: str = "cpu") -> str:
    """What a kernel gets wrong on two problems, output or gradient; an empty string where nothing.

    One mixes two streams of an odd number of channels, the other has one stream, no mixer, and is large
    enough for several threads. Both have slow decays over many spans of steps, so that a fault in what is
    carried over cannot hide (a fast decay forgets it).
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
    """Which of the output and the gradients `kernel` has wrong, by `names`; empty where none.

    The truth is what `reference` makes of the arguments in float64.
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
    """u, dt, A, B, C, skip and, where `mixed`, mix, always the same; global generators are left alone."""
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
