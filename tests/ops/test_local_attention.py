"""Attention within a window against a softmax over the whole square."""

import pytest
import torch
from torch import Tensor

from msbench.ops.local_attention import local_attention


def dense(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    positions = torch.arange(q.shape[2])
    lag = positions.unsqueeze(1) - positions
    scores = (q @ k.mT / q.shape[3] ** 0.5).masked_fill((lag < 0) | (lag > window), -torch.inf)
    y: Tensor = scores.softmax(-1) @ v
    return y


def arguments(length: int, heads: int, shared: bool) -> tuple[Tensor, ...]:
    source = torch.Generator().manual_seed(length)
    sizes = [(2, heads, length, 4), *[(2, 1 if shared else heads, length, 4)] * 2]
    return tuple(
        torch.randn(*size, generator=source, dtype=torch.float64, requires_grad=True) for size in sizes
    )


@pytest.mark.parametrize("window", [1, 2, 7, 31, 40])
@pytest.mark.parametrize("length", [1, 2, 8, 9, 31, 32, 33, 64, 65])
@pytest.mark.parametrize("shared", [False, True])
def test_outputs_and_gradients(length: int, window: int, shared: bool) -> None:
    results = []
    for attend in (local_attention, dense):
        given = arguments(length, 3, shared)
        q, k, v = given
        y = attend(q, k, v, window)
        weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(0), dtype=y.dtype)
        results.append([y, *torch.autograd.grad((y * weight).sum(), given)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


def test_nothing_has_the_size_of_the_square() -> None:
    length, window, sizes = 4096, 16, []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    q, k, v = arguments(length, 2, True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = local_attention(q, k, v, window)
    assert max(sizes) <= 2 * q.numel() * 8
    assert torch.isfinite(torch.autograd.grad(y.sum(), q)[0]).all()


def test_later_positions_and_those_before_the_window_are_not_seen() -> None:
    q, k, v = arguments(50, 2, True)
    for position in (3, 20, 49):
        y = local_attention(q, k, v, 10)[:, :, position].sum()
        gradient = torch.autograd.grad(y, v)[0].abs().sum((0, 1, 3))
        seen = torch.arange(50)
        assert torch.equal(gradient > 0, (seen <= position) & (seen >= position - 10))
