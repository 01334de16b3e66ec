"""The C++ kernels around the scan against PyTorch operations: every gradient, any width, any thread count."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from msbench.errors import ConfigError
from msbench.ops import causal_conv, decompose, layer_kernels, layers_native, scan_native
from msbench.ops.masked_norm import frozen_batch_norm, masked_batch_norm

needs_native = pytest.mark.skipif(scan_native.library() is None, reason="built without a C++ compiler")
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
    assert layer_kernels.native_for(arguments[0])
    found = results((function, arguments))
    monkeypatch.setenv("MSBENCH_SCAN", "torch")
    assert not layer_kernels.native_for(arguments[0])
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


@pytest.mark.parametrize("instructions", [1, 2, 3])
def test_every_instruction_set_passes_the_check(instructions: int) -> None:
    assert layer_kernels.self_check(layers_native.NativeLayerEngine(instructions)) == ""


@pytest.mark.parametrize("what", ["forward", "norm_statistics"])
def test_the_check_sees_a_wrong_kernel(what: str) -> None:
    class Wrong(layers_native.NativeLayerEngine):
        pass

    def wrong(self: Any, *arguments: Any) -> Any:
        first, *rest = getattr(layers_native.NativeLayerEngine, what)(self, *arguments)
        return (first * 1.001, *rest)

    setattr(Wrong, what, wrong)
    assert "off by" in layer_kernels.self_check(Wrong())


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
    y, mean, var = masked_batch_norm(x, mask, torch.ones(5).double(), torch.zeros(5).double(), zero=True)
    real = torch.cat([x[0], x[1, :20]])
    torch.testing.assert_close(mean, real.mean(0))
    torch.testing.assert_close(var, real.var(0, unbiased=False))
    assert not y[1, 20:].any()
    with torch.no_grad():
        frozen = frozen_batch_norm(x, mask, torch.ones(5).double(), torch.zeros(5).double(), mean, var)
    torch.testing.assert_close(frozen * mask, y)


def test_empty_batches_and_unknown_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decompose(normal(0, 5, 3), normal(2, 2, 4, 3)).shape == (0, 5, 4, 3)
    monkeypatch.setenv("MSBENCH_SCAN", "fast")
    with pytest.raises(ConfigError, match="unknown scan kernel"):
        decompose(normal(1, 5, 3), normal(2, 2, 4, 3))
