"""The choice of a kernel: one that computes something else is not used, and the record says what ran."""

import ctypes.util
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from msbench.cli.measure import describe_machine
from msbench.errors import ConfigError
from msbench.ops import native_library
from msbench.ops.gpu import launch
from msbench.ops.scan import dispatch, native_engine
from msbench.ops.scan.dispatch import (
    Kernel,
    check_kernel,
    choose_kernel,
    force_kernel,
    kernel_name,
    selective_scan,
)

built = pytest.mark.skipif(
    native_library.load_library() is None, reason="msbench was installed without a C++ compiler"
)
TORCH = dispatch.KERNELS["torch"]


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    dispatch._choose.cache_clear()
    yield
    dispatch._choose.cache_clear()


def kernel(scan: Callable[..., Any]) -> Kernel:
    return Kernel("cpp", scan, lambda _device: "", lambda: "cpp-test")


def twisted(name: str) -> Kernel:
    """A kernel whose output is right and whose gradient of one argument is not."""

    def scan(arguments: tuple[Tensor, ...], *, scaled: bool) -> Tensor:
        position = ("u", "dt", "A", "B", "C", "skip", "mix").index(name)
        changed = list(arguments)
        x = changed[position]
        if x is None:
            return TORCH.scan(arguments, scaled=scaled)
        changed[position] = x.detach() + (x - x.detach()) * 1.01
        return TORCH.scan(tuple(changed), scaled=scaled)

    return kernel(scan)


def test_the_kernels_pass_and_faults_are_named() -> None:
    assert check_kernel(TORCH) == ""
    for name in ("u", "dt", "A", "B", "C", "skip", "mix"):
        assert check_kernel(twisted(name)).startswith(f"its {name} is off by")


def test_the_check_leaves_the_generators_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    check_kernel(TORCH)
    assert torch.equal(torch.rand(2), expected)


def test_a_fault_of_large_unmixed_problems_is_seen_too() -> None:
    def scan(arguments: tuple[Tensor, ...], *, scaled: bool) -> Tensor:
        y = TORCH.scan(arguments, scaled=scaled)
        return y if y.numel() < 10_000 else y * 1.01

    assert check_kernel(kernel(scan)).startswith("its output is off by 1.0e-02")


@built
def test_a_kernel_that_raises_or_lies_is_not_used_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "auto")
    for broken in (lambda *_, **__: 1 / 0, lambda x, **_: x[0] * 0.0):
        dispatch._choose.cache_clear()
        monkeypatch.setitem(dispatch.KERNELS, "cpp", kernel(broken))
        with pytest.warns(RuntimeWarning, match="the cpp-test scan is not used") as caught:
            assert kernel_name("cpu") == "torch-chunked"
        assert len(caught) == 1
        assert "it is wrong here" in choose_kernel("cpu").passed_over["cpp"]  # warned once


def test_a_kernel_that_ignores_the_discretisation_is_found() -> None:
    wrong = kernel(lambda arguments, **_: TORCH.scan(arguments, scaled=True))
    assert "is off by" in check_kernel(wrong)


def test_without_a_right_kernel_the_reference_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "auto")
    for name in ("cpp", "torch"):
        wrong = replace(dispatch.KERNELS[name], scan=lambda x, **_: x[0] * 0.0, missing=lambda _device: "")
        monkeypatch.setitem(dispatch.KERNELS, name, wrong)
    with pytest.warns(RuntimeWarning, match="is not used"):
        chosen = choose_kernel("cpu")
    assert (chosen.engine, chosen.label) == ("reference", "torch-loop")
    assert set(chosen.passed_over) == {"cpp", "torch"}


def test_without_a_compiler_the_reference_path_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "auto")
    monkeypatch.setattr(native_library, "load_library", lambda: None)
    assert kernel_name("cpu") == "torch-chunked"
    found = dict(describe_machine())
    assert found["scan on cpu"] == "torch-chunked"
    assert "without a C++ compiler" in found["not cpp on cpu"]
    assert "install" in found["not cpp on cpu"]
    monkeypatch.setenv("MSBENCH_SCAN", "cpp")
    with pytest.raises(ConfigError, match="without a C\\+\\+ compiler"):
        kernel_name("cpu")


@built
def test_a_library_that_cannot_be_loaded_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "_native.so").write_bytes(b"no library")
    spec = ModuleSpec(native_library.MODULE, None, origin=str(tmp_path / "_native.so"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)
    monkeypatch.setattr(native_library, "_open_library", native_library._open_library.__wrapped__)
    with pytest.warns(RuntimeWarning, match="the C\\+\\+ kernels are not used: .*_native.so"):
        assert native_library.load_library.__wrapped__() is None
    assert "cannot be loaded: " in dispatch.KERNELS["cpp"].missing("cpu")


@built
def test_a_library_of_an_older_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an update of a checkout installed in place. Any other library lacks what is new too."""
    other = ctypes.util.find_library("m")
    if other is None:
        pytest.skip("no other library is known here")
    spec = ModuleSpec(native_library.MODULE, None, origin=other)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)
    monkeypatch.setattr(native_library, "_open_library", native_library._open_library.__wrapped__)
    with pytest.warns(RuntimeWarning, match="not used: .* built from an older msbench: install it again"):
        assert native_library.load_library.__wrapped__() is None


def test_a_forced_kernel_is_checked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "auto")  # put back afterwards
    force_kernel("torch", "cpu")
    assert kernel_name("cpu") == "torch-chunked"
    assert dict(describe_machine())["scan on cpu"] == "torch-chunked, forced by MSBENCH_SCAN"
    with pytest.raises(ConfigError, match="mamba-ssm does not run on cpu"):
        force_kernel("mamba-ssm", "cpu")
    monkeypatch.setitem(dispatch.KERNELS, "cpp", kernel(lambda x, **_: x[0] * 0.0))
    with (
        pytest.warns(RuntimeWarning, match="not used"),
        pytest.raises(ConfigError, match="it is wrong here: RuntimeError"),
    ):
        force_kernel("cpp", "cpu")


def test_doctor_goes_on_where_the_forced_kernel_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "mamba-ssm")
    assert dict(describe_machine())["scan on cpu"].startswith(
        "none: the scan kernel mamba-ssm cannot be used"
    )
    monkeypatch.setenv("MSBENCH_SCAN", "")
    assert dict(describe_machine())["scan on cpu"] == kernel_name("cpu")


def test_an_unknown_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "fast")
    with pytest.raises(ConfigError, match=r"MSBENCH_SCAN.*fast.*auto, cpp, .*torch"):
        selective_scan(*dispatch.make_problem(1, 3, 1, 2, 2, mixed=True))


@built
def test_the_best_instructions_of_this_processor_are_used() -> None:
    name = native_engine.describe_kernel()
    assert name is not None
    capability = torch.backends.cpu.get_cpu_capability()
    expected = {"AVX512": "cpp-avx512", "AVX2": "cpp-avx2"}.get(capability)
    assert expected is None or name == expected


@built
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 300, 1, 300, 7), (5, 130, 3, 40, 9)])
def test_any_number_of_threads_gives_the_same_bits(
    threads: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "cpp")
    b, length, m, d, n = shape
    source = torch.Generator().manual_seed(1)
    leaves = [
        torch.randn(size, generator=source)
        for size in (
            (b, length, m, d),
            (b, length, m, d),
            (m, d, n),
            (b, length, m, n),
            (b, length, m, n),
            (m, d),
        )
    ]
    leaves[1], leaves[2] = leaves[1].abs() * 0.1, -leaves[2].abs() * 5

    def run(count: int) -> list[Tensor]:
        monkeypatch.setattr(torch, "get_num_threads", lambda: count)
        inputs = [x.clone().requires_grad_() for x in leaves]
        y = selective_scan(*inputs)
        return [y, *torch.autograd.grad(y.square().sum(), inputs)]

    assert all(torch.equal(one, other) for one, other in zip(run(1), run(threads), strict=True))


class TestOnAGpu:
    """A device type `cuda` whose Triton scan is not right."""

    @pytest.fixture(autouse=True)
    def fresh(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("MSBENCH_SCAN", "auto")
        dispatch._choose.cache_clear()
        yield
        dispatch._choose.cache_clear()

    def test_nothing_slower_takes_its_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatch, "check_kernel", lambda *_: "its output is off by 1.0e+00")
        monkeypatch.setattr(launch, "find_lacking", lambda: "")
        broken = replace(dispatch.KERNELS["triton"], missing=lambda _device: "")
        monkeypatch.setitem(dispatch.KERNELS, "triton", broken)
        with pytest.raises(ConfigError, match=r"triton: it is wrong here: its output is off.*--scan torch"):
            choose_kernel("cuda")

    def test_what_a_compilation_lacks_comes_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatch, "check_kernel", lambda *_: "CalledProcessError: gcc")
        monkeypatch.setattr(launch, "find_lacking", lambda: "there is no Python.h")
        broken = replace(dispatch.KERNELS["triton"], missing=lambda _device: "")
        monkeypatch.setitem(dispatch.KERNELS, "triton", broken)
        with pytest.raises(ConfigError, match=r"triton: there is no Python.h \(CalledProcessError: gcc\)"):
            choose_kernel("cuda")

    def test_an_old_gpu_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("triton")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (6, 1))
        with pytest.raises(ConfigError, match=r"a GPU of compute capability 7.0, this has \(6, 1\)"):
            choose_kernel("cuda")
