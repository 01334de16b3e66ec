"""Reformer against a dense mask of chunks, and against the layer of `transformers`."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_cases import real_positions, signal
from model_cases import INFO, config_of, find_largest_saved, groups_of, layer_of, model_of, shaken
from pydantic import ValidationError
from torch import Tensor
from transformers import ReformerConfig as PeerConfig
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

from msbench import models
from msbench.models.reformer import LshAttention, choose_buckets, sort_by_hash

LENGTHS = (70, 1, 33, 48, 2, 8)


def layer_with(**options: Any) -> LshAttention:
    layer = layer_of(model_of("reformer", **{"chunk": 8, "buckets": 6, **options}))
    assert isinstance(layer, LshAttention)
    return shaken(layer.double(), 0.3)


def split(layer: LshAttention, x: Tensor) -> Tensor:
    return torch.unflatten(x, 2, (layer.heads, -1)).transpose(1, 2)


def order_of(q: Tensor, rotations: Tensor) -> list[int]:
    """The positions of one sequence's real queries (n, w), by bucket and then by position."""
    buckets = [int(torch.cat([row @ rotations, -(row @ rotations)]).argmax()) for row in q]
    return sorted(range(len(q)), key=lambda position: buckets[position])


def count_meetings(order: list[int], size: int) -> Tensor:
    """How many times a query of the first axis sees a key of the second, in chunks of this order."""
    n = len(order)
    chunks = [order[start : start + size] for start in range(0, n, size)]
    seen = torch.zeros(n, n, dtype=torch.float64)
    for index, chunk in enumerate(chunks):
        for reached in {index, (index - 1) % len(chunks)}:
            seen[torch.tensor(chunk)[:, None], torch.tensor(chunks[reached])] += 1
    return seen * (1 - torch.eye(n, dtype=torch.float64)) if n > 1 else seen


def attend_densely(layer: LshAttention, x: Tensor, lengths: Tensor) -> Tensor:
    q, v = split(layer, x @ layer.qk.weight.T), split(layer, x @ layer.v.weight.T)
    width = q.shape[3]
    k = q / (q.square().sum(3, keepdim=True) + width * 1e-6).sqrt()
    weights = q.new_zeros(*q.shape[:3], x.shape[1])
    for b, n in enumerate(lengths.tolist()):
        for h in range(layer.heads):
            for r in range(layer.rotations.shape[2]):
                order = order_of(q[b, h, :n], layer.rotations[h, :, r])
                weights[b, h, :n, :n] += count_meetings(order, layer.chunk)
    scores = (q @ k.mT).masked_fill(weights == 0, -torch.inf)
    tops = scores.amax(3, keepdim=True).clamp(min=-1e300)
    weights = weights * (scores - tops).exp()
    y = weights / weights.sum(3, keepdim=True).clamp(min=1e-300) @ v
    return y.transpose(1, 2).flatten(2) @ layer.out_proj.weight.T


@pytest.mark.parametrize(
    "options", [{}, {"heads": 1, "chunk": 5}, {"rounds": 3, "d_model": 12}, {"rounds": 2, "chunk": 100}]
)
def test_it_is_attention_with_a_mask_of_chunks(options: dict[str, Any]) -> None:
    layer = layer_with(**options)
    x, lengths = signal(*LENGTHS, width=layer.qk.in_features)
    x.requires_grad_()
    real = real_positions(lengths, x.shape[1]).unsqueeze(2)
    weight = signal(*LENGTHS, width=x.shape[2], seed=1)[0]
    results = []
    for y in (layer(x, lengths), attend_densely(layer, x, lengths)):
        gradients = torch.autograd.grad((y * weight).sum(), [x, *layer.parameters()])
        results.append([y * real, *gradients])
    for ours, theirs in zip(*results, strict=True):
        assert theirs.abs().max() > 1e-3
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_one_round_is_that_of_transformers() -> None:
    """Whole chunks alone: of other lengths its first chunk sees the padding of the last."""
    layer = layer_with(d_model=12, heads=3, chunk=8, buckets=6)
    settings = PeerConfig(
        hidden_size=12,
        num_attention_heads=3,
        attention_head_size=4,
        lsh_attn_chunk_length=8,
        lsh_num_chunks_before=1,
        lsh_num_chunks_after=0,
        num_hashes=1,
        num_buckets=6,
        lsh_attention_probs_dropout_prob=0.0,
        is_decoder=False,
        hash_seed=3,
    )
    peer = LSHSelfAttention(settings).double()
    peer.load_state_dict({"query_key.weight": layer.qk.weight, "value.weight": layer.v.weight})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        layer.rotations = torch.randn(layer.rotations.shape, dtype=torch.float64)
    x, lengths = signal(48, 48, width=12)
    x.requires_grad_()
    with torch.random.fork_rng(devices=[]):
        theirs = peer(x).hidden_states @ layer.out_proj.weight.T
    weight = signal(48, 48, width=12, seed=1)[0]
    ours = layer(x, lengths)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    found = torch.autograd.grad((ours * weight).sum(), [x, layer.qk.weight, layer.v.weight])
    expected = torch.autograd.grad((theirs * weight).sum(), [x, peer.query_key.weight, peer.value.weight])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rounds", [1, 3])
def test_padding_and_other_examples_change_nothing(rounds: int) -> None:
    layer = layer_with(rounds=rounds)
    x, lengths = signal(*LENGTHS, 700, width=8)
    together = layer(x, lengths)
    junk = torch.where(real_positions(lengths, 700)[..., None], x, 1e3)
    again = layer(junk, lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = layer(x[row : row + 1, :n], lengths[row : row + 1])[0]
        torch.testing.assert_close(together[row, :n], alone, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(again[row, :n], alone, rtol=1e-12, atol=1e-12)


def test_the_number_of_buckets_is_that_of_the_task() -> None:
    for longest, chunk, expected in (
        (2000, 64, 32),
        (2048, 64, 64),
        (100, 64, 2),
        (40, 64, 2),
        (16384, 64, 512),
    ):
        assert choose_buckets(longest, chunk) == expected
        config = config_of("reformer", chunk=chunk)
        model = models.build("reformer", config, replace(INFO, longest=longest), 0)
        assert layer_of(model).rotations.shape == (4, 2, 1, expected // 2)
    assert layer_of(model_of("reformer", buckets=10)).rotations.shape[3] == 5


def test_an_order_is_by_bucket_and_position_with_padding_last() -> None:
    q = torch.randn(3, 2, 50, 4, generator=torch.Generator().manual_seed(0))
    rotations = torch.randn(2, 4, 3, 4, generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([50, 31, 0])
    slots = sort_by_hash(q, rotations, lengths)
    for b, n in enumerate(lengths.tolist()):
        for h in range(2):
            for r in range(3):
                expected = [*order_of(q[b, h, :n], rotations[h, :, r]), *range(n, 50)]
                assert slots[b, h, r].tolist() == expected


def test_similar_positions_meet() -> None:
    """Of two directions, each in its own chunks, wherever its positions are: what a window would not do."""
    layer = layer_with(chunk=16, heads=1, d_model=4)
    x, lengths = signal(64, width=4)
    directions = torch.tensor([[3.0, 0, 0, 0], [0, 0, 3, 0]], dtype=torch.float64)
    with torch.no_grad():
        for linear in (layer.qk, layer.v, layer.out_proj):
            linear.weight.copy_(torch.eye(4))
        layer.rotations.copy_(torch.eye(4)[:, :3].view(1, 4, 1, 3))
        kind = (torch.arange(64) * 7 % 64) % 2
        x = directions[kind][None] + 0.1 * x
    slots = sort_by_hash(x[:, None], layer.rotations, lengths)[0, 0, 0]
    assert kind[slots].tolist() == [0] * 32 + [1] * 32


def test_a_position_sees_itself_only_without_others() -> None:
    layer = layer_with(heads=1, chunk=4)
    for n in (1, 2):
        x, lengths = signal(n, width=8)
        y = layer(x, lengths)
        values = (x @ layer.v.weight.T @ layer.out_proj.weight.T)[0]
        torch.testing.assert_close(y[0], values if n == 1 else values.flip(0))


def test_evaluation_and_training_draw_nothing() -> None:
    model = model_of("reformer", chunk=4, rounds=2)
    batch = torch.randint(1, 11, (2, 30)), torch.tensor([30, 17])
    random = torch.get_rng_state()
    logits = [model.train(mode)(*batch) for mode in (True, True, False, False)]
    assert all(torch.equal(logits[0], each) for each in logits[1:])
    assert torch.equal(torch.get_rng_state(), random)


def test_rotations_are_normal_and_differ_between_heads_and_layers() -> None:
    config = config_of("reformer", chunk=4, d_model=64, buckets=64, rounds=4)
    model = models.build("reformer", config, INFO, 0)
    one, other = (layer_of(model, index).rotations for index in (0, 2))
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])
    assert float(one.std()) == pytest.approx(1, rel=0.05)
    assert float(one.mean()) == pytest.approx(0, abs=0.05)
    assert "blocks.0.layer.rotations" in model.state_dict()


def test_weights_start_as_in_the_transformer() -> None:
    layer = layer_of(model_of("reformer", d_model=64))
    for linear in (layer.qk, layer.v, layer.out_proj):
        bound = (6 / 128) ** 0.5
        assert 0.98 * bound < float(linear.weight.detach().abs().max()) <= bound


def test_a_position_sees_both_sides() -> None:
    layer, (x, lengths) = layer_with(chunk=64), signal(40, width=8)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, lengths)[0, 17].square().sum(), x)
    assert (gradient[0].abs().amax(1) > 1e-9).all()
    assert not models.find_family("reformer").is_causal(config_of("reformer"))


@pytest.mark.parametrize("rounds", [1, 2])
def test_an_empty_sequence_is_no_nan(rounds: int) -> None:
    layer, (x, _) = layer_with(rounds=rounds), signal(40, 40, width=8)
    x.requires_grad_()
    y = layer(x, torch.tensor([40, 0]))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("rounds", [1, 2])
def test_long_sequences_keep_no_square_matrix(rounds: int) -> None:
    layer = layer_of(model_of("reformer", heads=2, chunk=16, rounds=rounds))
    largest = find_largest_saved(lambda: layer(torch.zeros(2, 4096, 8), torch.tensor([4096, 700])))
    assert largest <= 2 * 2 * rounds * 4096 * 2 * 16 * 4  # the weights of two chunks, or a head's vectors


@pytest.mark.parametrize(("d", "heads", "expand"), [(16, 4, 4.0), (128, 8, 2.0)])
def test_parameter_counts(d: int, heads: int, expand: float) -> None:
    model = model_of("reformer", d_model=d, heads=heads, mlp_expand=expand, layers=1, rounds=2)
    inner = round(expand * d)
    blocks = 3 * d * d + 2 * d * inner + inner + d + 4 * d
    outside = INFO.vocabulary * d + INFO.longest * d + 2 * d + INFO.classes * (d + 1)
    assert models.count_parameters(model) == blocks + outside


def test_matrices_decay_and_the_rest_does_not() -> None:
    for path, group in groups_of(model_of("reformer")).items():
        plain = path.endswith("bias") or "norm" in path
        assert group == ("plain" if plain else "weights"), path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads 3 do not divide d_model 8; set heads"),
        ({"buckets": 5}, r"multiple of 2"),
        ({"rounds": 0}, "rounds"),
        ({"chunk": 0}, "chunk"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("reformer", **options)
