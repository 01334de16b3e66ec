"""Linear attention against the dense matrix of its weights, and that no such matrix is kept."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_cases import Attend, assert_attends_as, divide_weights, signal
from model_cases import INFO, config_of, groups_of, layer_of, model_of, shaken, stepped, tokens
from pydantic import ValidationError
from torch import Tensor

from msbench import models
from msbench.models.linear_attention import sum_earlier_values

LENGTHS = (29, 1, 8, 29)


def linear_weights(causal: bool) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
        phi_q, phi_k = (torch.where(x > 0, x + 1, x.clamp(max=0).exp()) for x in (q, k))
        weights = torch.einsum("bhif,bhjf->bhij", phi_q, phi_k) * real[:, None, None]
        return divide_weights(weights.tril() if causal else weights, v, 1e-6)

    return attend


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{"heads": 1}, {"heads": 4, "d_model": 12}])
def test_it_is_attention_with_products_of_features_as_weights(causal: bool, options: dict[str, Any]) -> None:
    layer = shaken(layer_of(model_of("linear-transformer", causal=causal, **options)).double(), 0.3)
    assert_attends_as(layer, *signal(*LENGTHS, width=layer.qkv.in_features), linear_weights(causal))


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_a_causal_sequence_may_end_anywhere_in_a_chunk(length: int) -> None:
    layer = shaken(layer_of(model_of("linear-transformer", causal=True)).double(), 0.3)
    assert_attends_as(layer, *signal(length, 1, width=8), linear_weights(causal=True))


def test_the_size_of_a_chunk_changes_nothing() -> None:
    phi_q, phi_k, values = (torch.randn(2, 3, 40, n, dtype=torch.float64) for n in (5, 5, 4))
    expected = (phi_q @ phi_k.mT).tril() @ values
    for chunk in (1, 3, 20, 40, 64):
        torch.testing.assert_close(sum_earlier_values(phi_q, phi_k, values, chunk), expected)


def test_padding_is_masked_after_the_features() -> None:
    """The features of zero are one: a batch's longest sequence would weigh in everybody's mean."""
    layer = shaken(layer_of(model_of("linear-transformer")).double(), 0.3)
    (x, lengths), real = signal(7, 70, width=8), slice(None, 7)
    alone = layer(x[:1, real], lengths[:1])
    torch.testing.assert_close(layer(x, lengths)[:1, real], alone, rtol=1e-12, atol=1e-13)
    junk = x.clone()
    junk[0, 7:] = 1e3
    assert torch.equal(layer(junk, lengths)[:1, real], layer(x, lengths)[:1, real])
    everywhere = layer(x, torch.tensor([70, 70]))[:1, real]
    assert (everywhere - alone).abs().max() > 0.1


@pytest.mark.parametrize("length", [1, 64, 100])
def test_a_causal_layer_is_a_recurrence(length: int) -> None:
    layer = shaken(layer_of(model_of("linear-transformer", causal=True)).double(), 0.3)
    x, lengths = signal(length, length, width=8)
    assert layer.start(x[:, 0]).shape == (2, 4, 2, 3)
    torch.testing.assert_close(stepped(layer, x), layer(x, lengths), rtol=1e-11, atol=1e-12)


def test_causality_is_an_option() -> None:
    x, lengths = signal(9, width=8)
    later = x.clone()
    later[:, 8] += 1
    for causal in (False, True):
        layer = layer_of(model_of("linear-transformer", causal=causal)).double()
        apart = float((layer(x, lengths)[:, :8] - layer(later, lengths)[:, :8]).detach().abs().max())
        assert (apart == 0) == causal
        assert causal or apart > 1e-4
        config = config_of("linear-transformer", causal=causal)
        assert models.find_family("linear-transformer").is_causal(config) == causal
        assert models.count_states_per_channel("linear-transformer", config) == (3 if causal else 0)


def test_order_matters_by_positions_or_by_causality_alone() -> None:
    inputs, lengths = tokens(9)
    for options, differs in (
        ({}, True),
        ({"positions": "none"}, False),
        ({"positions": "none", "causal": True}, True),
    ):
        model = model_of("linear-transformer", **options).eval().double()
        apart = float((model(inputs, lengths) - model(inputs.flip(1), lengths)).detach().abs().max())
        assert (apart > 1e-6) == differs, options
        assert differs or apart < 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_long_sequences_keep_no_square_matrix(causal: bool) -> None:
    length = 2048
    config = config_of("linear-transformer", d_model=8, layers=1, heads=2, causal=causal)
    model = models.build("linear-transformer", config, replace(INFO, longest=length), 0)
    largest = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(*tokens(length, 700)).sum()
    loss.backward()
    assert largest <= 2 * length * (2 * 64 if causal else 32) * 4  # chunks of 64 for both heads


def test_an_empty_sequence_is_no_nan() -> None:
    for causal in (False, True):
        layer = layer_of(model_of("linear-transformer", causal=causal))
        y = layer(torch.randn(2, 5, 8), torch.tensor([5, 0]))
        assert torch.isfinite(y).all()


def test_half_precision_leaves_features_and_sums_in_full() -> None:
    layer = layer_of(model_of("linear-transformer"))
    seen: list[torch.dtype] = []
    layer.features.register_forward_hook(lambda _, __, y: seen.append(y.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.randn(2, 5, 8), torch.tensor([5, 5]))
    assert seen == [torch.float32, torch.float32]


@pytest.mark.parametrize(("d", "heads", "expand"), [(16, 4, 4.0), (128, 8, 2.0)])
def test_it_starts_and_counts_as_the_transformer(d: int, heads: int, expand: float) -> None:
    ours, theirs = (
        model_of(name, d_model=d, heads=heads, mlp_expand=expand)
        for name in ("linear-transformer", "transformer")
    )
    expected = dict(theirs.named_parameters())
    assert all(torch.equal(value, expected[name]) for name, value in ours.named_parameters())
    assert models.count_parameters(ours) == models.count_parameters(theirs)
    assert groups_of(ours) == groups_of(theirs)
    assert models.count_parameters(layer_of(ours)) == 4 * d * d + 4 * d


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads 3 do not divide d_model 8; set heads"),
        ({"mlp_expand": 0.01}, r"mlp_expand 0\.01 times d_model 8 is a width of 0"),
        ({"bidirectional": True}, "bidirectional"),
        ({"feature_map": "relu"}, "feature_map"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("linear-transformer", **options)
