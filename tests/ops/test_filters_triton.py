"""The Triton filter bank against PyTorch operations in float64, interpreted."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from bank_launches import SUITES, describe_launches
from interpreted_kernels import prepare_interpreter
from torch import Tensor
from torch.nn import functional

from msbench.ops import filters
from msbench.ops.filters import (
    apply_bank,
    causal_conv,
    check_bank_on_gpu,
    convolve_silu,
    decompose,
    is_bank_on_gpu,
)
from msbench.ops.gpu import bank
from msbench.ops.gpu.bank import SPANS, TritonBankEngine, choose_span, group_levels
from msbench.ops.gpu.launch import find_missing
from msbench.ops.scan import dispatch

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


@pytest.mark.parametrize("length", [1, 3, 8, 9, SPAN, SPAN + 1, 2 * SPAN + 5])
def test_lengths(length: int) -> None:
    assert_right(arguments(1, length, 2, 3, 3))


@pytest.mark.parametrize(
    ("levels", "k", "biased"), [(1, 1, True), (2, 1, False), (3, 2, True), (3, 4, False), (2, 8, True)]
)
def test_levels_and_taps(levels: int, k: int, biased: bool) -> None:
    assert len(group_levels(levels, k)) == 1
    assert_right(arguments(1, SPAN + 6, 2, levels, k, biased=biased))


@pytest.mark.parametrize(("levels", "k", "biased"), [(5, 4, False), (6, 2, True), (3, 10, True)])
def test_levels_that_reach_far_are_computed_in_groups(levels: int, k: int, biased: bool) -> None:
    assert len(group_levels(levels, k)) > 1
    assert_right(arguments(1, 40, 2, levels, k, biased=biased))


@pytest.mark.parametrize(
    ("length", "dilation", "biased"),
    [
        *((length, 1, True) for length in (1, 4, SPAN, 2 * SPAN + 3)),
        *((2 * SPAN + 3, *each) for each in ((1, False), (2, True), (5, False), (100, True))),
        (4, 5, True),
    ],
)
def test_convolution(length: int, dilation: int, biased: bool) -> None:
    assert_right(arguments(1, length, 3, 1, 4, sides=1, biased=biased), dilation)


@pytest.mark.parametrize("dilation", [2, 3])
def test_levels_with_a_dilation(dilation: int) -> None:
    assert_right(arguments(1, 40, 2, 3, 3), dilation)


@pytest.mark.parametrize("d", [1, 32, 33])
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


@pytest.mark.parametrize(("dtype", "sides"), [(torch.bfloat16, 2), (torch.float16, 1)])
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
    x, taps, bias = arguments(1, 9, 3, 4, 4)
    engine, g, x = TritonBankEngine(), torch.ones(1, 9, 6, 3), x.bfloat16()
    half, full = engine.forward(x, taps, bias, 1), engine.forward(x.float(), taps, bias, 1)
    assert (half[0].dtype, half[1].dtype) == (torch.bfloat16, torch.float32)
    assert_rounded(half[0], full[0])
    ours = engine.backward(g, x, taps, bias, half[1], 1)
    theirs = engine.backward(g, x.float(), taps, bias, full[1], 1)
    assert [one.dtype for one in ours] == [torch.bfloat16, torch.float32, torch.float32]
    for one, other in zip(ours, theirs, strict=True):
        assert_rounded(one, other)


def test_the_same_bits_twice_and_for_spans_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    values = arguments(1, SPAN + 1, 3, 3, 4)
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


class TestForced:
    """Through the functions that models call."""

    @pytest.fixture(autouse=True)
    def forced(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        dispatch._choose.cache_clear()
        monkeypatch.setenv("MSBENCH_SCAN", "triton")
        yield
        dispatch._choose.cache_clear()

    @pytest.fixture
    def launched(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The numbers of programs of all launches."""
        programs: list[int] = []
        plan = bank.plan_launch

        def watch(*args: Any) -> bank.BankLaunch:
            launch = plan(*args)
            programs.append(launch.grid[0])
            return launch

        monkeypatch.setattr(bank, "plan_launch", watch)
        return programs

    def test_kernels_run_where_they_can(self, launched: list[int]) -> None:
        x, taps, bias = arguments(1, 5, 2, 2, 3)
        assert is_bank_on_gpu("cpu")
        decompose(x, taps, bias)
        causal_conv(x, taps[0, 0].T, bias[0, 0])
        convolve_silu(x, taps[0, 0].T, bias[0, 0])
        assert len(launched) == 3
        for signal, filters_ in (
            (x.double(), taps),
            (x, taps.double()),
            (x[:, :0], taps),
            (x, taps.repeat(1, 1, 9, 1)),
        ):
            assert decompose(signal, filters_).shape == (1, signal.shape[1], 4, 2)
            convolve_silu(signal, filters_[0, 0].T)
        assert len(launched) == 3

    @pytest.mark.parametrize(
        ("length", "dilation", "biased"),
        [(1, 1, True), (SPAN - 1, 1, False), (2 * SPAN + 3, 1, True), (2 * SPAN + 3, 3, True)],
    )
    def test_convolution_with_silu(
        self, length: int, dilation: int, biased: bool, launched: list[int]
    ) -> None:
        x, taps, *bias = arguments(2, length, 3, 1, 4, sides=1, biased=biased)
        values = [x, taps[0, 0].T, *(each[0, 0] for each in bias)]

        def run(double: bool) -> list[Tensor]:
            leaves = [value.double() if double else value.detach() for value in values]
            x, weight, *rest = [leaf.requires_grad_() for leaf in leaves]
            y = convolve_silu(x, weight, rest[0] if rest else None, dilation)
            weights = torch.linspace(-1, 2, y.numel(), dtype=torch.float64).sin().view(y.shape).to(y.dtype)
            return [y.detach(), *torch.autograd.grad((y * weights).sum(), [x, weight, *rest])]

        found = run(double=False)
        assert len(launched) == 2
        expected = run(double=True)
        assert len(launched) == 2
        for one, truth in zip(found, expected, strict=True):
            assert one.shape == truth.shape
            assert float((one - truth).abs().max() / truth.abs().max().clamp_min(1e-30)) < 2e-6
        assert all(torch.equal(one, two) for one, two in zip(found, run(double=False), strict=True))

    @pytest.mark.filterwarnings("ignore:overflow")  # of the interpreter; a GPU has no such warning
    def test_silu_of_large_numbers(self) -> None:
        x = torch.tensor([-1e4, -200.0, -88.0, 0.0, 88.0, 200.0, 1e4]).view(1, -1, 1).requires_grad_()
        y = convolve_silu(x, torch.ones(1, 1))
        torch.testing.assert_close(y, functional.silu(x))
        torch.testing.assert_close(
            torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(functional.silu(x).sum(), x)[0]
        )

    def test_half_precision_signal(self) -> None:
        x, taps, bias = arguments(1, 9, 3, 1, 4, sides=1)
        signal = x.bfloat16().requires_grad_()
        for convolve in (causal_conv, convolve_silu):
            y = convolve(signal, taps[0, 0].T, bias[0, 0])
            assert y.dtype == torch.bfloat16
            assert_rounded(y, convolve(x.bfloat16().float(), taps[0, 0].T, bias[0, 0]))
            assert torch.autograd.grad(y.sum(), signal)[0].dtype == torch.bfloat16

    def test_function_transforms_and_compiled_graphs(self) -> None:
        x, taps, bias = arguments(3, 5, 2, 1, 3, sides=1)
        weight = taps[0, 0].T

        def convolve(one: Tensor) -> Tensor:
            return convolve_silu(one.unsqueeze(0), weight, bias[0, 0]).squeeze(0)

        torch.testing.assert_close(torch.vmap(convolve)(x), convolve_silu(x, weight, bias[0, 0]))
        jacobian = torch.func.jacrev(convolve)(x[0])
        expected = torch.func.jacrev(convolve)(x[0].double())
        torch.testing.assert_close(jacobian, expected.float())
        half = x.bfloat16()
        with torch._subclasses.FakeTensorMode() as mode:
            found = convolve_silu(mode.from_tensor(half), mode.from_tensor(weight))
        assert (found.shape, found.dtype) == (x.shape, torch.bfloat16)
        compiled = torch.compile(convolve, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x[0]), convolve(x[0]))

    @pytest.mark.parametrize("silu", [False, True])
    def test_a_wrong_kernel_is_found(self, silu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = filters.draw_bank

        def draw(levels: int, sides: int) -> list[Tensor]:
            x, *rest = sizes(levels, sides)
            return [x[:1, :7], *rest]

        monkeypatch.setattr(filters, "draw_bank", draw)
        assert check_bank_on_gpu("cpu") == ""
        engine = filters.ACTIVATED if silu else filters.ENGINES["triton"]
        right = engine.backward

        def wrong(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
            g_x, g_taps, g_bias = right(*args)
            return g_x, g_taps * 1.001, g_bias

        monkeypatch.setattr(engine, "backward", wrong)
        assert check_bank_on_gpu("cpu").startswith("its taps is off by")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_without_a_gpu_silu_follows_the_convolution(dtype: torch.dtype) -> None:
    signal, taps, offsets = (each.to(dtype) for each in arguments(2, 40, 5, 1, 4, sides=1))
    assert not is_bank_on_gpu("cpu")
    x, weight, bias = (each.contiguous().requires_grad_() for each in (signal, taps[0, 0].T, offsets[0, 0]))
    y, expected = convolve_silu(x, weight, bias), functional.silu(causal_conv(x, weight, bias))
    assert torch.equal(y, expected)
    ours, theirs = (torch.autograd.grad(each.sin().sum(), (x, weight, bias)) for each in (y, expected))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
