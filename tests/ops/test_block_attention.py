"""Attention between blocks against the dense reference, for any list of blocks and any mask."""

import pytest
import torch
from dense_attention import attend_densely
from op_gradients import gradients
from torch import Tensor

from msbench.ops.block_attention import block_attention, gather_blocks, list_near_blocks

HEADS, WIDTH = 3, 4


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def count_keys(length: int, size: int, ends: Tensor, blocks: Tensor, keep: Tensor | None) -> Tensor:
    """How often each query sees each key, (b, h, l, l), one pair at a time."""
    batch, n = len(ends), -(-length // size)
    listed = blocks.expand(batch, HEADS, n, -1)
    shape = (batch, HEADS, n, size, listed.shape[-1] * size)
    seen = torch.ones(shape, dtype=torch.bool) if keep is None else keep.expand(shape)
    counts = torch.zeros(batch, HEADS, length, length, dtype=torch.float64)
    for b, h, i in torch.cartesian_prod(*(torch.arange(x) for x in (batch, HEADS, length))).tolist():
        for slot, block in enumerate(listed[b, h, i // size].tolist()):
            for place in range(size):
                key = block * size + place
                if block >= 0 and key < ends[b] and seen[b, h, i // size, i % size, slot * size + place]:
                    counts[b, h, i, key] += 1
    return counts


SHAPES = {"for all": (), "an example": (2, 1), "a head": (1, HEADS), "each": (2, HEADS)}


@pytest.mark.parametrize("listed", ["own", *SHAPES])
@pytest.mark.parametrize("masked", [None, "for all", "each"])
@pytest.mark.parametrize(("length", "size"), [(1, 5), (13, 4), (8, 4), (5, 1)])
def test_outputs_and_gradients_are_those_of_the_dense_softmax(
    length: int, size: int, listed: str, masked: str | None
) -> None:
    n, source = -(-length // size), torch.Generator().manual_seed(length)
    own = torch.arange(n).view(n, 1)
    blocks = own if listed == "own" else torch.randint(-1, n, (*SHAPES[listed], n, 3), generator=source)
    shape = (*SHAPES[masked or "each"], n, size, size * blocks.shape[-1])
    keep = None if masked is None else torch.rand(shape, generator=source) > 0.4
    given = [draw(2, HEADS, length, WIDTH, seed=i) for i in range(3)]
    for ends in (None, torch.tensor([length, max(1, length // 2)])):
        true = torch.full((2,), length) if ends is None else ends
        counts = count_keys(length, size, true, blocks, keep)
        arguments = (size, ends, None if listed == "own" else blocks, keep)
        ours = gradients(lambda q, k, v, more=arguments: block_attention(q, k, v, *more), given)
        dense = gradients(lambda q, k, v, seen=counts: attend_densely(q, k, v, seen), given)
        for one, other in zip(ours, dense, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
        empty = counts.sum(-1) == 0
        assert not ours[0][empty].any()


def test_some_queries_of_that_test_see_no_key() -> None:
    keep = torch.rand(2, HEADS, 4, 4, 4, generator=torch.Generator().manual_seed(13)) > 0.4
    counts = count_keys(13, 4, torch.tensor([13, 6]), torch.arange(4).view(4, 1), keep)
    assert 0 < int((counts.sum(-1) == 0).sum()) < counts[..., 0].numel()


def test_blocks_that_are_near() -> None:
    near = list_near_blocks(4, 1, 2, torch.device("cpu"))
    assert near.tolist() == [[-1, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, -1], [2, 3, -1, -1]]


def test_a_gathered_block_is_a_copy_of_the_listed_one() -> None:
    x = draw(2, HEADS, 4, 5, WIDTH)
    blocks = torch.tensor([[3, 0], [1, 1]])
    found = gather_blocks(x, blocks)
    assert torch.equal(found, torch.stack([x[:, :, row].flatten(2, 3) for row in blocks], 2))


@pytest.mark.parametrize("shared", [True, False])
def test_memory_grows_with_the_length_alone(shared: bool) -> None:
    """Of a mask there is one copy for all examples and heads, if it is the same for all."""
    size = 16

    def count_bytes(length: int) -> int:
        q, k, v = (draw(2, HEADS, length, WIDTH).requires_grad_() for _ in range(3))
        blocks = list_near_blocks(length // size, 1, 1, q.device)
        storages: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            lengths = None if shared else torch.tensor([length, length // 2])
            y = block_attention(q, k, v, size, lengths, blocks)
        assert torch.isfinite(torch.autograd.grad(y.sum(), q)[0]).all()
        return sum(storages.values())

    assert count_bytes(4096) <= 1.02 * 4 * count_bytes(1024)


def test_half_precision_and_views_of_any_stride() -> None:
    views = draw(2, 21, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4).unbind(0)
    lengths = torch.tensor([21, 8])
    blocks = list_near_blocks(6, 1, 0, lengths.device)

    def attend(*given: Tensor) -> Tensor:
        q, k, v = given
        return block_attention(q, k, v, 4, lengths, blocks)

    expected = attend(*(x.contiguous() for x in views))
    torch.testing.assert_close(attend(*views), expected)
    half = attend(*(x.bfloat16() for x in views))
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), expected, rtol=0.02, atol=0.02)


def test_the_graph_is_one_for_the_compiler() -> None:
    torch.compiler.reset()
    given = [draw(2, HEADS, 13, WIDTH, seed=i) for i in range(3)]
    blocks = list_near_blocks(4, 1, 1, torch.device("cpu"))
    lengths = torch.tensor([13, 2])
    compiled = torch.compile(block_attention, fullgraph=True, backend="aot_eager")
    results = [
        gradients(lambda *x, attend=attend: attend(*x, 4, lengths, blocks), given)
        for attend in (block_attention, compiled)
    ]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
