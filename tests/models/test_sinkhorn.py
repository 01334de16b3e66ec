"""Sinkhorn Transformer against a loop over blocks, with the dense [R K, K] of each."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_cases import heads_of, real_positions, signal
from model_cases import INFO, config_of, find_largest_saved, groups_of, layer_of, model_of, shaken, tokens
from pydantic import ValidationError
from torch import Tensor

from msbench import models
from msbench.errors import DataError
from msbench.models.sinkhorn import SinkhornAttention, attend_to_sorted, compute_sinkhorn

LENGTHS = (40, 1, 33, 16, 7)


def layer_with(**options: Any) -> SinkhornAttention:
    layer = layer_of(model_of("sinkhorn", **{"block": 8, **options}))
    assert isinstance(layer, SinkhornAttention)
    return shaken(layer.double(), 0.3)


def sort_slowly(layer: SinkhornAttention, x: Tensor, head: int) -> Tensor:
    """The sorting matrix of one sequence x (n, d): products and sums, no logarithms, no padding."""
    sums = torch.stack([block.sum(0) for block in torch.split(x, layer.block)])
    outputs = layer.sort_net.weight[head * layer.blocks :][: len(sums)]
    matrix = (sums @ outputs.T / layer.temperature).exp()
    for _ in range(layer.iterations):
        matrix = matrix / matrix.sum(1, keepdim=True)
        matrix = matrix / matrix.sum(0, keepdim=True)
    return matrix


def attend_slowly(q: Tensor, k: Tensor, v: Tensor, matrix: Tensor, size: int) -> Tensor:
    """One head of one sequence, each (n, w)."""
    keys, values, sections = (torch.split(each, size) for each in (k, v, q))
    outputs = []
    for row, queries, own_keys, own_values in zip(matrix, sections, keys, values, strict=True):
        scores, seen = [queries @ own_keys.T / q.shape[1] ** 0.5], [own_values]
        for slot in range(len(keys[0])):
            real = [block for block in range(len(keys)) if slot < len(keys[block])]
            share = row[real].sum() / row.sum()
            key = torch.stack([row[b] * keys[b][slot] for b in real]).sum(0) / share
            value = torch.stack([row[b] * values[b][slot] for b in real]).sum(0) / share
            scores.append((queries @ key / q.shape[1] ** 0.5 + share.log())[:, None])
            seen.append(value[None])
        outputs.append(torch.cat(scores, 1).softmax(1) @ torch.cat(seen))
    return torch.cat(outputs)


def run_slowly(layer: SinkhornAttention, x: Tensor, lengths: Tensor) -> Tensor:
    results = []
    for row, n in zip(x, lengths.tolist(), strict=True):
        q, k, v = heads_of(layer, row[None, :n])
        heads = [
            attend_slowly(q[0, h], k[0, h], v[0, h], sort_slowly(layer, row[:n], h), layer.block)
            for h in range(layer.heads)
        ]
        y = torch.cat(heads, 1) @ layer.out_proj.weight.T + layer.out_proj.bias
        results.append(torch.cat([y, y.new_zeros(x.shape[1] - n, y.shape[1])]))
    return torch.stack(results)


@pytest.mark.parametrize(
    "options",
    [{}, {"heads": 1, "block": 7, "iterations": 2}, {"d_model": 12, "temperature": 3.0}],
)
def test_it_is_attention_to_sorted_and_own_blocks(options: dict[str, Any]) -> None:
    layer = layer_with(**options)
    x, lengths = signal(*LENGTHS, width=layer.qkv.in_features)
    x = (0.3 * x).requires_grad_()
    real = real_positions(lengths, x.shape[1]).unsqueeze(2)
    weight = signal(*LENGTHS, width=x.shape[2], seed=1)[0]
    results = []
    for y in (layer(x, lengths), run_slowly(layer, x, lengths)):
        gradients = torch.autograd.grad((y * weight).sum(), [x, *layer.parameters()])
        results.append([y * real, *gradients])
    for ours, theirs in zip(*results, strict=True):
        assert theirs.abs().max() > 1e-3
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_without_padding_it_is_the_dense_product_of_the_paper() -> None:
    """[R K, K] and [R V, V] of whole blocks, R between blocks: no share, no mean."""
    layer = layer_with(heads=1)
    x, lengths = signal(40, width=8)
    (q,), (k,), (v,) = (each[0] for each in heads_of(layer, x))
    matrix = sort_slowly(layer, x[0], 0)
    moved = torch.kron(matrix, torch.eye(8, dtype=torch.float64))
    mask = torch.kron(torch.eye(5), torch.ones(8, 8)).repeat(1, 2) == 0
    scores = q @ torch.cat([moved @ k, k]).T / 8**0.5
    y = scores.masked_fill(mask, -torch.inf).softmax(1) @ torch.cat([moved @ v, v])
    expected = y @ layer.out_proj.weight.T + layer.out_proj.bias
    torch.testing.assert_close(layer(x, lengths)[0], expected, rtol=1e-10, atol=1e-12)


def test_padding_and_other_examples_change_nothing() -> None:
    layer = layer_of(models.build("sinkhorn", config_of("sinkhorn", block=8), replace(INFO, longest=700), 0))
    layer = shaken(layer.double(), 0.3)
    x, lengths = signal(*LENGTHS, 700, width=8)
    together = layer(x, lengths)
    junk = torch.where(real_positions(lengths, 700)[..., None], x, 1e3)
    again = layer(junk, lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = layer(x[row : row + 1, :n], lengths[row : row + 1])[0]
        torch.testing.assert_close(together[row, :n], alone, rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(again[row, :n], alone, rtol=1e-10, atol=1e-11)


def test_a_matrix_of_few_blocks_is_that_of_the_cut_scores() -> None:
    scores = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    real = torch.tensor([True] * 4 + [False] * 2).view(1, 1, 6)
    padded = compute_sinkhorn(5 * scores, real, 8)
    cut = compute_sinkhorn(5 * scores[..., :4, :4], real[..., :4], 8)
    torch.testing.assert_close(padded[..., :4, :4], cut, rtol=1e-13, atol=0)
    assert not padded[..., 4:, :].any()
    assert not padded[..., 4:].any()


def test_rows_and_columns_add_up_to_one_after_many_iterations() -> None:
    scores = torch.randn(2, 3, 7, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = compute_sinkhorn(3 * scores, torch.ones(2, 1, 7, dtype=torch.bool), 500)
    for axis in (2, 3):
        torch.testing.assert_close(matrix.sum(axis), torch.ones(2, 3, 7, dtype=torch.float64))
    few = compute_sinkhorn(3 * scores, torch.ones(2, 1, 7, dtype=torch.bool), 3)
    torch.testing.assert_close(few.sum(2), torch.ones(2, 3, 7, dtype=torch.float64))  # columns come last
    assert (few.sum(3) - 1).abs().max() > 1e-3


def test_extreme_scores_are_a_permutation_and_finite() -> None:
    order = torch.tensor([2, 0, 3, 1])
    scores = 1e4 * torch.nn.functional.one_hot(order).float()[None, None]
    scores.requires_grad_()
    matrix = compute_sinkhorn(scores, torch.ones(1, 1, 4, dtype=torch.bool), 8)
    assert matrix[0, 0].argmax(1).tolist() == order.tolist()
    torch.testing.assert_close(matrix[0, 0], torch.eye(4)[order])
    (gradient,) = torch.autograd.grad(matrix.square().sum(), scores)
    assert gradient.isfinite().all()


def test_a_permutation_brings_the_values_of_another_block() -> None:
    """Values, not keys; the block of this number in the matrix's row, not in its column."""
    q = torch.zeros(1, 1, 6, 2, dtype=torch.float64)
    k, v = torch.split(signal(6, width=4)[0][None], 2, dim=3)
    matrix = torch.eye(3, dtype=torch.float64)[torch.tensor([1, 2, 0])][None, None]
    y = attend_to_sorted(q, k, v, matrix, torch.tensor([6]), 2)[0, 0]
    means = v[0, 0].view(3, 2, 2).mean(1)
    expected = (means + means[torch.tensor([1, 2, 0])]) / 2
    torch.testing.assert_close(y, expected.repeat_interleave(2, 0))


def test_a_block_that_is_sorted_to_padding_is_not_seen() -> None:
    """A last block with one position: of the block sorted there the first position alone has a key."""
    q, (k, v) = (
        torch.zeros(1, 1, 5, 2, dtype=torch.float64),
        torch.split(signal(5, width=4)[0][None], 2, dim=3),
    )
    matrix = torch.eye(3, dtype=torch.float64)[torch.tensor([2, 1, 0])][None, None]
    y = attend_to_sorted(q, k, v, matrix, torch.tensor([5]), 2)[0, 0]
    torch.testing.assert_close(y[0], (v[0, 0, 4] + v[0, 0, 0] + v[0, 0, 1]) / 3)


@pytest.mark.parametrize("small", [1e-45, 1e-39, 1e-30, 1e-19, 1e-10, 0.0])
def test_the_smallest_shares_have_finite_gradients(small: float) -> None:
    q, k, v = (x.float().requires_grad_() for x in torch.split(signal(5, width=6)[0][None], 2, dim=3))
    matrix = torch.eye(3)[torch.tensor([2, 1, 0])]
    matrix[0, 1] = small
    matrix.requires_grad_()
    y = attend_to_sorted(q, k, v, matrix[None, None], torch.tensor([5]), 2)
    gradients = torch.autograd.grad(y.square().sum(), [q, k, v, matrix])
    assert all(bool(each.isfinite().all()) for each in (y, *gradients))


def test_every_head_has_a_matrix_of_its_own_and_so_has_every_sequence() -> None:
    layer = layer_with()
    x, lengths = signal(40, 40, width=8)
    matrices = layer.sort_blocks(x, lengths)
    assert matrices.shape == (2, 4, 5, 5)
    assert (matrices[0, 0] - matrices[0, 1]).abs().max() > 1e-2
    assert (matrices[0, 0] - matrices[1, 0]).abs().max() > 1e-2


def test_training_draws_no_noise() -> None:
    layer, (x, lengths) = layer_with(), signal(40, width=8)
    random = torch.get_rng_state()
    assert torch.equal(layer.train()(x, lengths), layer.eval()(x, lengths))
    assert torch.equal(torch.get_rng_state(), random)


def test_a_position_sees_all_blocks() -> None:
    layer, (x, lengths) = layer_with(temperature=30.0), signal(40, width=8)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, lengths)[0, 17].square().sum(), x)
    assert (gradient[0].abs().amax(1) > 1e-9).all()
    assert not models.find_family("sinkhorn").is_causal(config_of("sinkhorn"))


def test_longer_sequences_than_the_tasks_are_an_error() -> None:
    model = model_of("sinkhorn", positions="none", block=8)
    model(*tokens(40))
    with pytest.raises(DataError, match=r"41 positions.*ends at 5 blocks of 8"):
        model(*tokens(41))


def test_an_empty_sequence_is_no_nan() -> None:
    layer, (x, _) = layer_with(), signal(40, 40, width=8)
    x.requires_grad_()
    y = layer(x, torch.tensor([40, 0]))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all()
    assert gradient.isfinite().all()


def test_long_sequences_keep_no_square_matrix() -> None:
    config = config_of("sinkhorn", heads=2, layers=1, block=16)
    layer = layer_of(models.build("sinkhorn", config, replace(INFO, longest=2048), 0))
    largest = find_largest_saved(lambda: layer(torch.zeros(2, 2048, 8), torch.tensor([2048, 700])))
    assert largest <= 2 * 2 * 2048 * 2 * 16 * 4  # two blocks of keys, or the matrices of 128 blocks


@pytest.mark.parametrize(("d", "heads", "expand", "block"), [(16, 4, 4.0, 8), (128, 8, 2.0, 7)])
def test_parameter_counts(d: int, heads: int, expand: float, block: int) -> None:
    model = model_of("sinkhorn", d_model=d, heads=heads, mlp_expand=expand, layers=1, block=block)
    inner = round(expand * d)
    sort_net = d * heads * math.ceil(INFO.longest / block)
    blocks = 4 * d * d + 4 * d + sort_net + 2 * d * inner + inner + d + 4 * d
    outside = INFO.vocabulary * d + INFO.longest * d + 2 * d + INFO.classes * (d + 1)
    assert models.count_parameters(model) == blocks + outside


def test_matrices_decay_and_the_rest_does_not() -> None:
    for path, group in groups_of(model_of("sinkhorn")).items():
        plain = path.endswith("bias") or "norm" in path
        assert group == ("plain" if plain else "weights"), path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads 3 do not divide d_model 8; set heads"),
        ({"block": 0}, "block"),
        ({"iterations": 0}, "iterations"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("sinkhorn", **options)
