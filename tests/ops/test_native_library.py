"""The C++ kernels run in PyTorch's threads, or in their own, and reuse large blocks of memory."""

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from msbench.analysis.benchmarks.measurement import explain_no_peak, measure_peak
from msbench.ops import native_library
from msbench.ops.scan import engines
from msbench.ops.scan.dispatch import selective_scan

built = pytest.mark.skipif(native_library.load_library() is None, reason="the C++ kernels were not built")

FLOATS = native_library.LARGE // 4
LIKE = torch.empty(0)


@pytest.fixture
def lib() -> Iterator[ctypes.CDLL]:
    found = native_library.load_library()
    assert found is not None
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield found
    torch.set_num_threads(threads)
    found.msbench_share_threads(*native_library.find_runtime())


def scanned() -> list[Tensor]:
    """Output and gradients of a scan that is large enough for three threads."""
    source = torch.Generator().manual_seed(0)
    u, B, C = (torch.randn(3, 100, 2, size, generator=source, requires_grad=True) for size in (40, 30, 30))
    dt = (torch.rand(3, 100, 2, 40, generator=source) / 10).requires_grad_()
    A = (-1 - torch.rand(2, 40, 30, generator=source)).requires_grad_()
    assert u.numel() * 30 >= 3 * 200_000
    y = engines.run_engine("cpp", (u, dt, A, B, C, None, None), scaled=True)
    return [y.detach(), *torch.autograd.grad(y.sum(), (u, dt, A, B, C))]


@pytest.mark.skipif(sys.platform != "linux", reason="where PyTorch's runtime has these functions")
@built
def test_the_runtime_of_pytorch_is_found() -> None:
    assert all(native_library.find_runtime())
    assert native_library.describe_threads() == "PyTorch's"


@built
def test_bits_do_not_depend_on_whose_threads_they_are(lib: ctypes.CDLL) -> None:
    shared = scanned()
    native_library.separate_threads(lib)
    assert all(torch.equal(x, y) for x, y in zip(scanned(), shared, strict=True))


@built
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
    search = native_library.find_runtime.__wrapped__
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert search() == native_library.NO_RUNTIME


@built
def test_a_library_without_the_functions_is_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "lib/libtorch_cpu.so"
    library.parent.mkdir()
    found = native_library.load_library()
    assert found is not None
    library.symlink_to(found._name)
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert native_library.find_runtime.__wrapped__() == native_library.NO_RUNTIME


FORKS = """
import os, sys, warnings
import torch
from tests.ops.test_native_library import scanned

torch.set_num_threads(3)
here = [x.numpy().tobytes() for x in scanned()]
warnings.simplefilter("ignore", DeprecationWarning)  # of forks while there are threads
child = os.fork()
if child == 0:
    os._exit(0 if [x.numpy().tobytes() for x in scanned()] == here else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@built
def test_a_forked_process_does_not_wait_for_threads_that_are_not_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(autouse=True)
def _nothing_waits() -> Iterator[None]:
    gc.collect()
    native_library.release_unused_blocks()
    yield
    native_library.release_unused_blocks()


def waiting() -> int:
    return sum(len(blocks) for blocks in native_library._idle.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 100, FLOATS, FLOATS + 3])
def test_a_vector_of_the_type_and_size_starts_on_a_border(dtype: torch.dtype, size: int) -> None:
    vector = native_library.allocate(torch.empty(3, dtype=dtype), size)
    assert (vector.dtype, vector.shape, vector.device.type) == (dtype, (size,), "cpu")
    assert vector.data_ptr() % native_library.LINE == 0
    assert vector.fill_(2).eq(2).all()


def test_a_block_is_used_again() -> None:
    vector = native_library.allocate(LIKE, FLOATS)
    address = vector.data_ptr()
    del vector
    assert waiting() == 1
    again = native_library.allocate(LIKE, FLOATS)
    assert again.data_ptr() == address
    assert waiting() == 0


def test_a_block_is_not_used_again_while_a_tensor_shares_its_storage() -> None:
    vector = native_library.allocate(LIKE, FLOATS).fill_(1)
    part = vector.detach()[7:9]
    del vector
    other = native_library.allocate(LIKE, FLOATS).fill_(5)
    assert other.data_ptr() != part.data_ptr() - 28
    assert part.tolist() == [1, 1]
    del part
    assert waiting() == 1


def test_what_waits_in_vain_goes_back() -> None:
    blocks = [native_library.allocate(LIKE, FLOATS) for _ in range(2)]
    del blocks
    assert waiting() == 2
    larger = native_library.allocate(LIKE, FLOATS + 1)
    assert waiting() == 0
    del larger
    assert waiting() == 1


def test_two_sizes_in_turn_are_both_kept() -> None:
    def step() -> list[int]:
        pair = [native_library.allocate(LIKE, FLOATS), native_library.allocate(LIKE, FLOATS + 1)]
        assert waiting() == 0
        return [x.data_ptr() for x in pair]

    first = step()
    assert waiting() == 2
    assert step() == first
    assert waiting() == 2


def test_small_ones_are_left_to_malloc() -> None:
    native_library.allocate(LIKE, FLOATS - 1)
    assert waiting() == 0


def arguments() -> tuple[torch.Tensor, ...]:
    source = torch.Generator().manual_seed(1)
    b, length, m, d, n = 2, 160, 2, 64, 16
    u, dt, B, C = (torch.rand(b, length, m, last, generator=source).requires_grad_() for last in (d, d, n, n))
    return u, dt, -torch.arange(1.0, n + 1).expand(m, d, n).contiguous().requires_grad_(), B, C


def gradients(given: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return list(torch.autograd.grad(selective_scan(*given).square().sum(), given))


@built
def test_graphs_that_live_side_by_side_do_not_share_what_they_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MSBENCH_SCAN", raising=False)
    monkeypatch.setattr(native_library, "LARGE", 1024)
    first, second = arguments(), tuple((2 * x).detach().requires_grad_() for x in arguments())
    expected = [gradients(given) for given in (first, second)]
    assert waiting() == 1
    outputs = [selective_scan(*given) for given in (first, second)]
    assert waiting() == 0
    for given, output, found in zip((first, second), outputs, expected, strict=True):
        for x, y in zip(torch.autograd.grad(output.square().sum(), given), found, strict=True):
            assert torch.equal(x, y)
    del outputs, output
    assert waiting() == 2


@pytest.mark.skipif(bool(explain_no_peak()), reason="no peak on this system")
def test_a_peak_counts_what_waited() -> None:
    size = 16 * FLOATS
    del_me = native_library.allocate(LIKE, size).fill_(1)
    del del_me
    peak, _ = measure_peak(lambda: native_library.allocate(LIKE, size).fill_(1).sum(), "cpu")
    assert peak.bytes is not None
    assert peak.bytes > 0.9 * 4 * size
