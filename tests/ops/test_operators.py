"""The kernels as operators: registered rightly, kept whole by compiled graphs, batched by vmap."""

from collections.abc import Callable

import pytest
import torch
from interpreted_kernels import prepare_interpreter
from scan_cases import arguments
from torch import Tensor

from msbench.ops.batch_norm import frozen_batch_norm, masked_batch_norm
from msbench.ops.convolution import long_convolution
from msbench.ops.filters import decompose
from msbench.ops.linear_scan import linear_scan
from msbench.ops.lti_scan import lti_scan
from msbench.ops.scan import dispatch
from msbench.ops.scan.dispatch import KERNELS, kernel_name, selective_scan
from msbench.ops.scan.fused import low_rank_scan, multi_scale_scan

SCAN_KERNELS = [
    "msbench.ops.scan.triton_backward_kernels",
    "msbench.ops.scan.triton_forward_kernels",
    "msbench.ops.gpu.scan_packing_kernels",
]
HERE = [name for name in ("cpp", "torch") if not KERNELS[name].missing("cpu")]
SOURCE = torch.Generator().manual_seed(5)


def normal(*size: int) -> Tensor:
    return torch.randn(size, generator=SOURCE)


def mask() -> Tensor:
    return (torch.arange(9) < torch.tensor([[9], [4]])).float().unsqueeze(2)


def low_rank_arguments(m: int) -> list[Tensor]:
    """u, low, weight, bias, A, B, C, skip, mix of m streams with 4 channels."""
    u, _, *rest = (x.float() for x in arguments(2, 9, m, 4, 5))
    return [u, normal(2, 9, m, 3), normal(m, 4, 3), normal(m, 4), *rest]


CALLS: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "scan": (selective_scan, [x.float() for x in arguments()]),
    "scan without skip and mix": (selective_scan, [x.float() for x in arguments()[:5]]),
    "decompose": (decompose, [normal(2, 9, 3), normal(2, 2, 3, 3)]),
    "low-rank scan": (low_rank_scan, low_rank_arguments(3)),
    "multi-scale scan": (
        lambda x, f, *rest: multi_scale_scan(x, f, None, *rest),
        [normal(2, 9, 4), normal(2, 2, 3, 4), *low_rank_arguments(4)[1:]],
    ),
    "linear scan": (linear_scan, [normal(2, 9, 4).sigmoid(), normal(2, 9, 4)]),
    "time-invariant scan": (
        lti_scan,
        [normal(2, 9, 3, 4), -normal(3, 4, 5).abs(), normal(3, 4, 5), normal(3, 4), normal(2, 9, 3)],
    ),
    "long convolution": (long_convolution, [normal(2, 9, 3, 4), normal(6, 3, 4)]),
    "norm": (
        lambda x, w, b: masked_batch_norm(x, mask(), w, b, zero=True)[0],
        [normal(2, 9, 5), normal(5), normal(5)],
    ),
}


@pytest.mark.parametrize("kernel", HERE)
@pytest.mark.parametrize("name", CALLS)
def test_compiled_graphs_are_whole_and_equal(name: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", kernel)
    torch.compiler.reset()
    function, values = CALLS[name]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for scale in (1.0, 0.5):
        results = []
        for call in (function, compiled):
            leaves = [(scale * x).requires_grad_() for x in values]
            out = call(*leaves)
            results.append([out.detach(), *torch.autograd.grad(out.square().sum(), leaves)])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)


# opcheck itself looks at gradients of tensors that are not leaves.
harness = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


@harness
@pytest.mark.parametrize("kernel", [*HERE, "triton"])
def test_operators_are_registered_rightly(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := KERNELS[kernel].missing("cpu"):
        pytest.skip(reason)
    if kernel == "triton":
        prepare_interpreter(monkeypatch, SCAN_KERNELS)
    ops = torch.ops.msbench
    for count in (5, 7):
        values = [x.float().requires_grad_() for x in arguments(2, 3, 2, 2, 2)[:count]]
        missing = [None] * (7 - count)
        torch.library.opcheck(ops.selective_scan.default, (*values, *missing, kernel, True, True))
    engine = kernel if kernel in ("cpp", "torch") else "torch"
    bank = (normal(2, 9, 3).requires_grad_(), normal(2, 2, 3, 3).requires_grad_(), None, 1, engine)
    torch.library.opcheck(ops.filter_bank.default, bank)


@harness
def test_operators_in_cpp_are_registered_rightly(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := KERNELS["cpp"].missing("cpu"):
        pytest.skip(reason)
    monkeypatch.setenv("MSBENCH_SCAN", "cpp")
    ops = torch.ops.msbench
    u, *rest = (x.clone().requires_grad_() for x in low_rank_arguments(3))
    torch.library.opcheck(ops.fused_scan.default, (u, None, None, *rest, True, True))
    x, filters, *rest = (x.clone().requires_grad_() for x in CALLS["multi-scale scan"][1])
    torch.library.opcheck(ops.fused_scan.default, (x, filters, None, *rest, False, True))
    x, weight, bias = (x.clone().requires_grad_() for x in CALLS["norm"][1])
    torch.library.opcheck(ops.masked_norm.default, (x, mask(), weight, bias, True))
    mean, var = torch.zeros(5), torch.ones(5)
    plain = (x.detach(), mask(), weight.detach(), bias.detach(), mean, var, False)
    torch.library.opcheck(ops.frozen_norm.default, plain)
    with torch.no_grad():
        found = frozen_batch_norm(x, mask(), weight, bias, mean, var)
    torch.testing.assert_close(found, frozen_batch_norm(x, mask(), weight, bias, mean, var))


@pytest.mark.parametrize("name", CALLS)
def test_several_products_with_the_jacobian_at_once(name: str) -> None:
    function, values = CALLS[name]
    leaves = [x.clone().requires_grad_() for x in values]
    out = function(*leaves)
    directions = normal(3, *out.shape)
    batched = torch.autograd.grad(out, leaves, directions, is_grads_batched=True, retain_graph=True)
    for index, direction in enumerate(directions):
        one = torch.autograd.grad(out, leaves, direction, retain_graph=True)
        for found, expected in zip(batched, one, strict=True):
            torch.testing.assert_close(found[index], expected)


@pytest.mark.parametrize("name", CALLS)
def test_function_transforms(name: str) -> None:
    function, values = CALLS[name]
    x, *rest = values
    expected = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        lambda x: function(x, *rest)[:, -1].sum(0), x
    )
    found = torch.func.jacrev(lambda x: function(x, *rest)[:, -1].sum(0))(x)
    torch.testing.assert_close(found, expected)
    total = torch.func.grad(lambda x: function(x, *rest).sum())(x)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(total, torch.autograd.grad(function(leaf, *rest).sum(), leaf)[0])
    many = torch.func.vmap(lambda x: function(x, *rest))(torch.stack([x, 2 * x]))
    torch.testing.assert_close(many[1], function(2 * x, *rest))


@pytest.mark.parametrize("kernel", HERE)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_through_vmap(name: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The slices that vmap hands out do not say that gradients are wanted of them.
    monkeypatch.setenv("MSBENCH_SCAN", kernel)
    function, (x, *rest) = CALLS[name]
    many = torch.stack([x, 0.5 * x])
    leaf = many.clone().requires_grad_()
    one_by_one = torch.stack([function(one, *rest) for one in leaf]).square().sum()
    (expected,) = torch.autograd.grad(one_by_one, leaf)

    def total(many: Tensor) -> Tensor:
        return torch.func.vmap(lambda x: function(x, *rest))(many).square().sum()

    torch.testing.assert_close(torch.func.grad(total)(many), expected)
    again = many.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(total(again), again)[0], expected)


@pytest.mark.parametrize("mode", ["no_grad", "transform", "vmap", "compiled"])
def test_a_kernel_may_be_chosen_in_any_mode(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "auto")
    expected = kernel_name("cpu")
    dispatch._choose.cache_clear()
    dispatch._is_right.cache_clear()
    torch.compiler.reset()
    function, (x, *rest) = CALLS["multi-scale scan"]
    calls: dict[str, Callable[[], object]] = {
        "no_grad": torch.no_grad()(lambda: function(x, *rest)),
        "transform": lambda: torch.func.grad(lambda x: function(x, *rest).sum())(x),
        "vmap": lambda: torch.func.vmap(lambda x: function(x, *rest))(torch.stack([x, x])),
        "compiled": lambda: torch.compile(function, fullgraph=True, backend="aot_eager")(x, *rest),
    }
    calls[mode]()  # a warning, that a kernel is not used, would be an error here
    assert kernel_name("cpu") == expected
