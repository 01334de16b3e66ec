"""Longformer and BigBird against those of `transformers`, with the same weights and random blocks."""

from typing import Any

import numpy as np
import pytest
import torch
from model_cases import layer_of, model_of, shaken
from torch import Tensor, nn
from transformers import BigBirdConfig, LongformerConfig
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

D, HEADS = 16, 2


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attention_of(name: str, **options: Any) -> Any:
    """A layer whose last map leaves the heads' outputs as they are: the others have none."""
    layer = shaken(layer_of(model_of(name, d_model=D, heads=HEADS, **options)).double())
    layer.out_proj = nn.Identity()
    return layer


def copy_weights(ours: nn.Linear, *theirs: nn.Linear) -> None:
    for part in ("weight", "bias"):
        for rows, layer in zip(getattr(ours, part).data.chunk(len(theirs)), theirs, strict=True):
            getattr(layer, part).data.copy_(rows)


def collect(theirs: Any, *names: str) -> list[Tensor]:
    """The gradients of maps that are one map of ours: of its weight, and of its bias."""
    layers = [getattr(theirs, name) for name in names]
    return [torch.cat([getattr(layer, part).grad for layer in layers]) for part in ("weight", "bias")]


@pytest.mark.parametrize("tokens", [0, 1, 3])
@pytest.mark.parametrize("shorter", [29, 48])
def test_longformer(tokens: int, shorter: int) -> None:
    window, lengths = 8, torch.tensor([48, shorter])
    ours = attention_of("longformer", window=window, global_tokens=tokens)
    config = LongformerConfig(
        hidden_size=D,
        num_attention_heads=HEADS,
        attention_window=[window],
        attention_probs_dropout_prob=0.0,
    )
    theirs = LongformerSelfAttention(config, 0).double()
    copy_weights(ours.qkv, theirs.query, theirs.key, theirs.value)
    if tokens:
        copy_weights(ours.global_q, theirs.query_global)
        copy_weights(ours.global_kv, theirs.key_global, theirs.value_global)
    positions = torch.arange(48).expand(2, -1)
    padded, first = positions >= lengths.unsqueeze(1), positions < tokens
    mask = torch.where(padded, -10000.0, torch.where(first, 10000.0, 0.0)).double()
    x = draw(2, 48, D)
    x, twin = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = theirs(
        twin,
        attention_mask=mask,
        is_index_masked=padded,
        is_index_global_attn=first,
        is_global_attn=tokens > 0,
    )[0]
    real = ~padded.unsqueeze(2)
    y = ours(x, lengths) * real
    # Its softmax is in single precision.
    torch.testing.assert_close(y, expected * real, rtol=1e-5, atol=1e-6)
    if shorter < 48:
        return  # its gradients are NaN where a window is all padding
    weight = draw(2, 48, D, seed=1)
    torch.autograd.backward([(y * weight).sum(), (expected * weight).sum()])
    pairs = [(x.grad, twin.grad)]
    pairs += zip(
        (ours.qkv.weight.grad, ours.qkv.bias.grad), collect(theirs, "query", "key", "value"), strict=True
    )
    if tokens:
        own = (ours.global_q, ours.global_kv)
        names = (("query_global",), ("key_global", "value_global"))
        for layer, parts in zip(own, names, strict=True):
            pairs += zip((layer.weight.grad, layer.bias.grad), collect(theirs, *parts), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def blocks_of(theirs: Any, length: int, block: int, random: int) -> Tensor:
    """Its random blocks, (h, n - 2, r), of all blocks of queries but the first and the last."""
    state = np.random.get_state()
    np.random.seed(theirs.seed)
    lengths, numbers = theirs._get_rand_attn_plan(length, block, random)
    found = theirs._bigbird_block_rand_mask_with_head(
        from_seq_length=length,
        to_seq_length=length,
        from_block_size=block,
        to_block_size=block,
        num_heads=HEADS,
        plan_from_length=lengths,
        plan_num_rand_blocks=numbers,
    )
    np.random.set_state(state)
    return torch.tensor(np.stack(found)).long()


@pytest.mark.parametrize("seed", [0, 1])
def test_bigbird(seed: int) -> None:
    block, random, length = 4, 3, 64
    config = BigBirdConfig(
        hidden_size=D,
        num_attention_heads=HEADS,
        block_size=block,
        num_random_blocks=random,
        attention_probs_dropout_prob=0.0,
    )
    theirs = BigBirdBlockSparseAttention(config, seed).double().train()  # in evaluation none are drawn
    layer: Any = attention_of("bigbird", block=block, random_blocks=random)
    most = length // block
    ranks = torch.arange(most).expand(HEADS, most, most) + random
    order = torch.arange(random).expand(HEADS, most - 2, random)
    ranks = ranks.clone()
    ranks[:, 1:-1] = ranks[:, 1:-1].scatter(2, blocks_of(theirs, length, block, random), order)
    layer.ranks = ranks.argsort(-1).argsort(-1).to(torch.int32)
    copy_weights(layer.qkv, theirs.query, theirs.key, theirs.value)

    lengths = torch.tensor(
        [length, length - 2]
    )  # padding within the last block alone: it is then the own last
    real = (torch.arange(length) < lengths.unsqueeze(1)).double()
    blocked, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(real, block)
    x = draw(2, length, D)
    x, twin = x.clone().requires_grad_(), x.clone().requires_grad_()
    state = np.random.get_state()
    expected = theirs(
        twin,
        band_mask=band,
        from_mask=rows,
        to_mask=columns,
        from_blocked_mask=blocked,
        to_blocked_mask=blocked,
    )[0]
    np.random.set_state(state)
    y = layer(x, lengths) * real.unsqueeze(2)
    torch.testing.assert_close(y, expected * real.unsqueeze(2), rtol=1e-10, atol=1e-11)
    weight = draw(2, length, D, seed=1) * real.unsqueeze(2)
    torch.autograd.backward([(y * weight).sum(), (expected * weight).sum()])
    torch.testing.assert_close(x.grad, twin.grad, rtol=1e-10, atol=1e-11)
    for one, other in zip(
        (layer.qkv.weight.grad, layer.qkv.bias.grad), collect(theirs, "query", "key", "value"), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
