"""The interface of the selective scan, and the choice of its kernel: once per process, after a check."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from msbench.errors import ConfigError, UnknownName
from msbench.ops import native_library
from msbench.ops.gpu import launch
from msbench.ops.operators import call_isolated, mark_constant
from msbench.ops.scan import engines, mamba_ssm, native_engine
from msbench.ops.scan.reference import (
    Arguments,
    Discretisation,
    check_scan_shapes,
    promote,
    selective_scan_reference,
)

NAMES = ("output", "u", "dt", "A", "B", "C", "skip", "mix")
TOLERANCE = 1e-4
"""Allowed error relative to the largest value of an output or gradient; float32 kernels are within 1e-5."""

VARIABLE = "MSBENCH_SCAN"
"""The environment variable that forces a kernel; ``auto`` is the same as unset."""


def selective_scan(
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None = None,
    mix: Tensor | None = None,
    *,
    discretisation: Discretisation = "euler",
) -> Tensor:
    """Scan m streams of d channels with n states each (Gu and Dao 2023, algorithm 2).

    ::

        h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t         ("raw": B_t u_t, without the step size)
        y_t = <C_t, h_t> + skip u_t
        z_t = sum_m mix_t y_t                            (if mix is given)

    Parameters
    ----------
    u, dt : (b, l, m, d); dt positive
    A : (m, d, n); negative
    B, C : (b, l, m, n)
    skip : (m, d) or None
    mix : (b, l, m) or None

    Returns z (b, l, d) if `mix` is given, else y (b, l, m, d), in the dtype of `u`. Any length, any strides.
    All arithmetic is float32, or float64 if an input is, regardless of autocast. Every tensor gets a
    gradient; ``torch.func`` transforms work, second derivatives need `selective_scan_reference`.
    """
    arguments = (u, dt, A, B, C, skip, mix)
    check_scan_shapes(arguments)
    with torch.autocast(u.device.type, enabled=False):
        kernel = KERNELS[get_engine(u.device.type)]
        return kernel.scan(promote(arguments), scaled=discretisation == "euler").to(u.dtype)


def kernel_name(device: torch.device | str) -> str:
    """Return the name of the scan that runs on `device`, for records and ``msbench doctor``."""
    return choose_kernel(torch.device(device).type).label


@mark_constant
def get_engine(device: str) -> str:
    """Return the name of the scan kernel of a device type."""
    return choose_kernel(device).engine


@dataclass(frozen=True)
class Kernel:
    """An implementation of the scan.

    Parameters
    ----------
    engine : its name in options
    scan : ``scan(arguments, scaled=...)``, arguments of one dtype
    missing : ``missing(device type)``: the reason that it cannot be used there, or an empty string
    find_label : its name in records; without it, that in options
    most_states : the most states of a stream, or None without a limit
    """

    engine: str
    scan: Callable[..., Tensor]
    missing: Callable[[str], str] = lambda _device: ""
    find_label: Callable[[], str] | None = None
    most_states: int | None = None

    def label(self) -> str:
        """Return its name in records."""
        return self.engine if self.find_label is None else self.find_label()


@dataclass(frozen=True)
class KernelChoice:
    """The kernel in use on a device, its name in records, and the reasons against faster kernels."""

    engine: str
    label: str
    passed_over: Mapping[str, str]


def _scan_by_reference(arguments: Arguments, *, scaled: bool) -> Tensor:
    return selective_scan_reference(*arguments, discretisation="euler" if scaled else "raw")


KERNELS: dict[str, Kernel] = {
    kernel.engine: kernel
    for kernel in (
        Kernel("triton", partial(engines.run_engine, "triton"), launch.find_missing),
        Kernel(
            "cpp",
            partial(engines.run_engine, "cpp"),
            native_library.find_missing,
            native_engine.describe_kernel,
        ),
        Kernel("torch", partial(engines.run_engine, "torch"), find_label=lambda: "torch-chunked"),
        Kernel("mamba-ssm", mamba_ssm.scan, mamba_ssm.find_missing, most_states=mamba_ssm.MOST_STATES),
        Kernel("reference", _scan_by_reference, find_label=lambda: "torch-loop"),
    )
}
"""Kernels by their name in options."""

AUTOMATIC = {"cpu": ("cpp", "torch", "reference"), "cuda": ("triton",)}
"""Kernels to choose from automatically, by device type, in this order; other types have the last two.

On a GPU there is one: in PyTorch operations a scan launches thousands of kernels.
"""


def requested_kernel() -> str:
    """Return the kernel name that the environment requests; raise UnknownName if it does not exist."""
    return check_kernel_name(os.environ.get(VARIABLE) or "auto")


def force_kernel(name: str, device: str, *, check: bool = True) -> None:
    """Make this process and its children use a kernel on a device type; raise ConfigError if impossible.

    Without the check, which starts a GPU, the children find out whether it is.
    """
    check_kernel_name(name)
    if check:
        _choose(device, name)
    os.environ[VARIABLE] = name


def choose_kernel(device: str) -> KernelChoice:
    """Return the kernel for a device type; raise ConfigError if a requested one is unusable or wrong."""
    return _choose(device, requested_kernel())


def state_limit() -> int | None:
    """Return the most states of a stream in the requested scan, or None without a limit.

    No kernel that is chosen automatically has one.
    """
    name = requested_kernel()
    return None if name == "auto" else KERNELS[name].most_states


def check_kernel_name(name: str) -> str:
    """Return the name; raise UnknownName if it is neither ``auto`` nor a kernel's."""
    if name != "auto" and name not in KERNELS:
        raise UnknownName("scan kernel", name, ("auto", *KERNELS), f"--scan or {VARIABLE}")
    return name


def uses_native(operation: str, self_check: Callable[[], str]) -> bool:
    """Return True if the C++ kernel of another operation is used: with the C++ scan, if it passes its check.

    So ``MSBENCH_SCAN`` overrides the choice for all kernels. `self_check` returns a fault or an empty string;
    it runs once per process, and a fault is a warning.
    """
    return choose_kernel("cpu").engine == "cpp" and _is_right(operation, self_check)


def uses_triton(device: str, operation: str, self_check: Callable[[str], str]) -> bool:
    """Return True if the Triton kernel of another operation is used on a device type: with the Triton scan.

    `self_check` takes the device type and returns a fault or an empty string; it runs once per process.
    Raises ConfigError for a fault: PyTorch operations would take many times as long.
    """
    if choose_kernel(device).engine != "triton":
        return False
    if fault := _find_triton_fault(device, operation, self_check):
        raise ConfigError(
            f"the Triton {operation} cannot be used on {device}: {fault}; --scan torch does without"
        )
    return True


@cache
def _find_triton_fault(device: str, operation: str, self_check: Callable[[str], str]) -> str:
    del operation
    if device == "cpu":  # interpreted: for tests alone, and too slow for a check
        return ""
    fault = call_isolated(self_check, device)
    return explain_triton_fault(fault) if fault else ""


@cache
def _is_right(operation: str, self_check: Callable[[], str]) -> bool:
    if fault := call_isolated(self_check):
        warnings.warn(f"the C++ {operation} is not used: {fault}", RuntimeWarning, stacklevel=6)
    return not fault


@cache
def _choose(device: str, name: str) -> KernelChoice:
    if name != "auto":
        if fault := find_fault(KERNELS[name], device):
            raise ConfigError(f"the scan kernel {name} cannot be used: {fault}")
        return KernelChoice(name, KERNELS[name].label(), {})
    passed_over: dict[str, str] = {}
    for kernel in map(KERNELS.__getitem__, AUTOMATIC.get(device, ("torch", "reference"))):
        fault = find_fault(kernel, device)
        if not fault:
            return KernelChoice(kernel.engine, kernel.label(), passed_over)
        passed_over[kernel.engine] = fault
    reasons = "; ".join(f"{engine}: {fault}" for engine, fault in passed_over.items())
    raise ConfigError(
        f"no fast scan can be used on {device} ({reasons}); --scan torch computes the same, many times slower"
    )


def find_fault(kernel: Kernel, device: str) -> str:
    """Return the reason that a kernel cannot be used, or an empty string; warn if its results are wrong."""
    if missing := kernel.missing(device):
        return missing
    if kernel.engine == "reference" or _is_interpreted(kernel, device):
        return ""
    if fault := call_isolated(check_kernel, kernel, device):
        if device == "cuda":  # no other kernel takes its place, so that the error says it all
            return explain_triton_fault(fault) if kernel.engine == "triton" else f"it is wrong here: {fault}"
        warnings.warn(f"the {kernel.label()} scan is not used: {fault}", RuntimeWarning, stacklevel=4)
        return f"it is wrong here: {fault}"
    return ""


def explain_triton_fault(fault: str) -> str:
    """Return the fault of a Triton kernel with what it lacks, if that is known."""
    lacking = launch.find_lacking()
    return f"{lacking} ({fault})" if lacking else f"it is wrong here: {fault}"


def _is_interpreted(kernel: Kernel, device: str) -> bool:
    """Return True if the kernel is interpreted on the device: only for tests, too slow for anything else."""
    return kernel.engine == "triton" and device == "cpu"


def check_kernel(kernel: Kernel, device: str = "cpu") -> str:
    """Return the first wrong output or gradient of a kernel on two problems, or an empty string.

    One mixes two streams of an odd number of channels, the other has one stream, no mixer, and is large
    enough for several threads. Both have slow decays over many spans of steps, because a fast decay hides a
    fault in the carried state. The small one is discretised in both ways.
    """
    small, large = make_problem(2, 37, 2, 19, 5, mixed=True), make_problem(2, 100, 1, 144, 16, mixed=False)
    return (
        _check_problem(kernel, small, device, "euler")
        or _check_problem(kernel, small, device, "raw")
        or _check_problem(kernel, large, device, "euler")
    )


def _check_problem(
    kernel: Kernel, arguments: list[Tensor], device: str, discretisation: Discretisation
) -> str:
    missing = [None] * (len(NAMES) - 1 - len(arguments))
    on_device = [x.to(device) for x in arguments]
    return find_difference(
        lambda *x: kernel.scan((*x, *missing), scaled=discretisation == "euler"),
        partial(selective_scan_reference, discretisation=discretisation),
        on_device,
        NAMES,
    )


def find_difference(
    kernel: Callable[..., Tensor],
    reference: Callable[..., Tensor],
    arguments: Sequence[Tensor],
    names: Sequence[str],
) -> str:
    """Return a message about the first wrong output or gradient of `kernel`, by `names`, or an empty string.

    The expected values are those of `reference` in double precision.
    """
    try:
        found = _output_and_gradients(kernel, arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    double = [x.cpu().to(torch.promote_types(x.dtype, torch.float64)) for x in arguments]
    expected = _output_and_gradients(reference, double)
    for name, one, truth in zip(names, found, expected, strict=False):
        distance = float((one.cpu() - truth).abs().max() / truth.abs().max())
        if not distance < TOLERANCE:
            return f"its {name} is off by {distance:.1e}"
    return ""


def make_problem(b: int, length: int, m: int, d: int, n: int, *, mixed: bool) -> list[Tensor]:
    """Return u, dt, A, B, C, skip and, if `mixed`, mix: fixed values; global generators are unchanged."""
    source = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=source)

    dt, A = normal(b, length, m, d).abs() * 0.1, -normal(m, d, n).abs()
    u, B, C = normal(b, length, m, d), normal(b, length, m, n), normal(b, length, m, n)
    return [u, dt, A, B, C, normal(m, d), *([normal(b, length, m)] if mixed else [])]


def _output_and_gradients(function: Callable[..., Tensor], arguments: Sequence[Tensor]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in arguments]
    output = function(*leaves)
    output = torch.view_as_real(output) if output.is_complex() else output
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype, device=output.device)
    gradients = torch.autograd.grad((output * weights.view(output.shape)).sum(), leaves)
    return [output.detach(), *gradients]
