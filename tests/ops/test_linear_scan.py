"""The elementwise recurrence against the loop over time and against public implementations."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from op_gradients import gradients
from scipy import signal
from torch import Tensor

from msbench.ops import native_library
from msbench.ops.linear_scan import linear_scan, linear_scan_reference

built = pytest.mark.skipif(native_library.load_library() is None, reason="built without a C++ compiler")


@pytest.fixture(params=["torch", pytest.param("cpp", marks=built)], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test here is run with each engine."""
    monkeypatch.setenv("MSBENCH_SCAN", request.param)
    before = torch.get_num_threads()
    yield str(request.param)
    torch.set_num_threads(before)


LENGTHS = [1, 2, 3, 31, 33, 100, 1000, 1025]
REAL, COMPLEX = torch.float64, torch.complex128


def normal(*size: int, dtype: torch.dtype = REAL) -> Tensor:
    generator = torch.Generator().manual_seed(sum(size))
    return torch.randn(size, generator=generator, dtype=dtype)


def decays(*size: int, dtype: torch.dtype = REAL, rate: float = 0.3) -> Tensor:
    size_of = torch.exp(-rate * normal(*size).abs())
    return torch.polar(size_of, normal(*size, 1)[..., 0]).to(dtype) if dtype.is_complex else size_of.to(dtype)


def assert_equal(values: Sequence[Tensor], tolerance: float = 1e-10) -> None:
    expected, actual = gradients(linear_scan_reference, values), gradients(linear_scan, values)
    for name, one, other in zip(("h", "a", "x"), actual, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        error = float((one - other).abs().max()) / (float(other.abs().max()) + 1e-300)
        assert error < tolerance, f"{name} is off by {error:.1e}"


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("length", LENGTHS)
def test_output_and_gradients_equal_the_loop_at_any_length(length: int, dtype: torch.dtype) -> None:
    x = normal(2, length, 5, dtype=dtype)
    assert_equal([decays(2, length, 5, dtype=dtype), x])
    if length < 1000 or not dtype.is_complex:
        assert_equal([decays(5, dtype=dtype), x])


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize(
    "size", [(), (1,), (37,), (50, 37), (1, 50, 37), (1, 1, 37), (3, 1, 37), (3, 50, 1), (50, 1), (3, 50, 37)]
)
def test_shared_decays(size: tuple[int, ...], dtype: torch.dtype) -> None:
    assert_equal([decays(*size, dtype=dtype), normal(3, 50, 37, dtype=dtype)])


@pytest.mark.parametrize("d", [1, 2, 7, 16, 33, 130, 257])
def test_widths(d: int) -> None:
    for dtype in (REAL, COMPLEX):
        assert_equal([decays(2, 35, d, dtype=dtype), normal(2, 35, d, dtype=dtype)])
    single = [decays(d, dtype=torch.complex64), normal(2, 35, d, dtype=torch.complex64)]
    assert_equal(single, 1e-5)
    assert_equal([decays(2, 35, d).float(), normal(2, 35, d).float()], 1e-5)


def test_real_decays_of_complex_states_and_the_reverse() -> None:
    assert_equal([decays(2, 20, 3), normal(2, 20, 3, dtype=COMPLEX)])
    assert_equal([decays(3, dtype=COMPLEX), normal(2, 20, 3)])
    assert linear_scan(decays(3, dtype=COMPLEX), normal(2, 20, 3)).is_complex()


def test_gradcheck() -> None:
    for dtype in (REAL, COMPLEX):
        for size in ((3,), (2, 6, 3)):
            values = [decays(*size, dtype=dtype), normal(2, 6, 3, dtype=dtype)]
            assert torch.autograd.gradcheck(linear_scan, [x.requires_grad_() for x in values])


def test_loss_on_the_last_step_only_reaches_the_first() -> None:
    for a in (decays(2, 100, 4, rate=1e-3), decays(4, rate=1e-3)):
        weight = torch.zeros(2, 100, 4)
        weight[:, -1] = 1
        values = [a, normal(2, 100, 4)]
        expected, actual = (gradients(f, values, weight) for f in (linear_scan_reference, linear_scan))
        assert float(actual[2][:, 0].abs().min()) > 0
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("decay", [0.0, 1.0, 1 - 1e-6, 0.5, 1e-25, -0.9])
def test_slow_fast_and_vanishing_decays(decay: float) -> None:
    x = normal(1, 4097, 3)
    for a in (torch.full((3,), decay, dtype=REAL), torch.full((1, 4097, 3), decay, dtype=REAL)):
        assert_equal([a[:, :500] if a.ndim == 3 else a, x[:, :500]])
        single = linear_scan(a.float(), x.float())
        expected = linear_scan_reference(a.float().double(), x.float().double())
        assert (single - expected).abs().max() < 2e-5 * expected.abs().max()


@pytest.mark.parametrize("engine", ["cpp"], indirect=True)  # only the C++ kernels flush
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_silence_leaves_no_subnormal_states(dtype: torch.dtype) -> None:
    x = torch.zeros(1, 2000, 3, dtype=dtype)
    x[:, 0] = 1
    h = linear_scan(torch.full((3,), 0.9, dtype=dtype), x)
    last = torch.view_as_real(h) if h.is_complex() else h
    assert float(h[0, 400].abs().min()) > 0
    assert not last[:, 1000:].any()


def test_strided_expanded_and_conjugated_inputs_equal_contiguous_ones(engine: str) -> None:
    for dtype in (REAL, COMPLEX):
        a, x = decays(2, 21, 6, dtype=dtype), normal(2, 21, 6, dtype=dtype)
        inputs = [
            (a.mT.contiguous().mT, x.mT.contiguous().mT),
            (a[:, 1::2, 1:4], x[:, 1::2, 1:4]),
            (a[:1, :1].expand(2, 21, 6), x),
            (a[:, :1].expand(-1, 21, -1), x[:1].expand(2, -1, -1)),
            (a.conj(), x.conj()),
            (a.conj().imag, x.conj().imag) if dtype.is_complex else (a.flip(1), x.flip(1)),
        ]
        for one, other in inputs:
            assert_equal([one, other])
            dense = [y.resolve_conj().resolve_neg().contiguous() for y in (one, other)]
            for y, z in zip(gradients(linear_scan, [one, other]), gradients(linear_scan, dense), strict=True):
                torch.testing.assert_close(y, z)
            if engine == "cpp":  # PyTorch takes other ways where memory lies otherwise
                assert torch.equal(linear_scan(one, other), linear_scan(*dense))


def test_an_expanded_gradient() -> None:
    a, x = decays(4), normal(2, 20, 4).requires_grad_()
    (found,) = torch.autograd.grad(linear_scan(a, x).sum(), x)
    (expected,) = torch.autograd.grad(linear_scan_reference(a, x).sum(), x)
    torch.testing.assert_close(found, expected)


def test_half_precision_is_promoted_and_autocast_ignored() -> None:
    a, x = decays(2, 400, 5, rate=0.01).float(), normal(2, 400, 5).float()
    for half in (torch.bfloat16, torch.float16):
        y = linear_scan(a, x.to(half))
        assert y.dtype == half
        assert torch.equal(y, linear_scan(a, x.to(half).float()).to(half))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(linear_scan(a, x), linear_scan(a, x))
        inside = gradients(linear_scan, [a, x])
    for one, other in zip(inside, gradients(linear_scan, [a, x]), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("size", [(5, 300, 70), (1, 300, 70), (70,), (5, 1, 70)])
def test_bits_do_not_depend_on_threads_or_runs(size: tuple[int, ...], engine: str) -> None:
    dtype = torch.complex64 if len(size) == 1 else torch.float32
    values = [decays(*size, dtype=dtype), normal(5, 300, 70, dtype=dtype)]
    runs = []
    for threads in (1, 2, 3, 1) if engine == "cpp" else (1, 1):
        torch.set_num_threads(threads)
        runs.append(gradients(linear_scan, values))
    for other in runs[1:]:
        assert all(torch.equal(one, two) for one, two in zip(runs[0], other, strict=True))


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_function_transforms(dtype: torch.dtype) -> None:
    a, x = decays(4, dtype=dtype), torch.view_as_real(normal(1, 12, 4, dtype=COMPLEX))

    def last(x: Tensor, a: Tensor = a) -> Tensor:
        """Transforms want real inputs and outputs."""
        h = linear_scan(a, torch.view_as_complex(x) if dtype.is_complex else x[..., 0])[0, -1]
        return torch.view_as_real(h).sum(-1) if dtype.is_complex else h

    expected = torch.autograd.functional.jacobian(last, x)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.func.jacrev(last)(x), expected)
    leaf = x.clone().requires_grad_()
    (rows,) = torch.autograd.grad(last(leaf), leaf, torch.eye(4, dtype=REAL), is_grads_batched=True)
    torch.testing.assert_close(rows, expected)
    torch.testing.assert_close(torch.func.vmap(last)(torch.stack([x, 2 * x]))[1], last(2 * x))
    many = torch.stack([a, a**2])
    mapped = torch.func.vmap(linear_scan, in_dims=(0, None))(many, x[..., 0])
    torch.testing.assert_close(mapped[1], linear_scan_reference(a**2, x[..., 0]))


def test_gradients_for_each_example() -> None:
    a, x = decays(4), normal(3, 12, 4)
    gradient = torch.func.grad(lambda a, x: linear_scan(a, x.unsqueeze(0)).square().sum())
    for one, own in zip(torch.func.vmap(gradient, in_dims=(None, 0))(a, x), x, strict=True):
        leaf = a.clone().requires_grad_()
        loss = linear_scan_reference(leaf, own.unsqueeze(0)).square().sum()
        torch.testing.assert_close(one, torch.autograd.grad(loss, leaf)[0])


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_compiled_graphs_keep_it_whole(dtype: torch.dtype) -> None:
    values = [decays(3, dtype=dtype), normal(2, 17, 3, dtype=dtype)]
    linear_scan(*values)
    compiled: Any = torch.compile(linear_scan, fullgraph=True, backend="aot_eager")
    for one, other in zip(gradients(compiled, values), gradients(linear_scan, values), strict=True):
        torch.testing.assert_close(one, other)


def test_second_derivatives_are_refused() -> None:
    a, x = decays(3).requires_grad_(), normal(2, 5, 3).requires_grad_()
    first = torch.autograd.grad(linear_scan(a, x).square().sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="linear_scan_reference"):
        torch.autograd.grad(first[0].sum(), x)


def test_constant_decays_are_scipys_filter() -> None:
    x = normal(2, 500, 3)
    for pole in (0.999, -0.4, 0.9 * np.exp(0.7j)):
        expected = signal.lfilter([1], [1, -pole], x.numpy(), axis=1)
        found = linear_scan(torch.tensor(pole, dtype=COMPLEX if isinstance(pole, complex) else REAL), x)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_the_rg_lru_of_transformers() -> None:
    module = pytest.importorskip("transformers.models.recurrent_gemma.modeling_recurrent_gemma")
    config = module.RecurrentGemmaConfig(hidden_size=8, lru_width=8, num_attention_heads=2)
    rglru = module.RecurrentGemmaRglru(config)
    a, x = decays(2, 40, 8, rate=0.05), normal(2, 40, 8)
    reset = torch.zeros(2, 40, 1, dtype=torch.bool)
    reset[:, 0], reset[1, 17] = True, True
    expected, last = rglru._rnn_scan(x, a, reset, None, acc_dtype=torch.float64)
    assert expected.dtype == torch.float64  # in float32 the order of sums takes up a tolerance
    h = linear_scan(a * ~reset, x)
    torch.testing.assert_close(h, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(h[:, -1], last, rtol=1e-12, atol=1e-12)


def test_empty_batches_and_wrong_shapes() -> None:
    assert linear_scan(decays(3), normal(0, 5, 3)).shape == (0, 5, 3)
    for a, x in (((4,), (2, 5, 3)), ((5, 1, 3), (2, 5, 3)), ((3,), (5, 3)), ((1, 2, 5, 3), (2, 5, 3))):
        with pytest.raises(ValueError, match=r"x must be \(b, l, d\)"):
            linear_scan(decays(*a), normal(*x))
