"""The Triton kernels of linear recurrences against loops over time in float64: interpreted."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from interpreted_kernels import prepare_interpreter
from lti_cases import arguments
from op_gradients import gradients
from torch import Tensor

from msbench.models.family import name_recurrence_kernel
from msbench.ops import linear_scan as linear
from msbench.ops import lti_scan as lti
from msbench.ops.gpu import recurrences
from msbench.ops.gpu.launch import find_missing
from msbench.ops.gpu.recurrence_shape import (
    SystemSizes,
    choose_gradient_shape,
    choose_input_shape,
    choose_linear_shape,
    choose_output_shape,
)
from msbench.ops.gpu.recurrences import TritonLinearEngine, TritonLtiEngine
from msbench.ops.linear_scan import linear_scan, linear_scan_reference
from msbench.ops.lti_scan import lti_scan, lti_scan_reference
from msbench.ops.scan import dispatch

pytestmark = pytest.mark.skipif(bool(find_missing("cpu")), reason=find_missing("cpu") or "interpreted")

Function = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The Triton kernels are used, with spans of 16 steps and blocks as large as a full GPU has them."""
    prepare_interpreter(monkeypatch, [recurrences.KERNELS])
    dispatch._choose.cache_clear()
    monkeypatch.setenv("MSBENCH_SCAN", "triton")
    for module in (recurrences, lti):
        monkeypatch.setattr(module, "LTI_ENGINE", TritonLtiEngine(every=16, schedulers=1))
    use_busy(monkeypatch, 1)
    yield
    dispatch._choose.cache_clear()


def use_busy(monkeypatch: pytest.MonkeyPatch, programs: int) -> None:
    """Let the recurrence of single states take as many lanes along time as give so many programs."""
    monkeypatch.setattr(recurrences, "LINEAR_ENGINE", TritonLinearEngine(programs))


def assert_equal(
    function: Function,
    reference: Function,
    values: Sequence[Tensor],
    tolerance: float = 3e-6,
    weight: Tensor | None = None,
) -> list[Tensor]:
    """Compare the output and every gradient; return them."""
    double = [x.to(torch.complex128 if x.is_complex() else torch.float64) for x in values]
    truth = gradients(reference, double, weight)
    found = gradients(function, values, weight)
    for number, (one, other) in enumerate(zip(found, truth, strict=True)):
        assert one.shape == other.shape
        error = float((one - other).abs().max()) / (float(other.abs().max()) + 1e-300)
        assert error < tolerance, f"number {number} is off by {error:.1e}"
    return found


def assert_same_bits(function: Function, values: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    for one, other in zip(gradients(function, values), gradients(function, others), strict=True):
        assert torch.equal(one, other)


class TestSystems:
    """Of several states per channel."""

    def assert_equal(self, values: Sequence[Tensor], **options: Any) -> list[Tensor]:
        return assert_equal(lti_scan, lti_scan_reference, [x.float() for x in values], **options)

    @pytest.mark.parametrize("length", [1, 2, 3, 15, 17, 33])
    def test_lengths(self, length: int) -> None:
        self.assert_equal(arguments(b=1, length=length, m=2))

    @pytest.mark.parametrize(
        ("b", "m", "d", "n"),
        [(1, 1, 1, 1), (3, 1, 3, 16), (1, 5, 37, 5), (2, 2, 33, 26), (1, 1, 3, 70), (1, 2, 2, 256)],
    )
    def test_sizes(self, b: int, m: int, d: int, n: int) -> None:
        self.assert_equal(arguments(b=b, m=m, d=d, n=n, length=9))

    @pytest.mark.parametrize("count", [3, 4, 5])
    def test_with_and_without_skip_and_mix(self, count: int) -> None:
        self.assert_equal(arguments(length=12)[:count])

    def test_mix_without_skip(self) -> None:
        u, log_decay, weight, _, mix = (x.float() for x in arguments(length=12))
        values = [u, log_decay, weight, mix]
        found, expected = (
            lambda u, a, w, e, scan=scan: scan(u, a, w, mix=e) for scan in (lti_scan, lti_scan_reference)
        )
        assert_equal(found, expected, values)

    def test_a_mixer_without_a_gradient(self) -> None:
        *values, mix = (x.float() for x in arguments(length=12))
        assert_equal(
            lambda u, a, w, d: lti_scan(u, a, w, d, mix),
            lambda u, a, w, d: lti_scan_reference(u, a, w, d, mix.to(u.dtype)),
            values,
        )

    @pytest.mark.parametrize("schedulers", [1, 10**6])
    def test_few_sequences_have_other_layouts(self, schedulers: int, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = TritonLtiEngine(every=16, schedulers=schedulers)
        monkeypatch.setattr(recurrences, "LTI_ENGINE", engine)
        self.assert_equal(arguments(b=1, m=2, d=6, n=9, length=20))

    def test_streams_that_do_not_fit_together_are_mixed_afterwards(self) -> None:
        values = arguments(b=1, m=9, d=2, n=256, length=5)
        assert choose_output_shape(SystemSizes(1, 9, 2, 256, True, True)) is None
        self.assert_equal(values)

    def test_states_beyond_the_registers_are_computed_in_pytorch(self) -> None:
        u, log_decay, weight = (x.float() for x in arguments(b=1, m=1, d=1, n=1500, length=3)[:3])
        assert lti.run_triton((u, log_decay, weight, None, None)) is None
        self.assert_equal([u, log_decay, weight])

    def test_a_loss_on_the_last_step_only_reaches_the_first(self) -> None:
        values = arguments(b=1, length=50, m=1)
        values[1] *= 1e-3
        weight = torch.zeros(1, 50, 4)
        weight[:, -1] = 1
        found = self.assert_equal(values, weight=weight)
        assert float(found[1][:, 0].abs().min()) > 0

    @pytest.mark.parametrize("rate", [1.5e-7, 3e-5])
    def test_rounded_decays_do_not_drift(self, rate: float) -> None:
        # 1 - 1.5e-7 is rounded by 3e-8: without corrections the sum of 800 steps would be off by 1e-5.
        generator = torch.Generator().manual_seed(0)
        u = torch.rand(1, 800, 1, 1, generator=generator)
        weight = torch.zeros(1, 800, 1, 1)
        weight[:, -1] = 1
        self.assert_equal(
            [u, torch.full((1, 1, 2), -rate), torch.ones(1, 1, 2)], weight=weight, tolerance=8e-6
        )

    @pytest.mark.parametrize("rate", [20.0, 69.0, 88.0, 120.0, 1e5])
    def test_fast_and_vanishing_decays(self, rate: float) -> None:
        values = [x.float() for x in arguments(length=20, d=2)]
        values[1] = torch.full_like(values[1], -rate)
        values[1][..., 0] = -0.1
        gradient = self.assert_equal(values)[2][..., 1:]
        # Their own gradients are next to 0, not rounding errors that Adam would take for a signal.
        assert float(gradient.abs().max()) <= 1e3 * torch.tensor(-rate).exp()

    def test_no_decay_and_growth(self) -> None:
        values = [x.float() for x in arguments(length=40)]
        values[1][..., 0], values[1][..., 1], values[1][..., 2] = 0, 1e-3, 0.4
        self.assert_equal(values)

    def test_gradients_of_fast_decays_are_relatively_right(self) -> None:
        values = [x.float() for x in arguments(length=20, n=3)]
        values[1] = -torch.tensor([2.0, 6.0, 15.0]).expand(3, 4, 3).contiguous()
        truth = gradients(lti_scan_reference, [x.double() for x in values])[2]
        torch.testing.assert_close(gradients(lti_scan, values)[2].double(), truth, rtol=1e-5, atol=1e-12)

    def test_strided_and_expanded_inputs(self) -> None:
        values = [x.float() for x in arguments(length=9)]
        assert_same_bits(lti_scan, [x.mT.contiguous().mT for x in values], values)
        u = values[0][:, ::2, :1, 1:].expand(-1, -1, 3, -1)
        rest = [values[1][:, 1:], values[2][:, 1:], values[3][:, 1:], values[4][:, ::2]]
        self.assert_equal([u, *rest])
        leaf = values[0].clone().requires_grad_()
        found, expected = (f(leaf, *values[1:]).sum() for f in (lti_scan, lti_scan_reference))
        torch.testing.assert_close(torch.autograd.grad(found, leaf), torch.autograd.grad(expected, leaf))

    @pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
    def test_half_precision_is_computed_in_float32(self, half: torch.dtype) -> None:
        u, *rest = (x.float() for x in arguments(length=19))
        found, expected = (gradients(lti_scan, [x, *rest]) for x in (u.to(half), u.to(half).float()))
        assert found[0].dtype == found[1].dtype == half
        # The interpreter cuts bfloat16 where a GPU rounds. What reaches the backward was rounded by autograd.
        for one, other in zip(found, expected, strict=True):
            assert float((one - other).abs().max()) < 0.01 * float(other.abs().max())

    def test_float64_is_computed_in_float64(self) -> None:
        assert_equal(lti_scan, lti_scan_reference, arguments(length=9), 1e-12)

    def test_the_same_bits_twice(self) -> None:
        values = [x.float() for x in arguments(length=33, d=5)]
        assert_same_bits(lti_scan, values, values)

    def test_nothing_but_the_arguments_is_kept(self) -> None:
        values = [x.float().requires_grad_() for x in arguments(length=9)]
        saved: list[int] = []

        def note(x: Tensor) -> Tensor:
            saved.append(x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            lti_scan(*values)
        assert sum(saved) == sum(x.numel() for x in values)

    def test_transforms_and_compiled_graphs(self) -> None:
        values = [x.float() for x in arguments(b=1, length=7, m=2, d=2, n=2)]

        def last(u: Tensor) -> Tensor:
            return lti_scan(u, *values[1:])[0, -1]

        expected = torch.autograd.functional.jacobian(last, values[0])  # type: ignore[no-untyped-call]
        torch.testing.assert_close(torch.func.jacrev(last)(values[0]), expected)
        torch.testing.assert_close(
            torch.func.vmap(last)(torch.stack([values[0], 2 * values[0]]))[1], last(2 * values[0])
        )
        compiled: Any = torch.compile(lti_scan, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(gradients(compiled, values), gradients(lti_scan, values))

    def test_the_check_before_its_use_finds_faults(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lti, "run_triton", lambda x: lti_scan_reference(*x))
        assert lti.check_triton_lti_scan("cpu") == ""
        monkeypatch.setattr(lti, "run_triton", lambda x: lti_scan_reference(x[0], 1.001 * x[1], *x[2:]))
        assert "off by" in lti.check_triton_lti_scan("cpu")

    @pytest.mark.parametrize("n", [1, 9, 26, 64, 256, 512])
    @pytest.mark.parametrize(("b", "m", "d"), [(1, 1, 1), (1, 5, 128), (50, 5, 512), (1024, 2, 99)])
    def test_every_layout_covers_channels_and_states(self, b: int, m: int, d: int, n: int) -> None:
        sizes = SystemSizes(b, m, d, n, False, True)
        for shape in (
            choose_output_shape(sizes),
            choose_input_shape(sizes),
            choose_gradient_shape(sizes, of_mix=False),
        ):
            assert shape is not None
            assert shape.LN * shape.LD == 32
            assert n <= shape.KN * shape.LN
            assert d <= shape.BLOCKS * shape.LD


class TestSingleStates:
    """One state per channel, real or complex."""

    LANES = ((1, 1), (16, 4), (10**9, 32))
    """Programs that a GPU needs, and the lanes along time of two sequences of 8 channels that follow."""

    def normal(self, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(size, generator=torch.Generator().manual_seed(sum(size)), dtype=dtype)

    def decays(self, *size: int, dtype: torch.dtype = torch.float32, rate: float = 0.3) -> Tensor:
        size_of = torch.exp(-rate * self.normal(*size).abs())
        return torch.polar(size_of, self.normal(*size, 1)[..., 0]) if dtype.is_complex else size_of

    def assert_equal(self, values: Sequence[Tensor], **options: Any) -> list[Tensor]:
        return assert_equal(linear_scan, linear_scan_reference, values, **options)

    @pytest.mark.parametrize(
        ("dtype", "length", "busy", "lanes"),
        [
            *((torch.float32, length, *each) for length, each in itertools.product((1, 16, 65, 140), LANES)),
            *((torch.complex64, 65, *each) for each in LANES),
        ],
    )
    def test_lengths(
        self, dtype: torch.dtype, length: int, busy: int, lanes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_busy(monkeypatch, busy)
        if not dtype.is_complex:
            shape = choose_linear_shape(2, 8, is_complex=False, constant=False, busy=busy)
            assert lanes == shape.LT
        x = self.normal(2, length, 8, dtype=dtype)
        self.assert_equal([self.decays(2, length, 8, dtype=dtype), x])
        self.assert_equal([self.decays(8, dtype=dtype), x])

    SIZES = ((), (1,), (37,), (20, 37), (1, 20, 37), (1, 1, 37), (3, 1, 37), (3, 20, 1), (3, 20, 37))

    @pytest.mark.parametrize(
        ("dtype", "size"),
        [
            *((torch.float32, size) for size in SIZES),
            *((torch.complex64, size) for size in ((37,), (3, 1, 37), (3, 20, 37))),
        ],
    )
    def test_shared_decays(self, dtype: torch.dtype, size: tuple[int, ...]) -> None:
        self.assert_equal([self.decays(*size, dtype=dtype), self.normal(3, 20, 37, dtype=dtype)])

    def test_a_loss_on_the_last_step_only_reaches_the_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        use_busy(monkeypatch, 10**9)
        for a in (self.decays(2, 100, 4, rate=1e-3), self.decays(4, rate=1e-3)):
            weight = torch.zeros(2, 100, 4)
            weight[:, -1] = 1
            found = self.assert_equal([a, self.normal(2, 100, 4)], weight=weight)
            assert float(found[2][:, 0].abs().min()) > 0

    @pytest.mark.parametrize("decay", [0.0, 1.0, 1 - 1e-6, 0.5, 1e-25, -0.9])
    def test_slow_fast_and_vanishing_decays(self, decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
        use_busy(monkeypatch, 10**9)
        x = self.normal(1, 1100, 1)
        for a in (torch.full((1,), decay), torch.full((1, 1100, 1), decay)):
            self.assert_equal([a, x], tolerance=1e-5)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
    def test_strided_expanded_and_conjugated_inputs(self, dtype: torch.dtype) -> None:
        a, x = self.decays(2, 21, 6, dtype=dtype), self.normal(2, 21, 6, dtype=dtype)
        for one, other in [
            (a.mT.contiguous().mT, x.mT.contiguous().mT),
            (a[:, 1::2, 1:4], x[:, 1::2, 1:4]),
            (a[:1, :1].expand(2, 21, 6), x),
            (a.conj(), x.conj()),
            (a.conj().imag, x.conj().imag) if dtype.is_complex else (a.flip(1), x.flip(1)),
        ]:
            self.assert_equal([one, other])
            dense = [y.resolve_conj().resolve_neg().contiguous() for y in (one, other)]
            assert torch.equal(linear_scan(one, other), linear_scan(*dense))

    def test_real_decays_of_complex_states_and_the_reverse(self) -> None:
        self.assert_equal([self.decays(2, 20, 3), self.normal(2, 20, 3, dtype=torch.complex64)])
        self.assert_equal([self.decays(3, dtype=torch.complex64), self.normal(2, 20, 3)])

    def test_half_precision_is_promoted(self) -> None:
        a, x = self.decays(2, 40, 5), self.normal(2, 40, 5).bfloat16()
        y = linear_scan(a, x)
        assert y.dtype == torch.bfloat16
        assert torch.equal(y, linear_scan(a, x.float()).bfloat16())

    @pytest.mark.parametrize("size", [(3, 50, 7), (7,)])
    def test_the_same_bits_twice(self, size: tuple[int, ...]) -> None:
        values = [self.decays(*size), self.normal(3, 50, 7)]
        assert_same_bits(linear_scan, values, values)

    def test_empty_batches(self) -> None:
        assert linear_scan(self.decays(3), self.normal(0, 5, 3)).shape == (0, 5, 3)

    def test_transforms_and_compiled_graphs(self) -> None:
        a, x = self.decays(4), self.normal(3, 12, 4)
        gradient = torch.func.grad(lambda a, x: linear_scan(a, x.unsqueeze(0)).square().sum())
        for one, own in zip(torch.func.vmap(gradient, in_dims=(None, 0))(a, x), x, strict=True):
            leaf = a.clone().requires_grad_()
            loss = linear_scan_reference(leaf, own.unsqueeze(0)).square().sum()
            torch.testing.assert_close(one, torch.autograd.grad(loss, leaf)[0])
        compiled: Any = torch.compile(linear_scan, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(gradients(compiled, [a, x]), gradients(linear_scan, [a, x]))

    def test_the_check_before_its_use_finds_faults(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(linear, "run_gpu_recurrence", linear_scan_reference)
        assert linear.check_triton_linear_scan("cpu") == ""
        wrong: Function = lambda a, x: linear_scan_reference(0.999 * a, x)  # noqa: E731
        monkeypatch.setattr(linear, "run_gpu_recurrence", wrong)
        assert "off by" in linear.check_triton_linear_scan("cpu")

    @pytest.mark.parametrize("is_complex", [True, False])
    @pytest.mark.parametrize(("b", "d"), [(1, 1), (1, 300), (50, 192), (1024, 256)])
    def test_every_layout_covers_the_channels(self, b: int, d: int, is_complex: bool) -> None:
        shape = choose_linear_shape(b, d, is_complex=is_complex, constant=True)
        assert shape.LT * shape.LD == 32
        assert shape.LT == 1 << shape.ROUNDS
        assert d <= shape.BLOCKS * shape.LD


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_operators_are_registered_rightly() -> None:
    values = [x.float().requires_grad_() for x in arguments(b=1, length=5, m=2, d=2, n=2)]
    torch.library.opcheck(torch.ops.msbench.gpu_system.default, (*values, True))
    torch.library.opcheck(torch.ops.msbench.gpu_system.default, (*values[:3], None, None, False))
    x = values[0][:, :, 0].detach().requires_grad_()
    torch.library.opcheck(torch.ops.msbench.gpu_recurrence.default, (x, x))


def test_the_kernels_have_a_name() -> None:
    assert name_recurrence_kernel(None, "cpu") == "triton"


@pytest.mark.parametrize("engine", ["cpp", "torch", "auto"])
def test_they_are_used_with_the_triton_scan_only(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", engine)
    monkeypatch.setattr(recurrences, "load_kernels", lambda _name: pytest.fail("a Triton kernel was loaded"))
    values = [x.float() for x in arguments(length=3)]
    lti_scan(*values)
    linear_scan(values[0][:, :, 0].sigmoid(), values[0][:, :, 0])
    assert name_recurrence_kernel(None, "cpu") != "triton"
