"""Attention to chosen keys against the dense reference: each example alone, with a mask of its own length."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from dense_attention import attend_densely
from model_cases import INFO, config_of, groups_of, layer_of, model_of, shaken, stepped, tokens
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.errors import DataError

Mask = Callable[[Any, int], Tensor]
"""True where a query sees a key, (n, n) or (h, n, n), from a layer and a sequence's length n."""


def grid(n: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n).unsqueeze(1), torch.arange(n)


def local(block: int) -> Mask:
    def mask(_: Any, n: int) -> Tensor:
        i, j = grid(n)
        return i // block == j // block

    return mask


def longformer(window: int, tokens: int) -> Mask:
    def mask(_: Any, n: int) -> Tensor:
        i, j = grid(n)
        return ((i - j).abs() <= window // 2) | (j < tokens) | (i < tokens)

    return mask


def bigbird(block: int, random: int) -> Mask:
    def mask(layer: Any, n: int) -> Tensor:
        last, seen = (n - 1) // block, torch.zeros(2, n, n, dtype=torch.bool)
        for head, own in torch.cartesian_prod(torch.arange(2), torch.arange(last + 1)).tolist():
            order = layer.ranks[head, own].argsort().tolist()
            fixed = {0, own - 1, own, own + 1, last} & set(range(last + 1))
            drawn = [each for each in order if each <= last and each not in fixed][:random]
            keys = set(range(last + 1)) if own in (0, last) else fixed | set(drawn)
            for key in keys:
                seen[head, own * block : (own + 1) * block, key * block : (key + 1) * block] = True
        return seen

    return mask


def sparse(block: int, summaries: int) -> Mask:
    def mask(_: Any, n: int) -> Tensor:
        i, j = grid(n)
        return (j <= i) & ((i // block == j // block) | (j % block >= block - summaries))

    return mask


LOCAL = (1, 5, 8, 50)
WINDOWS = ((1, 0), (2, 0), (11, 0), (32, 0), (90, 0), (8, 1), (6, 4), (90, 3))
RANDOM = ((1, 3), (3, 2), (4, 0), (8, 3), (5, 3), (64, 3))
SPARSE = ((7, 2), (4, 4), (1, 1), (3, 1), (50, 5), (2, 1))
CASES: list[tuple[str, dict[str, Any], Mask]] = [
    *(("local-attention", {"block": block}, local(block)) for block in LOCAL),
    *(("longformer", {"window": w, "global_tokens": g}, longformer(w, g)) for w, g in WINDOWS),
    *(("bigbird", {"block": c, "random_blocks": r}, bigbird(c, r)) for c, r in RANDOM),
    *(("sparse-transformer", {"block": b, "summaries": c}, sparse(b, c)) for b, c in SPARSE),
]
every_case = pytest.mark.parametrize(("name", "options", "mask"), CASES)
NAMES = sorted({name for name, *_ in CASES})
every_name = pytest.mark.parametrize("name", NAMES)
SMALL: dict[str, dict[str, Any]] = {
    "local-attention": {"block": 6},
    "longformer": {"window": 6, "global_tokens": 2},
    "bigbird": {"block": 3, "random_blocks": 2},
    "sparse-transformer": {"block": 6, "summaries": 2},
}
LENGTHS = (40, 1, 17, 8, 33)


def attention_of(name: str, **options: Any) -> Any:
    """A layer in double precision, away from its start."""
    return shaken(layer_of(model_of(name, heads=2, **options)).double())


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attend_alone(layer: Any, x: Tensor, mask: Mask) -> Tensor:
    """One sequence x (n, d), by the written equations."""
    n, d = x.shape

    def split(y: Tensor) -> Tensor:
        return y.view(n, 2, d // 2).transpose(0, 1)

    q, k, v = (split(y) for y in functional.linear(x, layer.qkv.weight, layer.qkv.bias).chunk(3, 1))
    counts = mask(layer, n).double()
    y = attend_densely(q, k, v, counts)
    if tokens := getattr(layer, "tokens", 0):
        k, v = (split(y) for y in layer.global_kv(x).chunk(2, 1))
        own = attend_densely(split(layer.global_q(x)), k, v, torch.ones(n, n, dtype=x.dtype))
        y = torch.cat([own[:, :tokens], y[:, tokens:]], 1)
    return functional.linear(y.transpose(0, 1).reshape(n, d), layer.out_proj.weight, layer.out_proj.bias)


@every_case
def test_outputs_and_gradients_are_those_of_the_dense_softmax(
    name: str, options: dict[str, Any], mask: Mask
) -> None:
    layer, lengths = attention_of(name, **options), torch.tensor(LENGTHS)
    x = draw(len(LENGTHS), 40, 8).requires_grad_()  # with junk behind the ends
    together = layer(x, lengths)
    ours = torch.cat([row[:n] for row, n in zip(together, LENGTHS, strict=True)])
    dense = torch.cat([attend_alone(layer, row[:n], mask) for row, n in zip(x, LENGTHS, strict=True)])
    torch.testing.assert_close(ours, dense, rtol=1e-11, atol=1e-12)
    wanted = [x, *layer.parameters()]
    weight = draw(*ours.shape, seed=1)
    for one, other in zip(
        *(torch.autograd.grad((y * weight).sum(), wanted) for y in (ours, dense)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@every_case
def test_a_query_sees_the_keys_of_its_mask_and_no_other(
    name: str, options: dict[str, Any], mask: Mask
) -> None:
    layer, n = attention_of(name, **options), 37  # of the 40 that are in the batch
    expected = mask(layer, n)
    x = draw(1, 40, 8).requires_grad_()
    y = layer(x, torch.tensor([n]))
    for i in (0, 7, 20, n - 1):
        gradient = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)[0][0].abs().sum(1)
        own = torch.zeros(40, dtype=torch.bool)
        own[:n] = expected[i] if expected.ndim == 2 else expected[:, i].any(0)
        assert torch.equal(gradient > 0, own)


@every_name
def test_an_example_is_the_same_alone_and_next_to_one_of_the_longest(name: str) -> None:
    model = model_of(name, **SMALL[name]).double().eval()
    inputs, lengths = tokens(4, 1, 40, 23)
    together = model(inputs, lengths)
    assert torch.equal(model(inputs, lengths), together)
    for row, n in enumerate(lengths.tolist()):
        alone = model(inputs[row : row + 1, :n], lengths[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-13)


@every_name
@pytest.mark.parametrize("n", [1, INFO.longest])
def test_a_single_sequence_of_any_length_gives_every_parameter_a_gradient(name: str, n: int) -> None:
    model = model_of(name)
    model(*tokens(n)).square().sum().backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None, path
        assert torch.isfinite(parameter.grad).all(), path


@every_name
def test_an_empty_sequence_is_no_nan(name: str) -> None:
    y = layer_of(model_of(name))(torch.randn(2, 5, 8), torch.tensor([5, 0]))
    assert torch.isfinite(y).all()


@every_name
@pytest.mark.parametrize(("d", "heads", "expand"), [(16, 4, 4.0), (128, 8, 2.0)])
def test_parameter_counts(name: str, d: int, heads: int, expand: float) -> None:
    model = model_of(name, d_model=d, heads=heads, mlp_expand=expand, layers=1)
    inner = round(expand * d)
    blocks = 3 * d * d + 3 * d + d * d + d + 2 * d * inner + inner + d + 4 * d
    outside = INFO.vocabulary * d + INFO.longest * d + 2 * d + INFO.classes * (d + 1)
    assert models.count_parameters(model) == blocks + outside


@every_name
def test_weights_start_as_the_transformers(name: str) -> None:
    """With the same seed: keys are chosen without a random number that a parameter would miss."""
    ours, theirs = (layer_of(model_of(each, d_model=16)) for each in (name, "transformer"))
    assert torch.equal(ours.qkv.weight, theirs.qkv.weight)
    assert torch.equal(ours.out_proj.weight, theirs.out_proj.weight)


@every_name
def test_matrices_decay_and_the_rest_does_not(name: str) -> None:
    options = {"global_tokens": 1} if name == "longformer" else {}
    for path, group in groups_of(model_of(name, **options)).items():
        plain = path.endswith("bias") or "norm" in path
        assert group == ("plain" if plain else "weights"), path


@every_name
@pytest.mark.parametrize("long", [1024, 4096])
def test_what_is_kept_grows_as_the_time(name: str, long: int) -> None:
    small: dict[str, Any] = {"longformer": {"window": 16}, "sparse-transformer": {}}.get(name, {"block": 16})

    def count_bytes(length: int) -> int:
        config = config_of(name, layers=1, **small)
        model = models.build(name, config, replace(INFO, longest=length), 0)
        storages: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(*tokens(length, length // 3))
        return sum(storages.values())

    growth = 2**1.5 if name == "sparse-transformer" else 2
    assert count_bytes(long) <= 1.05 * growth * count_bytes(long // 2)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("local-attention", {"block": 40}),
        ("longformer", {"window": 80}),
        ("bigbird", {"block": 40}),
        ("bigbird", {"block": 8, "random_blocks": 3}),  # 5 blocks, of which no one is left out
    ],
)
def test_a_pattern_that_holds_all_keys_is_the_transformers(name: str, options: dict[str, Any]) -> None:
    ours, theirs = model_of(name, **options).eval(), model_of("transformer").eval()
    theirs.load_state_dict({k: v for k, v in ours.state_dict().items() if "ranks" not in k})
    batch = tokens(40, 9, 1)
    torch.testing.assert_close(ours(*batch), theirs(*batch))


def test_one_block_of_a_sparse_transformer_is_the_causal_transformer() -> None:
    ours = model_of("sparse-transformer", block=40).eval()
    theirs = model_of("transformer", causal=True).eval()
    theirs.load_state_dict(ours.state_dict())
    batch = tokens(40, 9, 1)
    torch.testing.assert_close(ours(*batch), theirs(*batch))


def test_the_sparse_transformer_is_causal_and_the_others_are_not() -> None:
    x = draw(1, 40, 8)
    later = x.clone()
    later[:, 20:] += 1
    for name in NAMES:
        layer, lengths = attention_of(name), torch.tensor([40])
        apart = float((layer(x, lengths)[:, :20] - layer(later, lengths)[:, :20]).detach().abs().max())
        causal = name == "sparse-transformer"
        assert (apart == 0) == causal
        assert causal or apart > 1e-3
        assert models.find_family(name).is_causal(config_of(name)) == causal
        assert models.count_states_per_channel(name, config_of(name)) == 0


@pytest.mark.parametrize(("block", "summaries"), SPARSE)
def test_a_sparse_transformer_can_read_step_by_step(block: int, summaries: int) -> None:
    layer, x = attention_of("sparse-transformer", block=block, summaries=summaries), draw(2, 23, 8)
    expected = layer(x, torch.tensor([23, 23]))
    torch.testing.assert_close(stepped(layer, x), expected, rtol=1e-11, atol=1e-12)
    with torch.no_grad():
        state = layer.start(x[:, 0])
        for position in x.unbind(1):
            _, state = layer.step(position, state)
    assert [part.shape[2] for part in state] == [summaries * (23 // block)] * 2 + [23 % block] * 2


def test_a_block_is_the_square_root_of_the_longest_sequence_if_it_is_not_set() -> None:
    layer = layer_of(model_of("sparse-transformer", summaries=20))
    assert (layer.block, layer.summaries) == (7, 7)


def test_summaries_are_copied_twice_at_most_for_each_position() -> None:
    for length, block, summaries in ((2000, 50, 10), (4000, 64, 32), (1000, 8, 8), (1000, 100, 1)):
        layer = attention_of("sparse-transformer", block=block, summaries=summaries)
        q = torch.zeros(1, 1, length, 2, dtype=torch.float64, requires_grad=True)
        keys: list[int] = []

        def keep(tensor: Tensor, found: list[int] = keys) -> Tensor:
            if tensor.ndim == 4 and tensor.shape[3] == 2:
                found.append(tensor.shape[0] * tensor.shape[2])
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            layer.attend(q, q, q, torch.tensor([length]))
        assert max(keys) <= 4.5 * length, (length, block, summaries)


def test_a_local_block_is_contiguous() -> None:
    """The published code reshapes the sequence, so that its blocks have every l / c-th position."""
    layer, x = attention_of("local-attention", block=10), draw(1, 40, 8).requires_grad_()
    y = layer(x, torch.tensor([40]))
    gradient = torch.autograd.grad(y[0, 12].sum(), x)[0][0].abs().sum(1)
    assert gradient.nonzero().flatten().tolist() == list(range(10, 20))


def test_global_projections_start_as_the_others_and_learn_on_their_own() -> None:
    layer = layer_of(model_of("longformer", window=4, global_tokens=2))
    weight = torch.cat([layer.global_q.weight, layer.global_kv.weight])
    assert torch.equal(weight, layer.qkv.weight)
    assert not layer.global_q.bias.any()
    assert not layer.global_kv.bias.any()
    names = [name for name, _ in layer.named_parameters()]
    assert [name for name in names if "global" in name] == [
        *(f"global_q.{part}" for part in ("weight", "bias")),
        *(f"global_kv.{part}" for part in ("weight", "bias")),
    ]
    plain = layer_of(model_of("longformer", window=4))
    extra = models.count_parameters(layer) - models.count_parameters(plain)
    assert extra == 3 * 8 * 8 + 3 * 8


def test_a_global_key_within_the_window_counts_once() -> None:
    """With the projections equal, one global token in a window that holds all is the Transformer."""
    ours, theirs = model_of("longformer", window=80, global_tokens=1).eval(), model_of("transformer").eval()
    theirs.load_state_dict({k: v for k, v in ours.state_dict().items() if "global" not in k})
    batch = tokens(40, 9, 1)
    torch.testing.assert_close(ours(*batch), theirs(*batch))


def blocks_of(lengths: list[int], padded: int, block: int, random: int) -> Tensor:
    layer = attention_of("bigbird", block=block, random_blocks=random)
    last = (torch.tensor(lengths) - 1) // block
    listed: Tensor = layer.list_blocks(last, -(-padded // block))
    return listed


def test_each_sequence_has_its_random_blocks_whatever_it_is_padded_to() -> None:
    lengths = [40, 23, 9, 1]
    together = blocks_of(lengths, 40, 2, 3)
    for row, n in enumerate(lengths):
        own, alone = -(-n // 2), blocks_of([n], n, 2, 3)[0]
        for head, query in torch.cartesian_prod(torch.arange(2), torch.arange(own)).tolist():
            seen = [each for each in together[row, head, query].tolist() if each >= 0]
            fixed = {0, query - 1, query, query + 1, own - 1} & set(range(own))
            assert len(set(seen)) == len(seen) == min(own, len(fixed) + 3)
            assert fixed <= set(seen) <= set(range(own))
            assert set(seen) == {each for each in alone[head, query].tolist() if each >= 0}


def test_random_blocks_differ_between_heads_layers_and_seeds_and_are_spread_evenly() -> None:
    orders = [
        layer_of(model_of("bigbird", seed, block=2, d_model=64, heads=64), index).ranks
        for seed, index in ((0, 0), (0, 2), (1, 0))
    ]
    for one, other in ((0, 1), (0, 2)):
        assert not torch.equal(orders[one], orders[other])
    first = orders[0]
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first.sort(-1).values, torch.arange(20, dtype=torch.int32).expand_as(first))
    # 64 heads x 20 rows: the mean of a uniform rank has the deviation 5.8 / sqrt(1280) = 0.16.
    assert float((first.double().mean((0, 1)) - 9.5).abs().max()) < 0.8


def test_a_sequence_beyond_the_random_blocks_is_refused() -> None:
    model = model_of("bigbird", block=4, positions="none")
    with pytest.raises(DataError, match=r"11 blocks.*10.*longest"):
        model(*tokens(41))


@every_name
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads 3 do not divide d_model 8; set heads"),
        ({"mlp_expand": 0.01}, r"mlp_expand 0\.01 times d_model 8 is a width of 0"),
        ({"bidirectional": True}, "bidirectional"),
    ],
)
def test_bad_configurations_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of(name, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("local-attention", {"block": 0}, "block"),
        ("bigbird", {"block": 0}, "block"),
        ("longformer", {"window": 0}, "window"),
        ("longformer", {"causal": True}, "causal"),
        ("sparse-transformer", {"block": 4, "summaries": 5}, r"summaries 5 are more than the block of 4"),
        ("sparse-transformer", {"summaries": 0}, "summaries"),
    ],
)
def test_patterns_without_a_meaning_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of(name, **options)
