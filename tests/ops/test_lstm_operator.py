"""The LSTM as an operator, for compiled graphs, is the one that is run without them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from msbench.ops import lstm as ops


def arguments() -> tuple[Tensor, ...]:
    source = torch.Generator().manual_seed(0)
    sizes = (2, 7, 3), (16, 3), (16, 4), (16,), (16,)
    return tuple(
        torch.randn(*size, generator=source, dtype=torch.float64, requires_grad=True) for size in sizes
    )


# opcheck itself looks at gradients of tensors that are not leaves.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_the_operator_is_right() -> None:
    given = arguments()
    torch.testing.assert_close(ops._lstm(*given), ops.run_lstm(*given), rtol=0, atol=0)
    assert torch.autograd.gradcheck(ops._lstm, given)
    torch.library.opcheck(torch.ops.msbench.lstm_forward.default, given)


@pytest.mark.parametrize("apply", [ops.run_lstm, ops._lstm])
def test_jacobians_can_be_taken(apply: Any) -> None:
    x, *weights = arguments()
    y = apply(x, *weights)[0, -1]
    (rows,) = torch.autograd.grad(y, x, torch.eye(4, dtype=x.dtype), is_grads_batched=True)
    expected = torch.stack([torch.autograd.grad(ops.run_lstm(x, *weights)[0, -1, c], x)[0] for c in range(4)])
    torch.testing.assert_close(rows, expected)


def test_a_compiled_graph_holds_it_whole() -> None:
    torch.compiler.reset()
    given = arguments()
    results = []
    for call in (ops.lstm, torch.compile(ops.lstm, fullgraph=True, backend="aot_eager")):
        y = call(*given)
        results.append([y, *torch.autograd.grad(y.square().sum(), given)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
