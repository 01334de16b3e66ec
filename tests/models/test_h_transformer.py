"""H-Transformer-1D against the dense matrix that its levels stand for."""

from typing import Any

import pytest
import torch
from attention_cases import Attend, assert_attends_as, divide_weights, signal
from model_cases import INFO, config_of, find_largest_saved, groups_of, layer_of, model_of, shaken
from pydantic import ValidationError
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from msbench import models
from msbench.models.h_transformer import HierarchicalAttention, attend_by_levels

LENGTHS = (70, 1, 33, 64, 7)


def layer_with(**options: Any) -> HierarchicalAttention:
    layer = layer_of(model_of("h-transformer-1d", **{"block": 4, **options}))
    assert isinstance(layer, HierarchicalAttention)
    return shaken(layer.double(), 0.5)


def normal(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def find_level(i: int, j: int, block: int) -> int:
    """The first level at which the blocks of two positions are the same or next to each other."""
    level = 0
    while abs(i // (block << level) - j // (block << level)) > 1:
        level += 1
    return level


def level_weights(block: int) -> Attend:
    """exp of the mean query times the mean key of the real positions that share a cell at a pair's level."""

    def attend(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
        length, width = q.shape[2:]
        levels = torch.tensor([[find_level(i, j, block) for j in range(length)] for i in range(length)])
        weights = q.new_zeros(*q.shape[:3], length)
        for level in range(int(levels.max()) + 1):
            cell = torch.arange(length) >> level
            share = (cell[:, None] == cell).to(q.dtype) * real[:, None, None].to(q.dtype)
            share = share / share.sum(3, keepdim=True).clamp(min=1)
            scores = (share @ q) @ (share @ k).mT / width**0.5
            weights = weights + (levels == level) * scores.exp()
        return divide_weights(weights * real[:, None, None], v, 1e-300)

    return attend


@pytest.mark.parametrize("options", [{}, {"block": 2, "heads": 1}, {"block": 6, "d_model": 12}])
def test_it_is_a_dense_attention_of_means(options: dict[str, Any]) -> None:
    layer = layer_with(**options)
    x, lengths = signal(*LENGTHS, width=layer.qkv.in_features)
    assert_attends_as(layer, x, lengths, level_weights(layer.block))


@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 15, 16, 17, 31, 128, 129])
def test_a_sequence_may_have_any_length(length: int) -> None:
    assert_attends_as(layer_with(), *signal(length, width=8), level_weights(4))


def test_up_to_two_blocks_it_is_the_softmax() -> None:
    q, k, v = normal(3, 2, 3, 12, 4)
    ones = torch.ones(2, 1, 12, 1, dtype=torch.float64)
    expected = scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(attend_by_levels(q, k, v, ones, 6), expected, rtol=1e-12, atol=1e-13)
    apart = attend_by_levels(q, k, v, ones, 2) - expected
    assert apart.abs().max() > 1e-2


@pytest.mark.parametrize("block", [2, 4, 6])
@pytest.mark.parametrize("length", [3, 25, 64, 100])
def test_every_position_reads_every_other_once(block: int, length: int) -> None:
    """With equal scores the output is the mean of the values: here one position's share is 1 / length."""
    zeros = torch.zeros(1, 1, length, length, dtype=torch.float64)
    one_hot, ones = torch.eye(length, dtype=torch.float64)[None, None], zeros[..., :1] + 1
    y = attend_by_levels(zeros, zeros, one_hot, ones, block)
    torch.testing.assert_close(y, zeros + 1 / length, rtol=1e-12, atol=0)


def test_padding_and_other_examples_change_nothing() -> None:
    layer = layer_with()
    x, lengths = signal(*LENGTHS, 700, width=8)
    together = layer(x, lengths)
    junk = torch.where((torch.arange(700) < lengths[:, None])[..., None], x, 1e3)
    again = layer(junk, lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = layer(x[row : row + 1, :n], lengths[row : row + 1])[0]
        torch.testing.assert_close(together[row, :n], alone, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(again[row, :n], alone, rtol=1e-12, atol=1e-13)


def test_a_mean_is_that_of_real_positions() -> None:
    """A sum over padding too, or its division by the size of the cell, would move the coarse scores."""
    q, k, v = normal(3, 1, 1, 20, 4)
    count = (torch.arange(20) < 17).double().view(1, 1, 20, 1)
    expected = attend_by_levels(q[:, :, :17], k[:, :, :17], v[:, :, :17], count[:, :, :17], 2)
    torch.testing.assert_close(attend_by_levels(q, k, v, count, 2)[:, :, :17], expected)


def test_large_scores_are_finite_and_exact() -> None:
    """Scores of thousands at several levels: exponentials of any of them would overflow."""
    q, k, v = normal(3, 1, 1, 40, 4)
    ones = torch.ones(1, 1, 40, 1, dtype=torch.float64)
    q.requires_grad_()
    y = attend_by_levels(1e4 * q, k, v, ones, 2)
    (gradient,) = torch.autograd.grad(y.sum(), q)
    assert y.isfinite().all()
    assert gradient.isfinite().all()
    scores = torch.stack([row / 2 for row in (1e4 * q @ k.mT)[0, 0]])
    near = (torch.arange(40)[:, None] // 2 - torch.arange(40) // 2).abs() <= 1
    best = scores.masked_fill(~near, -torch.inf).argmax(1)
    sharp = scores.masked_fill(~near, -torch.inf).amax(1)
    levels = torch.tensor([[find_level(i, j, 2) for j in range(40)] for i in range(40)])
    for level in range(1, int(levels.max()) + 1):
        cell = torch.nn.functional.one_hot(torch.arange(40) >> level).double()
        means = cell / cell.sum(0)
        coarse = cell @ (means.T @ (1e4 * q[0, 0]) @ (means.T @ k[0, 0]).T / 2) @ cell.T
        sharp = torch.maximum(sharp, coarse.masked_fill(levels != level, -torch.inf).amax(1))
    alone = scores.gather(1, best[:, None])[:, 0] >= sharp
    assert 0 < int(alone.sum()) < 40
    torch.testing.assert_close(y[0, 0][alone], v[0, 0][best][alone])


def test_a_padded_key_is_no_largest_score() -> None:
    """Its score would be 0, next to which exponentials of very negative ones vanish."""
    v = normal(1, 1, 40, 4)
    real = (torch.arange(40) < 33).double().view(1, 1, 40, 1)
    y = attend_by_levels(100 * torch.ones_like(v), -100 * torch.ones_like(v), v, real, 2)
    mean = v[:, :, :33].mean(2, keepdim=True)
    torch.testing.assert_close(y[:, :, :33], mean.expand(-1, -1, 33, -1), rtol=1e-10, atol=1e-12)


def test_a_position_sees_both_sides() -> None:
    layer, (x, lengths) = layer_with(block=2), signal(40, width=8)
    x.requires_grad_()
    for position in (0, 17, 39):
        (gradient,) = torch.autograd.grad(layer(x, lengths)[0, position].square().sum(), x)
        assert (gradient[0].abs().amax(1) > 1e-6).all()
    assert not models.find_family("h-transformer-1d").is_causal(config_of("h-transformer-1d"))


def test_an_empty_sequence_is_no_nan() -> None:
    layer, (x, _) = layer_with(), signal(40, 40, width=8)
    x.requires_grad_()
    y = layer(x, torch.tensor([40, 0]))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all()
    assert gradient.isfinite().all()


def test_long_sequences_keep_no_square_matrix() -> None:
    layer = layer_of(model_of("h-transformer-1d", heads=2))
    largest = find_largest_saved(lambda: layer(torch.randn(2, 4096, 8), torch.tensor([4096, 700])))
    assert largest <= 2 * 2 * 4096 * 3 * 16 * 4  # the weights of three blocks


@pytest.mark.parametrize(("d", "heads", "expand"), [(16, 4, 4.0), (128, 8, 2.0)])
def test_parameter_counts(d: int, heads: int, expand: float) -> None:
    model = model_of("h-transformer-1d", d_model=d, heads=heads, mlp_expand=expand, layers=1)
    inner = round(expand * d)
    blocks = 4 * d * d + 4 * d + 2 * d * inner + inner + d + 4 * d
    outside = INFO.vocabulary * d + INFO.longest * d + 2 * d + INFO.classes * (d + 1)
    assert models.count_parameters(model) == blocks + outside


def test_matrices_decay_and_the_rest_does_not() -> None:
    for path, group in groups_of(model_of("h-transformer-1d")).items():
        plain = path.endswith("bias") or "norm" in path
        assert group == ("plain" if plain else "weights"), path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads 3 do not divide d_model 8; set heads"),
        ({"block": 3}, r"multiple of 2"),
        ({"block": 0}, "block"),
        ({"bidirectional": True}, "bidirectional"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("h-transformer-1d", **options)
