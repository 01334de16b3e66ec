"""Linformer against dense sums and softmax, and its three ways to share matrices."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_cases import heads_of, signal
from model_cases import INFO, config_of, find_largest_saved, groups_of, layer_of, model_of, shaken, tokens
from pydantic import ValidationError
from torch import Tensor

from msbench import models
from msbench.errors import DataError
from msbench.training.average import WeightAverage

SHARING = ("heads", "keys-and-values", "layers")
every_sharing = pytest.mark.parametrize("sharing", SHARING)


def layer_for(**options: Any) -> Any:
    return shaken(layer_of(model_of("linformer", **{"rank": 5, **options})).double(), 0.3)


def attended(layer: Any, x: Tensor, lengths: Tensor) -> Tensor:
    """One head and sequence after the other: keys and values without biases are summed, by the paper."""
    biases = [bias.view(layer.heads, -1) for bias in layer.qkv.bias.chunk(3)]
    q, k, v = heads_of(layer, x)
    sums = layer.sums
    outputs = []
    for row, length in enumerate(lengths.tolist()):
        heads = []
        for head in range(layer.heads):
            weights = [sums.key_sums, sums.key_sums if sums.value_sums is None else sums.value_sums]
            summed = [
                sum(
                    weight[t][:, None] * (part[row, head, t] - bias[head]) for t in range(length)
                )  # (rank, w)
                + bias[head]
                for weight, part, bias in zip(weights, (k, v), biases[1:], strict=True)
            ]
            scores = (q[row, head] @ summed[0].T / q.shape[3] ** 0.5).exp()
            heads.append(scores / scores.sum(1, keepdim=True) @ summed[1])
        outputs.append(torch.cat(heads, dim=1))
    out: Tensor = torch.stack(outputs) @ layer.out_proj.weight.T + layer.out_proj.bias
    return out


@every_sharing
@pytest.mark.parametrize("options", [{"heads": 1}, {"heads": 4, "d_model": 12, "rank": 50}])
def test_it_is_attention_to_sums_of_keys_and_values(sharing: str, options: dict[str, Any]) -> None:
    layer = layer_for(sharing=sharing, **options)
    x, lengths = signal(17, 1, 8, 17, width=layer.qkv.in_features)
    x.requires_grad_()
    real = (torch.arange(17) < lengths[:, None]).unsqueeze(2)
    weight = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(9)) * real
    results = []
    for y in (layer(x, lengths), attended(layer, x, lengths)):
        x_gradient, *gradients = torch.autograd.grad((y * weight).sum(), [x, *layer.parameters()])
        results.append([y * real, x_gradient * real, *gradients])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


@every_sharing
def test_padding_adds_nothing_to_the_sums(sharing: str) -> None:
    layer = layer_for(sharing=sharing)
    x, lengths = signal(4, 40, 1, width=8)
    for row, length in enumerate(lengths.tolist()):
        alone = layer(x[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(layer(x, lengths)[row : row + 1, :length], alone, rtol=1e-12, atol=1e-13)


def test_every_position_sees_every_other() -> None:
    layer = layer_for()
    x = signal(9, width=8)[0].requires_grad_()
    y = layer(x, torch.tensor([9]))
    for position in (0, 8):
        (gradient,) = torch.autograd.grad(y[0, position].sum(), [x], retain_graph=True)
        assert (gradient[0].abs().sum(1) > 1e-6).all()
    config = config_of("linformer")
    assert not models.find_family("linformer").is_causal(config)
    assert models.count_states_per_channel("linformer", config) == 0


def test_order_matters_without_positions_too() -> None:
    model = shaken(model_of("linformer", positions="none").eval().double(), 0.3)
    inputs, lengths = tokens(9)
    apart = (model(inputs, lengths) - model(inputs.flip(1), lengths)).detach().abs().max()
    assert apart > 1e-6


def test_sequences_end_with_the_sums() -> None:
    model = model_of("linformer", positions="none")
    assert model(*tokens(INFO.longest)).shape == (1, INFO.classes)
    with pytest.raises(DataError, match=r"41 positions.*end at 40.*longest"):
        model(*tokens(INFO.longest + 1))


@pytest.mark.parametrize(("sharing", "matrices"), list(zip(SHARING, (6, 3, 1), strict=True)))
def test_parameter_counts(sharing: str, matrices: int) -> None:
    ours = model_of("linformer", d_model=16, layers=3, rank=7, sharing=sharing)
    theirs = model_of("transformer", d_model=16, layers=3)
    assert models.count_parameters(ours) - models.count_parameters(theirs) == matrices * INFO.longest * 7
    assert models.count_parameters(layer_of(model_of("linformer", d_model=16))) == (
        4 * 16**2 + 4 * 16 + 2 * INFO.longest * 256
    )


def test_a_matrix_of_all_layers_is_one() -> None:
    model = model_of("linformer", sharing="layers", rank=5)
    first, second = (layer_of(model, index).sums for index in (0, 2))
    assert first is second
    assert first.value_sums is None
    assert [name for name in model.state_dict() if "sums" in name] == ["blocks.0.layer.sums.key_sums"]
    averaged: Any = WeightAverage(model, 0.5).module
    assert layer_of(averaged, 2).sums is layer_of(averaged).sums is not first
    assert layer_of(model_of("linformer")).sums.value_sums is not None
    copy = model_of("linformer", seed=1, sharing="layers", rank=5)
    copy.load_state_dict(model.state_dict())
    assert torch.equal(copy.eval()(*tokens(9, 5)), model.eval()(*tokens(9, 5)))
    assert groups_of(model)["blocks.0.layer.sums.key_sums"] == "weights"


def test_sums_start_as_large_as_what_they_sum() -> None:
    info = replace(INFO, longest=2000)
    layer = layer_of(models.build("linformer", config_of("linformer", rank=64), info, 0))
    bound = (3 / (2000 + 64)) ** 0.5
    for weights in (layer.sums.key_sums.detach(), layer.sums.value_sums.detach()):
        assert 0.999 * bound < float(weights.abs().max()) <= bound
    keys, _ = layer.sums(torch.randn(1, 2000, 8, generator=torch.Generator().manual_seed(0)))
    assert float(keys.detach().std()) == pytest.approx(1, rel=0.15)


def test_long_sequences_keep_no_square_matrix() -> None:
    length = 2048
    config = config_of("linformer", layers=1, heads=2, rank=16)
    model = models.build("linformer", config, replace(INFO, longest=length), 0)
    largest = find_largest_saved(lambda: model(*tokens(length, 700)))
    assert largest <= 2 * length * 32 * 4  # of both sequences, four times the width


def test_an_empty_sequence_is_no_nan() -> None:
    x = torch.zeros(2, 5, 8)
    x[0] = torch.randn(5, 8)
    assert torch.isfinite(layer_of(model_of("linformer"))(x, torch.tensor([5, 0]))).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads 3 do not divide d_model 8; set heads"),
        ({"rank": 0}, "rank"),
        ({"sharing": "none"}, "sharing"),
        ({"causal": True}, "causal"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("linformer", **options)
