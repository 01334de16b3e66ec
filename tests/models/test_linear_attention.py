"""Linear attention against the dense matrix of its weights, and that no such matrix is kept."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from attention_cases import Attend, assert_attends_as, divide_weights, signal
from model_cases import (
    INFO,
    config_of,
    find_largest_saved,
    groups_of,
    layer_of,
    model_of,
    shaken,
    stepped,
    tokens,
)
from pydantic import ValidationError
from torch import Tensor

from msbench import models
from msbench.models.linear_attention import RandomFeatures, draw_orthogonal_rows, sum_earlier_values

NAMES = ("linear-transformer", "cosformer", "performer")
CASES = [(name, causal) for name in NAMES for causal in (False, True) if not (causal and name == "performer")]
every_case = pytest.mark.parametrize(("name", "causal"), CASES)
LENGTHS = (29, 1, 8, 29)


def layer_for(name: str, longest: int = INFO.longest, **options: Any) -> Any:
    model = models.build(name, config_of(name, **options), replace(INFO, longest=longest), 0)
    return shaken(layer_of(model).double(), 0.3)


def linear_transformer(q: Tensor, k: Tensor, v: Tensor, real: Tensor, causal: bool) -> Tensor:
    phi_q, phi_k = (torch.where(x > 0, x + 1, x.clamp(max=0).exp()) for x in (q, k))
    weights = torch.einsum("bhif,bhjf->bhij", phi_q, phi_k) * real
    return divide_weights(weights.tril() if causal else weights, v, epsilon=1e-6)


def cosformer(longest: int, q: Tensor, k: Tensor, v: Tensor, real: Tensor, causal: bool) -> Tensor:
    positions = torch.arange(q.shape[2], dtype=torch.float64)
    falling = torch.cos(math.pi / 2 * (positions[:, None] - positions) / longest)
    weights = torch.einsum("bhif,bhjf->bhij", q.clamp(min=0), k.clamp(min=0)) * falling * real
    return divide_weights(weights.tril() if causal else weights, v, least=1e-6)


def performer(projection: Tensor) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
        exponents = [
            torch.einsum("bhlw,fw->bhlf", x, projection) / x.shape[3] ** 0.25
            - torch.einsum("bhlw,bhlw->bhl", x, x)[..., None] / x.shape[3] ** 0.5 / 2
            for x in (q, k)
        ]
        keys = exponents[1].masked_fill(~real[:, None, :, None], -1e30).detach()
        largest = [exponents[0].detach().max(3, keepdim=True).values, keys.flatten(2).max(2).values]
        phi_q = (exponents[0] - largest[0]).exp() + 1e-6
        phi_k = (exponents[1] - largest[1][..., None, None]).exp() + 1e-6
        return divide_weights(torch.einsum("bhif,bhjf->bhij", phi_q, phi_k) * real[:, None, None], v)

    return attend


def reference(layer: Any, name: str, causal: bool, longest: int = INFO.longest) -> Attend:
    if name == "performer":
        return performer(layer.features.projection)
    dense = linear_transformer if name == "linear-transformer" else partial(cosformer, longest)
    return lambda q, k, v, real: dense(q, k, v, real[:, None, None], causal)


@every_case
@pytest.mark.parametrize("options", [{"heads": 1}, {"heads": 4, "d_model": 12}])
def test_it_is_attention_with_products_of_features_as_weights(
    name: str, causal: bool, options: dict[str, Any]
) -> None:
    layer = layer_for(name, causal=causal, **options)
    assert_attends_as(layer, *signal(*LENGTHS, width=layer.qkv.in_features), reference(layer, name, causal))


@pytest.mark.parametrize("name", ["linear-transformer", "cosformer"])
@pytest.mark.parametrize("length", [1, 39, 40, 63, 64, 65, 200])
def test_a_causal_sequence_may_end_anywhere_in_a_chunk(name: str, length: int) -> None:
    layer = layer_for(name, longest=200, causal=True)
    dense = reference(layer, name, causal=True, longest=200)
    assert_attends_as(layer, *signal(length, 1, width=8), dense)


def test_the_size_of_a_chunk_changes_nothing() -> None:
    phi_q, phi_k, values = (torch.randn(2, 3, 40, n, dtype=torch.float64) for n in (5, 5, 4))
    expected = (phi_q @ phi_k.mT).tril() @ values
    for chunk in (1, 3, 20, 40, 64):
        torch.testing.assert_close(sum_earlier_values(phi_q, phi_k, values, chunk), expected)


@every_case
def test_padding_is_masked_after_the_features(name: str, causal: bool) -> None:
    """The features of zero are not zero: a batch's longest sequence would weigh in everybody's mean."""
    layer = layer_for(name, causal=causal)
    (x, lengths), real = signal(4, 40, 1, width=8), slice(None, 4)
    alone = layer(x[:1, real], lengths[:1])
    torch.testing.assert_close(layer(x, lengths)[:1, real], alone, rtol=1e-12, atol=1e-13)
    junk = x.clone()
    junk[0, 4:] = 1e3
    assert torch.equal(layer(junk, lengths)[:1, real], layer(x, lengths)[:1, real])
    everywhere = layer(x, torch.tensor([40, 40, 1]))[:1, real]
    assert ((everywhere - alone).abs().max() > 0.05) != causal


@pytest.mark.parametrize(("name", "features"), [("linear-transformer", 2), ("cosformer", 4)])
@pytest.mark.parametrize("length", [1, 40])
def test_a_causal_layer_is_a_recurrence(name: str, features: int, length: int) -> None:
    layer = layer_for(name, causal=True)
    x, lengths = signal(length, length, width=8)
    assert layer.start(x[:, 0])[0].shape == (2, 4, features, 3)
    torch.testing.assert_close(stepped(layer, x), layer(x, lengths), rtol=1e-11, atol=1e-12)
    config = config_of(name, causal=True)
    assert models.count_states_per_channel(name, config) == features * 3 / 2


@every_case
def test_causality_is_an_option(name: str, causal: bool) -> None:
    x, lengths = signal(9, width=8)
    later = x.clone()
    later[:, 8] += 1
    layer = layer_for(name, causal=causal)
    apart = float((layer(x, lengths)[:, :8] - layer(later, lengths)[:, :8]).detach().abs().max())
    assert (apart == 0) == causal
    assert causal or apart > 1e-4
    config = config_of(name, causal=causal)
    assert models.find_family(name).is_causal(config) == causal
    assert causal or models.count_states_per_channel(name, config) == 0


def test_order_matters_by_positions_or_distances_or_causality_alone() -> None:
    inputs, lengths = tokens(9)
    cases: list[tuple[str, dict[str, Any], bool]] = [
        *((name, {}, True) for name in NAMES),
        ("linear-transformer", {"positions": "none"}, False),
        ("performer", {"positions": "none"}, False),
        ("linear-transformer", {"positions": "none", "causal": True}, True),
        ("cosformer", {"positions": "none"}, True),
    ]
    for name, options, differs in cases:
        model = shaken(model_of(name, **options).eval().double(), 0.3)
        order = torch.tensor([1, 0, *range(2, 9)])  # cosFormer knows no direction, so not reversed
        apart = float((model(inputs, lengths) - model(inputs[:, order], lengths)).detach().abs().max())
        assert (apart > 1e-6) == differs, (name, options)
        assert differs or apart < 1e-12


@every_case
def test_long_sequences_keep_no_square_matrix(name: str, causal: bool) -> None:
    length = 2048
    config = config_of(name, d_model=8, layers=1, heads=2, causal=causal)
    model = models.build(name, config, replace(INFO, longest=length), 0)
    largest = find_largest_saved(lambda: model(*tokens(length, 700)))
    assert largest <= 2 * length * (2 * 64 if causal else 32) * 4  # chunks of 64 for both heads


@every_case
def test_an_empty_sequence_is_no_nan(name: str, causal: bool) -> None:
    layer = layer_of(model_of(name, causal=causal))
    x = torch.randn(2, 5, 8, requires_grad=True)
    y = layer(x, torch.tensor([5, 0]))
    (gradient,) = torch.autograd.grad(y.square().sum(), [x])
    assert torch.isfinite(y).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_leaves_features_in_full(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = layer_of(model_of(name))
    seen: list[torch.dtype] = []
    found = type(layer).sum_values

    def see(self: Any, *parts: Tensor) -> Tensor:
        seen.extend(part.dtype for part in parts)
        y: Tensor = found(self, *parts)
        return y

    monkeypatch.setattr(type(layer), "sum_values", see)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.randn(2, 5, 8), torch.tensor([5, 5]))
    assert seen == [torch.float32] * 3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("d", "heads", "expand"), [(16, 4, 4.0), (128, 8, 2.0)])
def test_it_starts_and_counts_as_the_transformer(name: str, d: int, heads: int, expand: float) -> None:
    ours, theirs = (
        model_of(each, d_model=d, heads=heads, mlp_expand=expand) for each in (name, "transformer")
    )
    expected = dict(theirs.named_parameters())
    if name != "performer":  # which draws its features in between
        assert all(torch.equal(value, expected[name]) for name, value in ours.named_parameters())
    assert models.count_parameters(ours) == models.count_parameters(theirs)
    assert groups_of(ours) == groups_of(theirs)
    assert models.count_parameters(layer_of(ours)) == 4 * d * d + 4 * d


def test_a_query_without_weights_is_zero() -> None:
    """In cosFormer, where ReLU leaves nothing of it, or of every key."""
    layer = layer_for("cosformer")
    k, v = (torch.rand(1, 4, 6, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    q = -k.detach().requires_grad_()
    for query, key in ((q, k), (k, q)):
        y = layer.attend(query, key, v, torch.tensor([6]))
        assert not y.any()
        assert all(bool(x.isfinite().all()) for x in torch.autograd.grad(y.sum(), [q, k, v]))


def test_cosformer_measures_distance_by_the_longest_sequence_of_the_task() -> None:
    """By that of the batch, as in its code, padding would change the weights."""
    x, lengths = signal(12, width=8)
    long, short = (layer_for("cosformer", longest=longest) for longest in (40, 12))
    assert (long(x, lengths) - short(x, lengths)).abs().max() > 1e-3
    beyond = short.features.map_queries(torch.ones(1, 1, 90, 8), torch.arange(90))
    assert (beyond @ beyond.mT > 0).all()


def features_by(projection: Tensor, epsilon: float = 0.0) -> RandomFeatures:
    features = RandomFeatures(projection.shape[1], len(projection), epsilon)
    features.projection = projection
    return features


def measure_error(projection: Tensor) -> float:
    """Of the attention by these random features against that of the softmax, small queries and keys."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 64, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    q, k = q / 4, k / 4
    features, real = features_by(projection.double()), torch.ones(1, 1, 64, 1, dtype=torch.bool)
    phi_q, phi_k = features.map_queries(q, torch.arange(64)), features.map_keys(k, torch.arange(64), real)
    estimate = divide_weights(phi_q @ phi_k.mT, v)
    return float((estimate - torch.softmax(q @ k.mT / 8**0.5, 3) @ v).abs().mean())


def test_random_features_converge_to_the_softmax() -> None:
    """With the square root of their number; those of LAPACK's signs do not."""
    torch.manual_seed(0)
    few, many = (
        sum(measure_error(draw_orthogonal_rows(count, 8)) for _ in range(4)) / 4 for count in (64, 16384)
    )
    assert few / many == pytest.approx(16, rel=0.6)
    q = torch.linalg.qr(torch.randn(16384 // 8, 8, 8))[0]
    as_returned = q.mT.flatten(0, 1) * torch.randn(16384, 8).norm(dim=1, keepdim=True)
    assert measure_error(as_returned) > 5 * many
    assert measure_error(as_returned) > few / 4


def test_random_rows_are_orthogonal_uniform_and_as_long_as_gaussian_vectors() -> None:
    torch.manual_seed(0)
    rows = draw_orthogonal_rows(8 * 5000, 8).double().unflatten(0, (5000, 8))  # type: ignore[no-untyped-call]
    products = rows @ rows.mT
    lengths = products.diagonal(dim1=1, dim2=2)
    assert (products - torch.diag_embed(lengths)).abs().max() < 1e-4
    # Chi-square of 8 degrees of freedom: mean 8, variance 16.
    assert float(lengths.mean()) == pytest.approx(8, rel=0.02)
    assert float(lengths.var()) == pytest.approx(16, rel=0.1)
    # Every row by itself has mean 0 and covariance 1.
    assert float(rows.mean(0).abs().max()) < 5 / 5000**0.5
    covariance = torch.einsum("bri,brj->rij", rows, rows) / 5000
    assert float((covariance - torch.eye(8)).abs().max()) < 0.15
    assert draw_orthogonal_rows(5, 8).shape == (5, 8)
    assert draw_orthogonal_rows(19, 8).shape == (19, 8)


def test_features_are_drawn_once_and_saved() -> None:
    model, again = (model_of("performer", d_model=64) for _ in range(2))
    first, second = (layer_of(model, index).features.projection for index in (0, 2))
    assert first.shape == (int(16 * math.log(16)), 16)
    assert model_of("performer", features=5).state_dict()["blocks.0.layer.features.projection"].shape == (
        5,
        2,
    )
    assert not torch.equal(first, second)
    assert torch.equal(first, layer_of(again).features.projection)
    assert "blocks.0.layer.features.projection" in model.state_dict()
    model.train()(*tokens(9, 5)).sum().backward()
    assert torch.equal(first, layer_of(again).features.projection)


def test_large_exponents_neither_overflow_nor_vanish() -> None:
    features = RandomFeatures(8, 16)
    x = 100 * torch.randn(1, 1, 50, 8)
    x[:, :, 25:] /= 100  # padding, whose exponents are far larger
    real = (torch.arange(50) < 25)[None, None, :, None]
    phi_q, phi_k = features.map_queries(x, torch.arange(50)), features.map_keys(x, torch.arange(50), real)
    assert float(phi_k[:, :, :25].amax()) == pytest.approx(0.25, rel=1e-5)
    assert torch.allclose(phi_q.amax(3), torch.tensor(0.25))
    assert phi_k.isfinite().all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("linear-transformer", {"heads": 3}, r"heads 3 do not divide d_model 8; set heads"),
        ("performer", {"heads": 16}, r"heads 16 do not divide d_model 8; set heads"),
        ("cosformer", {"mlp_expand": 0.01}, r"mlp_expand 0\.01 times d_model 8 is a width of 0"),
        ("linear-transformer", {"bidirectional": True}, "bidirectional"),
        ("linear-transformer", {"feature_map": "relu"}, "feature_map"),
        ("linear-transformer", {"features": 2}, r"features needs feature_map: random \(performer\).*is 2"),
        ("cosformer", {"features": 2}, r"with cosine their number is 4.*leave it out"),
        ("performer", {"causal": True}, "causal: true is not supported by performer.*cosformer"),
    ],
)
def test_bad_configurations_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of(name, **options)
