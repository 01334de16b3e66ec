"""Attention to chosen keys against the dense reference: each example alone, with a mask of its own length."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dense_attention import attend_densely
from model_cases import INFO, config_of, groups_of, layer_of, model_of, shaken, tokens
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from msbench import models

Mask = Callable[[Tensor, Tensor, int], Tensor]
"""True where a query i (l, 1) sees a key j (l) of a sequence of the length n."""


def local(block: int) -> Mask:
    return lambda i, j, n: (i // block == j // block) & (j < n)


CASES: list[tuple[str, dict[str, Any], Mask]] = [
    *(("local-attention", {"block": block}, local(block)) for block in (1, 5, 8, 50)),
]
every_case = pytest.mark.parametrize(("name", "options", "mask"), CASES)
NAMES = sorted({name for name, *_ in CASES})
every_name = pytest.mark.parametrize("name", NAMES)
LENGTHS = (40, 1, 17, 8, 33)


def attention_of(name: str, **options: Any) -> Any:
    """A layer in double precision, away from its start."""
    return shaken(layer_of(model_of(name, heads=2, **options)).double())


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attend_alone(layer: Any, x: Tensor, mask: Mask) -> Tensor:
    """One sequence x (n, d), by the written equations."""
    n, d = x.shape
    q, k, v = functional.linear(x, layer.qkv.weight, layer.qkv.bias).view(n, 3, 2, d // 2).permute(1, 2, 0, 3)
    positions = torch.arange(n)
    y = attend_densely(q, k, v, mask(positions[:, None], positions, n).double())
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
    layer, n = attention_of(name, **options), 37
    positions = torch.arange(n)
    expected = mask(positions[:, None], positions, n)
    x = draw(1, 40, 8).requires_grad_()
    y = layer(x, torch.tensor([n]))
    for i in (0, 7, 20, n - 1):
        gradient = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)[0][0].abs().sum(1)
        own = torch.zeros(40, dtype=torch.bool)
        own[:n] = expected[i]
        assert torch.equal(gradient > 0, own)


@every_name
def test_an_example_is_the_same_alone_and_next_to_one_of_the_longest(name: str) -> None:
    model = model_of(name).double().eval()
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
    for path, group in groups_of(model_of(name)).items():
        plain = path.endswith("bias") or "norm" in path
        assert group == ("plain" if plain else "weights"), path


def test_a_local_block_is_contiguous() -> None:
    """The published code reshapes the sequence, so that its blocks have every l / c-th position."""
    layer, x = attention_of("local-attention", block=10), draw(1, 40, 8).requires_grad_()
    y = layer(x, torch.tensor([40]))
    gradient = torch.autograd.grad(y[0, 12].sum(), x)[0][0].abs().sum(1)
    assert gradient.nonzero().flatten().tolist() == list(range(10, 20))


def test_one_block_for_all_is_the_transformer() -> None:
    ours, theirs = (
        model_of(name, **o).eval() for name, o in (("local-attention", {"block": 40}), ("transformer", {}))
    )
    theirs.load_state_dict(ours.state_dict())
    batch = tokens(40, 9, 1)
    torch.testing.assert_close(ours(*batch), theirs(*batch))


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


def test_a_block_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="block"):
        config_of("local-attention", block=0)
