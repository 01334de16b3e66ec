"""The Triton filter bank against PyTorch operations in float64, interpreted."""

from collections.abc import Sequence

import pytest
import torch
from bank_launches import SUITES, describe_launches
from interpreted_kernels import prepare_interpreter
from torch import Tensor

from msbench.ops import filters
from msbench.ops.filters import apply_bank
from msbench.ops.gpu import bank
from msbench.ops.gpu.bank import SPANS, TritonBankEngine, choose_span, group_levels
from msbench.ops.gpu.launch import find_missing

pytestmark = pytest.mark.skipif(bool(find_missing("cpu")), reason=find_missing("cpu") or "interpreted")

NAMES = ("streams", "x", "taps", "bias")
SPAN = SPANS[-1]
"""Steps of a program for small problems."""


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_interpreter(monkeypatch, [bank.KERNELS])


def arguments(
    b: int, length: int, d: int, levels: int, k: int, *, sides: int = 2, biased: bool = True
) -> list[Tensor]:
    """x, taps and, if `biased`, the bias, in float32."""
    generator = torch.Generator().manual_seed(length + 10 * k + levels)
    shapes = [(b, length, d), (levels, sides, k, d), *([(levels, sides, d)] if biased else [])]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def results(engine: str, values: Sequence[Tensor], dilation: int = 1) -> list[Tensor]:
    """Streams and all gradients by an engine."""
    leaves = [x.detach().requires_grad_() for x in values]
    streams = apply_bank(
        leaves[0], leaves[1], leaves[2] if len(leaves) > 2 else None, dilation, engine=engine
    )
    weights = torch.linspace(-1, 2, streams.numel(), dtype=torch.float64).sin().view(streams.shape)
    return [streams.detach(), *torch.autograd.grad((streams * weights.to(streams.dtype)).sum(), leaves)]


def assert_right(values: Sequence[Tensor], dilation: int = 1) -> list[Tensor]:
    """Compare streams and gradients with PyTorch operations in float64, and return them."""
    found = results("triton", values, dilation)
    expected = results("torch", [x.double() for x in values], dilation)
    for name, one, truth in zip(NAMES, found, expected, strict=False):
        assert one.shape == truth.shape
        assert one.is_contiguous()
        error = float((one - truth).abs().max() / truth.abs().max().clamp_min(1e-30))
        assert error < 2e-6, f"{name} is off by {error:.1e}"
    return found


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 21, SPAN - 1, SPAN, SPAN + 1, 2 * SPAN, 2 * SPAN + 5])
def test_lengths(length: int) -> None:
    assert_right(arguments(1, length, 2, 2, 4))


@pytest.mark.parametrize(("levels", "k"), [(1, 1), (2, 1), (3, 2), (3, 4), (2, 8)])
@pytest.mark.parametrize("biased", [True, False])
def test_levels_and_taps(levels: int, k: int, biased: bool) -> None:
    assert len(group_levels(levels, k)) == 1
    assert_right(arguments(1, SPAN + 6, 2, levels, k, biased=biased))


@pytest.mark.parametrize(("levels", "k", "biased"), [(5, 4, False), (6, 2, True), (3, 10, True)])
def test_levels_that_reach_far_are_computed_in_groups(levels: int, k: int, biased: bool) -> None:
    assert len(group_levels(levels, k)) > 1
    assert_right(arguments(1, 40, 2, levels, k, biased=biased))


@pytest.mark.parametrize("length", [1, 4, SPAN, 2 * SPAN + 3])
@pytest.mark.parametrize(("dilation", "biased"), [(1, True), (1, False), (2, True), (5, False), (100, True)])
def test_convolution(length: int, dilation: int, biased: bool) -> None:
    assert_right(arguments(1, length, 3, 1, 4, sides=1, biased=biased), dilation)


@pytest.mark.parametrize("dilation", [2, 3])
def test_levels_with_a_dilation(dilation: int) -> None:
    assert_right(arguments(1, 40, 2, 3, 3), dilation)


@pytest.mark.parametrize("d", [1, 31, 32, 33, 70])
def test_channels_fill_blocks_with_a_rest(d: int) -> None:
    assert_right(arguments(2, 10, d, 2, 4))


@pytest.mark.parametrize("view", ["half", "one step", "one example", "every other step", "transposed"])
def test_strided_input(view: str) -> None:
    x, taps, bias = arguments(2, 10, 6, 2, 3)
    signal = {
        "half": torch.cat([x, x], dim=2).chunk(2, dim=2)[1],
        "one step": x[:, :1].expand(-1, 9, -1),
        "one example": x[:1].expand(3, -1, -1),
        "every other step": x[:, ::2],
        "transposed": x.mT.contiguous().mT,
    }[view]
    assert view == "transposed" or bank._make_dense(signal) is signal
    dense = results("triton", [signal.contiguous(), taps, bias])
    for one, other in zip(results("triton", [signal, taps, bias]), dense, strict=True):
        assert torch.equal(one, other)


def test_strided_gradient() -> None:
    x, taps, bias = arguments(2, 9, 3, 3, 4)
    engine = TritonBankEngine()
    g, kept = engine.forward(x, taps, bias, 1)
    dense = engine.backward(g, x, taps, bias, kept, 1)
    other = engine.backward(g.mT.contiguous().mT, x, taps, bias, kept, 1)
    assert all(torch.equal(one, two) for one, two in zip(dense, other, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sides", [1, 2])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, sides: int) -> None:
    half = [x.to(dtype) for x in arguments(1, SPAN + 6, 3, 3 if sides == 2 else 1, 4, sides=sides)]
    found = results("triton", half)
    engine, (x, taps, bias) = TritonBankEngine(), [x.float() for x in half]
    streams, kept = engine.forward(x, taps, bias, 1)
    weights = torch.linspace(-1, 2, streams.numel(), dtype=torch.float64).sin().view(streams.shape)
    expected = (streams, *engine.backward(weights.to(dtype).float(), x, taps, bias, kept, 1))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert_rounded(one, other)


def assert_rounded(half: Tensor, full: Tensor) -> None:
    """Assert that the first is the second in its precision; the interpreter cuts bfloat16 off."""
    if half.dtype == torch.bfloat16:
        torch.testing.assert_close(half.float(), full, rtol=2**-7, atol=0)
    else:
        assert torch.equal(half, full.to(half.dtype))


def test_half_precision_signal_with_full_precision_taps() -> None:
    x, taps, bias = arguments(1, 20, 3, 5, 4)
    engine, g, x = TritonBankEngine(), torch.ones(1, 20, 7, 3), x.bfloat16()
    half, full = engine.forward(x, taps, bias, 1), engine.forward(x.float(), taps, bias, 1)
    assert half[0].dtype == half[1].dtype == torch.float32
    assert torch.equal(half[0], full[0])
    ours = engine.backward(g, x, taps, bias, half[1], 1)
    theirs = engine.backward(g, x.float(), taps, bias, full[1], 1)
    assert [one.dtype for one in ours] == [torch.bfloat16, torch.float32, torch.float32]
    for one, other in zip(ours, theirs, strict=True):
        assert_rounded(one, other)


def test_the_same_bits_twice_and_for_spans_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    values = arguments(1, 2 * SPAN + 1, 3, 3, 4)
    first, second = results("triton", values), results("triton", values)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    monkeypatch.setitem(filters.ENGINES, "triton", TritonBankEngine(programs=(1, 1)))
    for name, one, other in zip(NAMES, results("triton", values), first, strict=True):
        if name in ("streams", "x"):
            assert torch.equal(one, other)
        torch.testing.assert_close(one, other)


def test_what_is_kept_has_the_shape_that_is_said() -> None:
    engine, (x, taps, _) = TritonBankEngine(), arguments(2, 9, 3, 7, 4)
    kept = engine.forward(x, taps, None, 1)[1]
    assert kept.shape == engine.kept_shape(x, taps) == (2, 2, 9, 3)
    assert engine.kept_shape(x, taps[:3]) == (0, 2, 9, 3)


def test_a_gpu_is_filled_and_spans_are_long_where_it_is() -> None:
    assert choose_span(1, 10**6, 100) == SPANS[0]
    assert choose_span(4, 2000, 250) == SPAN
    for sequences in (4, 200, 800):
        span = choose_span(sequences, 2000, 3000)
        assert span == SPAN or sequences * -(-2000 // span) >= 3000


def test_launches_of_the_suites_hold_one_group_of_levels() -> None:
    names = [launch.name for launch in describe_launches(SUITES)]
    assert len(names) == len(set(names)) == 2 * len(SUITES)
