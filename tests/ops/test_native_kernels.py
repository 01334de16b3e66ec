"""The C++ kernels next to the scan: every gradient, any width, any thread count, any instruction set.

What is wrong is not used.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from msbench.errors import ConfigError
from msbench.ops import batch_norm, native_library
from msbench.ops.batch_norm import (
    check_native_norm,
    frozen_batch_norm,
    is_norm_native,
    masked_batch_norm,
)
from msbench.ops.filters import ENGINES as BANKS
from msbench.ops.filters import NativeBankEngine, causal_conv, check_native_bank, decompose, is_bank_native
from msbench.ops.linear_scan import ENGINES as RECURRENCES
from msbench.ops.linear_scan import (
    NativeLinearEngine,
    check_native_linear_scan,
    is_linear_native,
    linear_scan,
)
from msbench.ops.lti_scan import ENGINES as SYSTEMS
from msbench.ops.lti_scan import NativeLtiEngine, check_native_lti_scan, is_lti_native, lti_scan
from msbench.ops.scan import dispatch

needs_native = pytest.mark.skipif(
    native_library.load_library() is None, reason="built without a C++ compiler"
)
pytestmark = needs_native


@pytest.fixture(autouse=True)
def _native(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The C++ kernels, whatever the environment asks for, and threads that are put back."""
    monkeypatch.delenv("MSBENCH_SCAN", raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def normal(*size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(size, generator=GENERATOR, dtype=torch.float64).to(dtype)


GENERATOR = torch.Generator().manual_seed(7)
Case = tuple[Callable[..., Tensor], list[Tensor]]


def bank(b: int, length: int, d: int, levels: int, k: int, dtype: torch.dtype) -> Case:
    return decompose, [
        normal(*size, dtype=dtype) for size in ((b, length, d), (levels, 2, k, d), (levels, 2, d))
    ]


def conv(b: int, length: int, d: int, k: int, dtype: torch.dtype, dilation: int = 1) -> Case:
    sizes = (b, length, d), (d, k), (d,)
    return lambda x, w, c: causal_conv(x, w, c, dilation), [normal(*size, dtype=dtype) for size in sizes]


def norm(b: int, length: int, d: int, dtype: torch.dtype, *, zero: bool) -> Case:
    mask = torch.arange(length) < torch.tensor([length, *[1 + length // 2] * (b - 1)]).unsqueeze(1)
    real = mask.unsqueeze(2).to(dtype)
    arguments = [3 + normal(b, length, d, dtype=dtype), normal(d, dtype=dtype), normal(d, dtype=dtype)]
    return lambda x, w, c: masked_batch_norm(x, real, w, c, zero=zero)[0], arguments


def cases(dtype: torch.dtype) -> dict[str, Case]:
    return {
        "bank": bank(2, 200, 21, 3, 4, dtype),
        "bank of one step": bank(2, 1, 5, 3, 4, dtype),
        "bank shorter than its filters": bank(3, 7, 16, 4, 3, dtype),
        "bank, many levels": bank(1, 300, 3, 8, 2, dtype),
        "bank, one level, many taps": bank(2, 130, 37, 1, 9, dtype),
        "bank, one tap": bank(2, 70, 17, 2, 1, dtype),
        "convolution": conv(2, 150, 33, 4, dtype),
        "convolution, dilated beyond the signal": conv(2, 9, 4, 5, dtype, dilation=4),
        "norm": norm(3, 200, 37, dtype, zero=False),
        "norm with zeros": norm(2, 333, 16, dtype, zero=True),
    }


NAMES = list(cases(torch.float64))


def results(case: Case) -> list[Tensor]:
    function, arguments = case
    leaves = [x.clone().requires_grad_() for x in arguments]
    out = function(*leaves)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).sin().view(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-5)])
def test_equals_torch(
    name: str, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, arguments = cases(dtype)[name]
    assert is_bank_native()
    assert is_norm_native()
    assert native_library.is_supported(arguments[0])
    found = results((function, arguments))
    monkeypatch.setenv("MSBENCH_SCAN", "torch")
    assert not is_bank_native()
    assert not is_norm_native()
    # The norm's case has its mask in the dtype under test.
    exact = dtype == torch.float32 and not name.startswith("norm")
    expected = results((function, [x.double() for x in arguments] if exact else arguments))
    for one, truth in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert (one - truth).abs().max() <= tolerance * truth.abs().max().clamp(min=1e-3)


LARGE = {  # several threads start from 50,000 elements each
    "bank": bank(8, 400, 40, 3, 4, torch.float32),
    "convolution": conv(8, 600, 40, 4, torch.float32),
    "norm": norm(4, 1000, 40, torch.float32, zero=True),
}


@pytest.mark.parametrize("name", LARGE)
def test_bits_do_not_depend_on_threads_or_runs(name: str) -> None:
    runs = []
    for threads in (1, 2, 3, 2):
        torch.set_num_threads(threads)
        runs.append(results(LARGE[name]))
    for other in runs[1:]:
        assert all(torch.equal(one, two) for one, two in zip(runs[0], other, strict=True))


CHECKS = {
    "bank": check_native_bank,
    "norm": check_native_norm,
    "linear": check_native_linear_scan,
    "lti": check_native_lti_scan,
}


@pytest.mark.parametrize("instructions", [1, 2, 3])
@pytest.mark.parametrize("name", CHECKS)
def test_every_instruction_set_passes_the_check(
    name: str, instructions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "instructions", instructions)
    assert CHECKS[name]() == ""


@pytest.mark.parametrize("instructions", [1, 2, 3])
@pytest.mark.parametrize("rate", [1e-6, 9e-4, 1.1e-3, 0.02])
def test_every_instruction_set_keeps_slow_decays(
    instructions: int, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = torch.Generator().manual_seed(0)
    u, weight = torch.rand(1, 16_384, 1, 19, generator=source), torch.ones(1, 19, 3)
    log_decay = -rate * torch.tensor([1.0, 2.0, 300.0]).expand(1, 19, 3)
    truth = lti_scan(u.double(), log_decay.double(), weight.double())
    monkeypatch.setattr(native_library, "instructions", instructions)
    out, _ = NativeLtiEngine().forward((u, log_decay, weight, None, None), keep=False)
    assert float((out - truth).abs().max() / truth.abs().max()) < 3e-6


@pytest.mark.parametrize("part", ["output", "x", "taps", "bias"])
def test_the_check_sees_a_wrong_bank(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(NativeBankEngine):
        def forward(self, *arguments: Any) -> Any:
            out, kept = super().forward(*arguments)
            return out * (1.001 if part == "output" else 1), kept

        def backward(self, *arguments: Any) -> Any:
            found = zip(("x", "taps", "bias"), super().backward(*arguments), strict=True)
            return tuple(x * (1.001 if part == name else 1) for name, x in found)

    monkeypatch.setitem(BANKS, "cpp", Wrong())
    assert check_native_bank().startswith(f"its {part} is off by")


@pytest.mark.parametrize(
    ("function", "position", "part"),
    [
        ("norm_statistics", 0, "output"),
        ("norm_statistics", 1, "output"),
        ("norm_forward", 2, "output"),
        ("norm_backward", 3, "x"),
        ("norm_backward", 4, "weight"),
        ("norm_backward", 5, "bias"),
    ],
)
def test_the_check_sees_a_wrong_norm(
    function: str, position: int, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = batch_norm.call_native

    def call(name: str, tensors: Any, zero: bool, *more: Tensor) -> None:
        right(name, tensors, zero, *more)
        if name == function:
            more[position].mul_(1.001)

    monkeypatch.setattr(batch_norm, "call_native", call)
    assert check_native_norm().startswith(f"its {part} is off by")


@pytest.mark.parametrize("part", ["output", "a", "x"])
def test_the_check_sees_a_wrong_linear_scan(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(NativeLinearEngine):
        def forward(self, a: Tensor, x: Tensor) -> Tensor:
            return super().forward(a, x) * (1.001 if part == "output" else 1)

        def backward(self, gh: Tensor, a: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            ga, gx = super().backward(gh, a, h)
            return ga * (1.001 if part == "a" else 1), gx * (1.001 if part == "x" else 1)

    monkeypatch.setitem(RECURRENCES, "cpp", Wrong())
    assert check_native_linear_scan().startswith(f"its {part} is off by")


@pytest.mark.parametrize("position", range(6))
def test_the_check_sees_a_wrong_lti_scan(position: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(NativeLtiEngine):
        def forward(self, tensors: Any, *, keep: bool) -> tuple[Tensor, Tensor]:
            out, kept = super().forward(tensors, keep=keep)
            return out * (1.001 if position == 0 else 1), kept

        def backward(self, gout: Tensor, tensors: Any, kept: Tensor) -> Any:
            found = super().backward(gout, tensors, kept)
            return tuple(x if x is None or i + 1 != position else x * 1.001 for i, x in enumerate(found))

    monkeypatch.setitem(SYSTEMS, "cpp", Wrong())
    part = ("output", "u", "log_decay", "weight", "skip", "mix")[position]
    assert check_native_lti_scan().startswith(f"its {part} is off by")


def test_wrong_kernels_are_not_used_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECURRENCES, "cpp", None)  # what fails is wrong as well
    dispatch._is_right.cache_clear()
    with pytest.warns(RuntimeWarning, match="the C\\+\\+ linear scan is not used: AttributeError") as caught:
        h = linear_scan(torch.ones(1), torch.ones(1, 3, 1))
    assert h.flatten().tolist() == [1, 2, 3]
    assert not is_linear_native()
    assert len(caught) == 1
    assert is_lti_native()
    dispatch._is_right.cache_clear()


def test_the_environment_decides_for_all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, native in (("torch", False), ("cpp", True)):
        monkeypatch.setenv("MSBENCH_SCAN", name)
        for check in (is_bank_native, is_norm_native, is_linear_native, is_lti_native):
            assert check() == native


def test_layers_take_real_numbers_on_the_cpu() -> None:
    assert native_library.is_supported(torch.ones(1))
    assert not native_library.is_supported(torch.ones(1, dtype=torch.complex64))
    assert not native_library.is_supported(torch.ones(1, dtype=torch.bfloat16))
    assert not native_library.is_supported(torch.ones(0))


def test_half_of_a_projection_is_read_in_place() -> None:
    filters = normal(3, 2, 4, 16)
    whole = normal(2, 90, 32)
    torch.testing.assert_close(
        decompose(whole[..., 16:], filters), decompose(whole[..., 16:].contiguous(), filters), rtol=0, atol=0
    )


def test_padding_does_not_enter_the_statistics() -> None:
    x, mask = normal(2, 40, 5), torch.ones(2, 40, 1, dtype=torch.float64)
    mask[1, 20:] = 0
    x[1, 20:] = 1e6
    y, moments = masked_batch_norm(x, mask, torch.ones(5).double(), torch.zeros(5).double(), zero=True)
    mean, var, count = moments
    real = torch.cat([x[0], x[1, :20]])
    torch.testing.assert_close(mean, real.mean(0))
    torch.testing.assert_close(var, real.var(0, unbiased=False))
    assert count == 60
    assert not y[1, 20:].any()
    with torch.no_grad():
        frozen = frozen_batch_norm(x, mask, torch.ones(5).double(), torch.zeros(5).double(), mean, var)
    torch.testing.assert_close(frozen * mask, y)


def test_empty_batches_and_unknown_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decompose(normal(0, 5, 3), normal(2, 2, 4, 3)).shape == (0, 5, 4, 3)
    monkeypatch.setenv("MSBENCH_SCAN", "fast")
    with pytest.raises(ConfigError, match="unknown scan kernel"):
        decompose(normal(1, 5, 3), normal(2, 2, 4, 3))
