"""The Transformer against torch's own layer, and that no matrix of the square of the length is kept."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, find_largest_saved, groups_of, layer_of, model_of, shaken, tokens
from pydantic import ValidationError
from torch import Tensor, nn

from msbench import models
from msbench.config.baselines import TransformerConfig
from msbench.models.classifier import Classifier
from msbench.models.layers import Padding


def peer_of(config: TransformerConfig) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(
        config.d_model,
        config.heads,
        round(config.mlp_expand * config.d_model),
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=True,
    )


def renamed(model: Classifier, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of the first layer, or their gradients, under the names of torch's layer."""
    names = {
        "0.layer.qkv.weight": "self_attn.in_proj_weight",
        "0.layer.qkv.bias": "self_attn.in_proj_bias",
        **{f"0.layer.out_proj.{part}": f"self_attn.out_proj.{part}" for part in ("weight", "bias")},
        **{f"1.layer.up.{part}": f"linear1.{part}" for part in ("weight", "bias")},
        **{f"1.layer.down.{part}": f"linear2.{part}" for part in ("weight", "bias")},
        **{f"{i}.norm.{part}": f"norm{i + 1}.{part}" for i in (0, 1) for part in ("weight", "bias")},
    }
    assert {f"blocks.{name}" for name in names} == {n for n, _ in model.named_parameters() if "blocks" in n}
    return {theirs: values[f"blocks.{name}"] for name, theirs in names.items()}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{"heads": 1}, {"heads": 4, "d_model": 12, "mlp_expand": 2.5}])
def test_a_layer_is_torchs_with_the_same_weights(causal: bool, options: dict[str, Any]) -> None:
    config = config_of("transformer", layers=1, causal=causal, **options)
    assert isinstance(config, TransformerConfig)
    model, peer = shaken(models.build("transformer", config, INFO, 0).double()), peer_of(config).double()
    values = dict(model.named_parameters())
    peer.load_state_dict(renamed(model, values))
    x, lengths = torch.randn(3, 19, config.d_model, dtype=torch.float64), torch.tensor([19, 1, 8])
    padding = Padding.from_lengths(lengths, 19, torch.float64)
    ours = x
    for block in model.blocks:
        ours = block(ours, padding)
    mask = nn.Transformer.generate_square_subsequent_mask(19).isinf() if causal else None
    theirs = peer(x, src_mask=mask, src_key_padding_mask=padding.mask[:, :, 0] == 0)
    real = padding.mask
    torch.testing.assert_close(ours * real, theirs * real, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(x) * real
    used = {name: value for name, value in values.items() if "blocks" in name}
    gradients = dict(zip(used, torch.autograd.grad((ours * weight).sum(), list(used.values())), strict=True))
    (theirs * weight).sum().backward()
    expected = {name: parameter.grad for name, parameter in peer.named_parameters()}
    for name, one in renamed(model, gradients).items():
        torch.testing.assert_close(one, expected[name], rtol=1e-10, atol=1e-11)


def test_weights_start_as_torchs_attention() -> None:
    model = model_of("transformer", d_model=64)
    qkv = layer_of(model).qkv
    bound = (6 / (64 + 3 * 64)) ** 0.5
    assert 0.98 * bound < float(qkv.weight.detach().abs().max()) <= bound
    assert not qkv.bias.any()
    assert not layer_of(model).out_proj.bias.any()


@pytest.mark.parametrize(("d", "heads", "expand"), [(16, 4, 4.0), (128, 8, 2.0)])
def test_parameter_counts(d: int, heads: int, expand: float) -> None:
    model = model_of("transformer", d_model=d, heads=heads, mlp_expand=expand, layers=1)
    inner = round(expand * d)
    blocks = 3 * d * d + 3 * d + d * d + d + 2 * d * inner + inner + d + 4 * d
    outside = INFO.vocabulary * d + INFO.longest * d + 2 * d + INFO.classes * (d + 1)
    assert models.count_parameters(model) == blocks + outside


@pytest.mark.parametrize("causal", [False, True])
def test_long_sequences_keep_no_square_matrix(causal: bool) -> None:
    length = 2048
    config = config_of("transformer", d_model=8, layers=1, heads=2, causal=causal)
    model = models.build("transformer", config, replace(INFO, longest=length), 0)
    largest = find_largest_saved(lambda: model(*tokens(length, 700)))
    assert largest <= 2 * length * 32 * 4  # of both sequences, four times the width


def test_order_matters_by_positions_or_by_causality_alone() -> None:
    inputs, lengths = tokens(9)
    turned = inputs.flip(1)
    for options, differs in (
        ({}, True),
        ({"positions": "none"}, False),
        ({"positions": "none", "causal": True}, True),
    ):
        model = model_of("transformer", **options).eval().double()
        apart = float((model(inputs, lengths) - model(turned, lengths)).detach().abs().max())
        assert (apart > 1e-6) == differs, options
        assert differs or apart < 1e-12


def test_causality_is_an_option() -> None:
    x = torch.randn(1, 9, 8, generator=torch.Generator().manual_seed(0))
    later = x.clone()
    later[:, 8] += 1
    for causal in (False, True):
        layer, lengths = layer_of(model_of("transformer", causal=causal).eval()), torch.tensor([9])
        apart = float((layer(x, lengths)[:, :8] - layer(later, lengths)[:, :8]).detach().abs().max())
        assert (apart == 0) == causal
        config = config_of("transformer", causal=causal)
        assert models.find_family("transformer").is_causal(config) == causal
    assert models.count_states_per_channel("transformer", config_of("transformer")) == 0


def test_an_empty_sequence_is_no_nan() -> None:
    layer = layer_of(model_of("transformer"))
    y = layer(torch.randn(2, 5, 8), torch.tensor([5, 0]))
    assert torch.isfinite(y).all()


def test_matrices_decay_and_the_rest_does_not() -> None:
    model = model_of("transformer")
    for path, group in groups_of(model).items():
        plain = path.endswith("bias") or "norm" in path
        assert group == ("plain" if plain else "weights"), path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads 3 do not divide d_model 8; set heads"),
        ({"heads": 0}, "heads"),
        ({"mlp_expand": 0.01}, r"mlp_expand 0\.01 times d_model 8 is a width of 0"),
        ({"bidirectional": True}, "bidirectional"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("transformer", **options)
