"""Gates: PyTorch operations on the CPU, and the Triton kernels against them, interpreted."""

from typing import Any

import pytest
import torch
from interpreted_kernels import prepare_interpreter
from op_gradients import gradients
from torch import Tensor
from torch.nn import functional

from msbench.ops.gate import Activation, apply_gate, check_gate_on_gpu, gate_reference
from msbench.ops.gpu import gate as kernels
from msbench.ops.gpu.launch import find_missing
from msbench.ops.scan import dispatch

ACTIVATIONS: tuple[Activation, ...] = ("silu", "sigmoid", "gelu")


def arguments(*size: int) -> tuple[Tensor, Tensor]:
    """y, and z with values for which activations are flat, steep and nearly linear."""
    source = torch.Generator().manual_seed(0)
    return torch.randn(*size, generator=source), 4 * torch.randn(*size, generator=source)


@pytest.mark.parametrize("kind", ["auto", "torch"])
def test_on_the_cpu_it_is_a_product(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", kind)
    y, z = arguments(2, 9, 5)
    assert torch.equal(apply_gate(y, z), y * functional.silu(z))
    assert torch.equal(apply_gate(y, z, "sigmoid"), y * torch.sigmoid(z))
    assert torch.equal(apply_gate(y, z, "gelu"), y * functional.gelu(z, approximate="tanh"))


@pytest.mark.skipif(bool(find_missing("cpu")), reason=find_missing("cpu") or "interpreted")
class TestOnGpu:
    """The Triton kernels."""

    @pytest.fixture(autouse=True)
    def forced(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        prepare_interpreter(monkeypatch, ["msbench.ops.gpu.gate_kernels", "msbench.ops.gpu.tile_kernels"])
        monkeypatch.setenv("MSBENCH_SCAN", "triton")
        dispatch._choose.cache_clear()
        yield
        dispatch._choose.cache_clear()

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    @pytest.mark.parametrize("size", [(1, 1), (7,), (2, 33, 5), (3, 70, 64), (2, 17, 130)])
    def test_sizes(self, size: tuple[int, ...], activation: Activation) -> None:
        self.assert_same(arguments(*size), activation)

    def assert_same(self, values: tuple[Tensor, Tensor], activation: Activation) -> None:
        leaf = values[0].clone().requires_grad_()
        assert "gate_on_gpu" in str(apply_gate(leaf, values[1], activation).grad_fn)
        found = gradients(lambda y, z: apply_gate(y, z, activation), values)
        wanted = gradients(
            lambda y, z: gate_reference(y, z, activation), [value.double() for value in values]
        )
        for one, truth in zip(found, wanted, strict=True):
            assert one.shape == truth.shape
            assert float((one - truth).abs().max() / truth.abs().max()) < 1e-6

    def test_large_numbers(self) -> None:
        z = torch.tensor([-1e30, -200.0, -88.0, 0.0, 88.0, 200.0, 1e6])
        self.assert_same((torch.ones(7), z), "silu")
        self.assert_same((torch.ones(7), z), "sigmoid")
        self.assert_same((torch.ones(6), z[1:]), "gelu")

    def test_halves_of_a_projection_are_read_in_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = torch.cat(arguments(2, 40, 12), dim=2)
        monkeypatch.setattr(Tensor, "contiguous", None)  # would be a copy
        y, z = whole.chunk(2, dim=2)
        assert not z.is_contiguous()
        assert torch.equal(apply_gate(y, z), apply_gate(y.clone(), z.clone()))

    def test_any_strides(self) -> None:
        y, z = arguments(2, 5, 6)
        strided = y.mT.contiguous().mT, z[..., None].expand(2, 5, 6, 2)[..., 1]
        for one, other in zip(gradients(apply_gate, strided), gradients(apply_gate, (y, z)), strict=True):
            assert torch.equal(one, other)

    @pytest.mark.parametrize(("first", "second"), [(torch.bfloat16, torch.bfloat16), (None, torch.bfloat16)])
    def test_half_precision_is_computed_in_float32(
        self, first: torch.dtype | None, second: torch.dtype
    ) -> None:
        y, z = arguments(2, 9, 5)
        y, z = y.to(first or y.dtype), z.to(second)
        found, whole = gradients(apply_gate, (y, z)), gradients(apply_gate, (y.float(), z.float()))
        assert [x.dtype for x in found] == [torch.promote_types(y.dtype, z.dtype), y.dtype, z.dtype]
        for one, other in zip(found, whole, strict=True):
            # The interpreter cuts the last bits off; a GPU rounds. So it is with the test's loss.
            torch.testing.assert_close(one.float(), other, rtol=2**-6, atol=0)

    def test_what_it_does_not_take(self) -> None:
        y, z = (value.double() for value in arguments(2, 9, 5))
        assert torch.equal(apply_gate(y, z), y * functional.silu(z))
        assert torch.equal(apply_gate(y, z[:1]), y * functional.silu(z[:1]))
        assert apply_gate(y[:0].float(), z[:0].float()).shape == (0, 9, 5)

    def test_function_transforms_and_compiled_graphs(self) -> None:
        y, z = arguments(3, 4, 5)
        many = torch.func.vmap(apply_gate)(y, z)
        torch.testing.assert_close(many, gate_reference(y, z))
        found = torch.func.grad(lambda z: apply_gate(y, z).sum())(z)
        torch.testing.assert_close(found, torch.func.grad(lambda z: gate_reference(y, z).sum())(z))
        torch.compiler.reset()
        compiled = torch.compile(apply_gate, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(y, z), gate_reference(y, z))

    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
    def test_the_operator_is_registered_rightly(self) -> None:
        leaves = [value.requires_grad_() for value in arguments(2, 9, 5)]
        torch.library.opcheck(torch.ops.msbench.gate_on_gpu.default, (*leaves, "silu"))

    @pytest.mark.parametrize("part", ["output", "y", "z"])
    def test_the_check_sees_what_is_wrong(self, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert check_gate_on_gpu("cpu") == ""
        right = kernels.run_gate

        def spoil(x: Tensor) -> Tensor:
            return x + 0.001 * (x - x.detach())

        def apply(y: Tensor, z: Tensor, activation: str) -> Tensor:
            parts = spoil(y) if part == "y" else y, spoil(z) if part == "z" else z
            out: Tensor = right(*parts, activation)
            return 1.001 * out if part == "output" else out

        monkeypatch.setattr(kernels, "run_gate", apply)
        assert check_gate_on_gpu("cpu").startswith(f"its {part} is off by")
