"""Residuals with scaled terms: PyTorch operations on the CPU, and the Triton kernels against them."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from interpreted_kernels import prepare_interpreter
from op_gradients import gradients
from torch import Tensor

from msbench.ops.gpu import residual as kernels
from msbench.ops.gpu.launch import find_missing
from msbench.ops.residual import add_scaled, add_scaled_reference, check_residual_on_gpu
from msbench.ops.scan import dispatch


def arguments(b: int, length: int, d: int) -> list[Tensor]:
    """x, y, factors of channels, factors of examples."""
    source = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, b, length, d, generator=source)
    return [x, y, torch.randn(b, 1, d, generator=source), torch.randn(b, 1, 1, generator=source)]


def test_on_the_cpu_factors_come_one_after_another() -> None:
    x, y, channels, examples = arguments(2, 9, 5)
    assert torch.equal(add_scaled(x, y, []), x + y)
    assert torch.equal(add_scaled(x, y, [channels, examples]), x + y * channels * examples)


@pytest.mark.skipif(bool(find_missing("cpu")), reason=find_missing("cpu") or "interpreted")
class TestOnGpu:
    """The Triton kernels."""

    @pytest.fixture(autouse=True)
    def forced(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        prepare_interpreter(monkeypatch, ["msbench.ops.gpu.residual_kernels", "msbench.ops.gpu.tile_kernels"])
        monkeypatch.setenv("MSBENCH_SCAN", "triton")
        dispatch._choose.cache_clear()
        yield
        dispatch._choose.cache_clear()

    def assert_same(self, x: Tensor, y: Tensor, factors: Sequence[Tensor]) -> None:
        leaf = x.clone().requires_grad_()
        assert "add_scaled_on_gpu" in str(add_scaled(leaf, y, factors).grad_fn)
        found = gradients(lambda x, y: add_scaled(x, y, factors), (x, y))
        double = [factor.double() for factor in factors]
        wanted = gradients(lambda x, y: add_scaled_reference(x, y, double), (x.double(), y.double()))
        for one, truth in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.double(), truth, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize(("b", "length", "d"), [(1, 1, 1), (3, 33, 5), (2, 70, 64), (2, 17, 130)])
    def test_sizes(self, b: int, length: int, d: int) -> None:
        x, y, channels, examples = arguments(b, length, d)
        self.assert_same(x, y, [channels])
        self.assert_same(x, y, [examples])
        self.assert_same(x, y, [channels, examples])

    def test_neither_term_is_kept(self) -> None:
        x, y, channels, _ = arguments(2, 9, 5)
        kept: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            kept.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            add_scaled(x.requires_grad_(), y.requires_grad_(), [channels])
        assert kept == [channels.numel()]

    def test_half_precision_is_computed_in_float32(self) -> None:
        x, y, channels, _ = arguments(2, 9, 5)
        y, channels = y.bfloat16(), channels.bfloat16()
        found = gradients(lambda x, y: add_scaled(x, y, [channels]), (x, y))
        whole = gradients(lambda x, y: add_scaled(x, y, [channels.float()]), (x, y.float()))
        assert [value.dtype for value in found] == [torch.float32, torch.float32, torch.bfloat16]
        assert torch.equal(found[0], whole[0])
        # The interpreter cuts the last bits off; a GPU rounds.
        torch.testing.assert_close(found[2].float(), whole[2], rtol=2**-7, atol=0)
        assert add_scaled(x.bfloat16(), y, [channels]).dtype == torch.bfloat16

    def test_strided_arguments(self) -> None:
        x, y, channels, _ = arguments(2, 9, 5)
        strided = [value.mT.contiguous().mT for value in (x, y)]
        assert torch.equal(add_scaled(strided[0], strided[1], [channels]), add_scaled(x, y, [channels]))

    def test_what_it_does_not_take(self) -> None:
        x, y, channels, _ = (value.double() for value in arguments(2, 9, 5))
        assert torch.equal(add_scaled(x, y, [channels]), x + y * channels)
        assert add_scaled(x[:0].float(), y[:0].float(), [channels[:0].float()]).shape == (0, 9, 5)

    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
    def test_the_operator_is_registered_rightly(self) -> None:
        x, y, channels, _ = arguments(2, 9, 5)
        leaves = x.requires_grad_(), y.requires_grad_(), channels
        torch.library.opcheck(torch.ops.msbench.add_scaled_on_gpu.default, (*leaves, torch.float32))

    def test_function_transforms_and_compiled_graphs(self) -> None:
        x, y, channels, _ = arguments(2, 9, 5)

        def add(x: Tensor, y: Tensor) -> Tensor:
            return add_scaled(x, y, [channels])

        for position in (0, 1):
            found = torch.func.grad(lambda *both: add(*both).square().sum(), position)(x, y)
            wanted = 2 * add(x, y) * (1 if position == 0 else channels)
            torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(
            torch.func.vmap(add)(torch.stack([x, y]), torch.stack([y, x]))[1], add(y, x)
        )
        torch.compiler.reset()
        compiled = torch.compile(add, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, y), add(x, y))

    @pytest.mark.parametrize("part", ["output", "x", "y"])
    def test_the_check_sees_what_is_wrong(self, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert check_residual_on_gpu("cpu") == ""
        right = kernels.run_add_scaled

        def spoil(value: Tensor) -> Tensor:
            return value + 0.001 * (value - value.detach())

        def add(x: Tensor, y: Tensor, factors: Tensor, dtype: torch.dtype) -> Tensor:
            parts = spoil(x) if part == "x" else x, spoil(y) if part == "y" else y
            out: Tensor = right(*parts, factors, dtype)
            return 1.001 * out if part == "output" else out

        monkeypatch.setattr(kernels, "run_add_scaled", add)
        assert check_residual_on_gpu("cpu").startswith(f"its {part} is off by")
