"""Layer and RMS norms: PyTorch's on the CPU, and the Triton kernels against them in float64."""

from collections.abc import Iterator

import pytest
import torch
from interpreted_kernels import prepare_interpreter
from torch import Tensor, nn

from msbench.ops.batch_norm import EPSILON
from msbench.ops.gpu import norm, tiles
from msbench.ops.gpu import row_norm as kernels
from msbench.ops.gpu.launch import find_missing
from msbench.ops.layer_norm import check_layer_norm_on_gpu, layer_norm, layer_norm_reference
from msbench.ops.scan import dispatch


def arguments(b: int, length: int, d: int, *, far: float = 0.0, rms: bool = False) -> list[Tensor | None]:
    """x, mask, weight, bias (None for RMS norm), and the gradient of the output."""
    source = torch.Generator().manual_seed(length + d)
    x, weights = torch.randn(2, b, length, d, generator=source)
    weight, bias = torch.randn(2, d, generator=source)
    mask = (torch.rand(b, length, 1, generator=source) < 0.7).float()
    return [x + far, mask, weight, None if rms else bias, weights]


def computed(values: list[Tensor | None], reference: bool = False) -> list[Tensor]:
    """Output and gradients of x, weight and bias."""
    x, mask, weight, bias, weights = values
    leaves = [None if value is None else value.clone().requires_grad_() for value in (x, weight, bias)]
    function = layer_norm_reference if reference else layer_norm
    assert leaves[0] is not None
    assert leaves[1] is not None
    assert weights is not None
    y = function(leaves[0], mask, leaves[1], leaves[2])
    assert reference or "row_norm_on_gpu" in str(y.grad_fn)
    loss = (y * weights).sum()
    return [y.detach(), *torch.autograd.grad(loss, [leaf for leaf in leaves if leaf is not None])]


def assert_same(values: list[Tensor | None], tolerance: float = 2e-6) -> list[Tensor]:
    """Compare with float64, and return what was computed."""
    found = computed(values)
    double = [None if value is None else value.double() for value in values]
    for one, truth in zip(found, computed(double, reference=True), strict=True):
        assert one.shape == truth.shape
        assert float((one - truth).abs().max() / truth.abs().max().clamp_min(1e-30)) < tolerance
    return found


def test_on_the_cpu_they_are_those_of_torch() -> None:
    x, mask, weight, bias, _ = arguments(2, 9, 5)
    assert x is not None
    assert mask is not None
    assert weight is not None
    assert bias is not None
    layer, rms = nn.LayerNorm(5, eps=EPSILON), nn.RMSNorm(5, eps=EPSILON)
    with torch.no_grad():
        for module in (layer, rms):
            module.weight.copy_(weight)
        layer.bias.copy_(bias)
    assert torch.equal(layer_norm(x, None, weight, bias), layer(x))
    assert torch.equal(layer_norm(x, mask, weight, None), rms(x) * mask)


@pytest.mark.skipif(bool(find_missing("cpu")), reason=find_missing("cpu") or "interpreted")
class TestOnGpu:
    """The Triton kernels."""

    @pytest.fixture(autouse=True)
    def forced(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        names = ("row_norm_kernels", "norm_kernels", "tile_kernels")
        prepare_interpreter(monkeypatch, [f"msbench.ops.gpu.{name}" for name in names])
        monkeypatch.setenv("MSBENCH_SCAN", "triton")
        dispatch._choose.cache_clear()
        yield
        dispatch._choose.cache_clear()

    @pytest.mark.parametrize("rms", [False, True])
    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize(("b", "length", "d"), [(1, 1, 3), (3, 70, 19), (2, 17, 64), (2, 5, 130)])
    def test_sizes(self, b: int, length: int, d: int, masked: bool, rms: bool) -> None:
        values = arguments(b, length, d, rms=rms)
        values[1] = values[1] if masked else None
        assert_same(values)

    @pytest.mark.parametrize("rms", [False, True])
    def test_programs_with_several_tiles(self, rms: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiles, "PROGRAMS", 5)
        monkeypatch.setitem(norm.MERGE, "ROWS", 2)
        cut = tiles.cut_into_tiles(3 * 211, 100, tiles.TILE)
        assert (cut.rows, cut.each, cut.chunks, cut.blocks) == (16, 8, 5, 1)
        assert_same(arguments(3, 211, 100, rms=rms))

    def test_means_far_from_zero(self) -> None:
        # The rounding of a mean of a thousand standard deviations is 3e-5 of one.
        assert_same(arguments(2, 20, 20, far=1e3), tolerance=1e-4)

    def test_one_channel_is_its_bias(self) -> None:
        values = arguments(1, 4, 1)
        values[1] = None
        y, g_x, *_ = computed(values)
        assert values[3] is not None
        assert torch.equal(y, values[3].expand(1, 4, 1))
        assert not g_x.any()

    def test_the_same_bits_twice(self) -> None:
        values = arguments(3, 211, 70)
        for one, other in zip(computed(values), computed(values), strict=True):
            assert torch.equal(one, other)

    def test_half_precision_is_computed_in_float32(self) -> None:
        values = arguments(2, 50, 6)
        assert values[0] is not None
        rounded = values[0].bfloat16()
        half = [rounded, *values[1:]]
        values[0] = rounded.float()
        found, whole = computed(half), computed(values)
        assert [value.dtype for value in found] == [torch.float32, torch.bfloat16] + [torch.float32] * 2
        for index in (0, 2, 3):
            assert torch.equal(found[index], whole[index])
        # The interpreter cuts the last bits off; a GPU rounds.
        torch.testing.assert_close(found[1].float(), whole[1], rtol=2**-7, atol=0)
        y = kernels.run_row_norm(*half[:4], EPSILON, torch.bfloat16)
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y.float(), whole[0], rtol=2**-7, atol=0)

    def test_strided_arguments(self) -> None:
        values = arguments(2, 9, 5)
        strided = [None if value is None else value.mT.contiguous().mT for value in values[:2]] + values[2:]
        for one, other in zip(computed(strided), computed(values), strict=True):
            assert torch.equal(one, other)

    def test_what_it_does_not_take(self) -> None:
        x, mask, weight, bias, _ = (value.double() for value in arguments(2, 9, 5) if value is not None)
        assert torch.equal(layer_norm(x, mask, weight, bias), layer_norm_reference(x, mask, weight, bias))
        wide, ones = torch.randn(1, 2, 4000), torch.ones(4000)
        assert torch.equal(layer_norm(wide, None, ones, ones), layer_norm_reference(wide, None, ones, ones))
        assert layer_norm(wide[:0, :, :5], None, ones[:5], None).shape == (0, 2, 5)

    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
    @pytest.mark.parametrize("rms", [False, True])
    def test_the_operator_is_registered_rightly(self, rms: bool) -> None:
        x, mask, weight, bias, _ = arguments(2, 9, 5, rms=rms)
        leaves = [None if value is None else value.requires_grad_() for value in (x, weight, bias)]
        options = EPSILON, torch.float32
        torch.library.opcheck(
            torch.ops.msbench.row_norm_on_gpu.default, (leaves[0], mask, *leaves[1:], *options)
        )

    def test_function_transforms_and_compiled_graphs(self) -> None:
        x, mask, weight, bias, _ = arguments(2, 9, 5)
        assert x is not None
        assert weight is not None

        def normalise(x: Tensor) -> Tensor:
            return layer_norm(x, mask, weight, bias)

        found = torch.func.grad(lambda x: normalise(x).square().sum())(x)
        leaf = x.clone().requires_grad_()
        torch.testing.assert_close(found, torch.autograd.grad(normalise(leaf).square().sum(), leaf)[0])
        both = torch.func.vmap(normalise)(torch.stack([x, 2 * x]))
        torch.testing.assert_close(both[1], normalise(2 * x))
        torch.compiler.reset()
        compiled = torch.compile(normalise, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), normalise(x))

    @pytest.mark.parametrize("position", range(4))
    def test_the_check_sees_what_is_wrong(self, position: int, monkeypatch: pytest.MonkeyPatch) -> None:
        assert check_layer_norm_on_gpu("cpu") == ""
        right = kernels.run_row_norm

        def run(*values: Tensor) -> Tensor:
            changed = list(values)
            if position > 0:
                index = (0, 0, 2, 3)[position]
                changed[index] = values[index] + 0.001 * (values[index] - values[index].detach())
            y: Tensor = right(*changed)
            return 1.001 * y if position == 0 else y

        monkeypatch.setattr(kernels, "run_row_norm", run)
        part = ("output", "x", "weight", "bias")[position]
        assert check_layer_norm_on_gpu("cpu").startswith(f"its {part} is off by")
