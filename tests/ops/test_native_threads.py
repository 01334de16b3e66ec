"""The C++ kernels run in PyTorch's threads, or, where it has none to share, in their own."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from msbench.ops import native_threads, scan_native, scan_operator

pytestmark = pytest.mark.skipif(scan_native.library() is None, reason="the C++ kernels were not built")


@pytest.fixture
def lib() -> Iterator[ctypes.CDLL]:
    found = scan_native.library()
    assert found is not None
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield found
    torch.set_num_threads(threads)
    found.msbench_share_threads(*native_threads.runtime())


def scanned() -> list[Tensor]:
    """Output and gradients of a scan that is large enough for three threads."""
    source = torch.Generator().manual_seed(0)
    u, B, C = (torch.randn(3, 100, 2, size, generator=source, requires_grad=True) for size in (40, 30, 30))
    dt = (torch.rand(3, 100, 2, 40, generator=source) / 10).requires_grad_()
    A = (-1 - torch.rand(2, 40, 30, generator=source)).requires_grad_()
    assert u.numel() * 30 >= 3 * 200_000
    y = scan_operator.apply("cpp", (u, dt, A, B, C, None, None), scaled=True)
    return [y.detach(), *torch.autograd.grad(y.sum(), (u, dt, A, B, C))]


@pytest.mark.skipif(sys.platform != "linux", reason="where PyTorch's runtime has these functions")
def test_the_runtime_of_pytorch_is_found() -> None:
    assert all(native_threads.runtime())
    assert native_threads.described() == "PyTorch's"


def test_bits_do_not_depend_on_whose_threads_they_are(lib: ctypes.CDLL) -> None:
    shared = scanned()
    native_threads.keep_apart(lib)
    assert all(torch.equal(x, y) for x, y in zip(scanned(), shared, strict=True))


def test_a_team_is_asked_for_whole_and_may_come_in_part(lib: ctypes.CDLL) -> None:
    """A runtime has a team of five here, and gives some of its members the same call one after another."""
    expected, asked, member = scanned(), [], [0]
    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def in_turn(call: Callable[[int], None], data: int, threads: int, flags: int) -> None:
        asked.append((threads, flags))
        for member[0] in (4, 2, 0):
            call(data)

    parallel = ctypes.CFUNCTYPE(None, body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(in_turn)
    number = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: member[0])
    most = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 5)
    lib.msbench_share_threads(*(ctypes.cast(x, ctypes.c_void_p).value for x in (parallel, number, most)))
    found = scanned()
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
    assert set(asked) == {(5, 0)}
    assert len(asked) >= 2  # forward and backward


def test_no_runtime_is_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    search = native_threads.runtime.__wrapped__
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert search() == native_threads.NONE


def test_a_library_without_the_functions_is_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "lib/libtorch_cpu.so"
    library.parent.mkdir()
    found = scan_native.library()
    assert found is not None
    library.symlink_to(found._name)
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert native_threads.runtime.__wrapped__() == native_threads.NONE


FORKS = """
import os, sys, warnings
import torch
from tests.ops.test_native_threads import scanned

torch.set_num_threads(3)
here = [x.numpy().tobytes() for x in scanned()]
warnings.simplefilter("ignore", DeprecationWarning)  # of forks while there are threads
child = os.fork()
if child == 0:
    os._exit(0 if [x.numpy().tobytes() for x in scanned()] == here else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_does_not_wait_for_threads_that_are_not_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
