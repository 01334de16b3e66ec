"""Luna against torch's own attention, and its second sequence."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, find_largest_saved, groups_of, layer_of, model_of, shaken, tokens
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional

from msbench import models
from msbench.config.attention import LunaConfig
from msbench.models.layers import MaskedBatchNorm
from msbench.models.luna import LunaLayer, LunaStack, build_waves


def small(**options: Any) -> LunaStack:
    """A stack in double precision, with noise on every parameter."""
    stack = layer_of(model_of("luna-256", **{"packed": 6, **options}))
    assert isinstance(stack, LunaStack)
    return shaken(stack.double())


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attend(
    heads: int,
    q: nn.Linear,
    kv: nn.Linear,
    out: nn.Linear | None,
    x: Tensor,
    y: Tensor,
    hidden: Tensor | None,
) -> Tensor:
    """torch's attention of x to y with these weights; without `out` the heads are concatenated alone."""
    d = x.shape[2]
    theirs = nn.MultiheadAttention(d, heads, batch_first=True, dtype=torch.float64)
    weight, bias = torch.cat([q.weight, kv.weight]), torch.cat([q.bias, kv.bias])
    last = (torch.eye(d, dtype=torch.float64), bias.new_zeros(d)) if out is None else (out.weight, out.bias)
    named = dict(
        zip(
            ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"),
            (weight, bias, *last),
            strict=True,
        )
    )
    options = {"key_padding_mask": hidden, "need_weights": False}
    result: Tensor = torch.func.functional_call(theirs, named, (x, y, y), options)[0]
    return result


def run_reference(stack: LunaStack, x: Tensor, lengths: Tensor) -> Tensor:
    """The paper's stack on (b, l, d), with two of torch's attentions a layer and all norms."""
    b, length, d = x.shape
    hidden = torch.arange(length) >= lengths.unsqueeze(1)
    s = len(stack.p)
    half = d // 2
    steps = [[i / 10_000 ** (j / (half - 1)) for j in range(half)] for i in range(s)]
    angles = torch.tensor(steps, dtype=torch.float64)
    waves = torch.cat([angles.sin(), angles.cos()], 1).float().double()  # a buffer of the model in float32
    p: Tensor = stack.p_norm(d**0.5 * stack.p + waves).expand(b, s, d)
    x = stack.x_norm(x)
    for layer in stack.layers:
        assert isinstance(layer, LunaLayer)
        part = layer.attention
        packed = attend(part.heads, part.pack_q, part.pack_kv, None, p, x, hidden)
        unpacked = attend(part.heads, part.unpack_q, part.unpack_kv, part.out_proj, x, packed, None)
        x = layer.norm(x + unpacked)
        x = layer.mlp_norm(x + layer.mlp.down(functional.gelu(layer.mlp.up(x))))
        if layer.p_norm is not None:
            p = layer.p_norm(p + packed)
    return x


@pytest.mark.parametrize(
    "options", [{"heads": 1, "layers": 1}, {"heads": 4, "d_model": 12, "layers": 3, "mlp_expand": 2.5}]
)
def test_a_stack_is_torchs_attentions_with_the_same_weights(options: dict[str, Any]) -> None:
    stack = small(**options)
    d = options.get("d_model", 8)
    x, lengths = normal(3, 19, d).requires_grad_(), torch.tensor([19, 1, 8])
    real = (torch.arange(19) < lengths.unsqueeze(1)).unsqueeze(2)
    weight = normal(3, 19, d, seed=1) * real
    results = []
    for y in (stack(x, lengths), run_reference(stack, x, lengths)):
        inputs = [x, *stack.parameters()]
        results.append([y * real, *torch.autograd.grad((y * weight).sum(), inputs)])
    for name, ours, theirs in zip(
        ["output", "input", *dict(stack.named_parameters())], *results, strict=True
    ):
        assert theirs.abs().max() > 1e-6, name
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12, msg=partial("{}: {}".format, name))


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_padding_and_other_examples_change_nothing(norm: str) -> None:
    stack = small(norm=norm, layers=3).eval()
    x, lengths = normal(4, 90, 8), torch.tensor([90, 9, 1, 31])
    together = stack(x, lengths)
    junk = torch.where((torch.arange(90) < lengths.unsqueeze(1)).unsqueeze(2), x, 1e3)
    for row, n in enumerate(lengths.tolist()):
        alone = stack(x[row : row + 1, :n], lengths[row : row + 1])
        torch.testing.assert_close(together[row : row + 1, :n], alone, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(stack(junk, lengths)[row, :n], alone[0], rtol=1e-12, atol=1e-12)


def test_statistics_of_the_second_sequence_do_not_depend_on_the_batch() -> None:
    """Before the first layer it is the same for all examples, so that its norm sees it once."""
    means: list[Tensor] = []
    for count in (1, 5):
        stack = small(norm="batch", layers=1)
        stack(normal(count, 12, 8), torch.full((count,), 12))
        assert isinstance(stack.p_norm, MaskedBatchNorm)
        means.append(stack.p_norm.running_mean)
    assert torch.equal(means[0], means[1])


def test_the_second_sequence_runs_through_all_layers() -> None:
    """What a late layer reads depends on the p of an early one, and so on that one's `p_norm`."""
    stack = small(layers=2, d_model=12).eval()
    x, lengths = normal(1, 5, 12), torch.tensor([5])
    before = stack(x, lengths)
    first: Any = stack.layers[0]
    with torch.no_grad():
        first.p_norm.bias[0] += 1
    assert (stack(x, lengths) - before).abs().max() > 1e-4
    assert [layer.p_norm is None for layer in stack.layers] == [False, True]


def test_a_position_sees_both_sides() -> None:
    stack, x = small(layers=1), normal(1, 9, 8).requires_grad_()
    (gradient,) = torch.autograd.grad((stack(x, torch.tensor([9]))[0, 4] * normal(8)).sum(), x)
    assert (gradient[0].abs().amax(1) > 1e-6).all()


@pytest.mark.parametrize(("d", "expand", "layers", "packed"), [(16, 4.0, 1, 256), (24, 2.0, 3, 10)])
def test_parameter_counts(d: int, expand: float, layers: int, packed: int) -> None:
    """The paper's 7 d^2 + 2 d f a layer, biases, three norms, of which the last layer's p has none."""
    model = model_of("luna-256", d_model=d, mlp_expand=expand, layers=layers, packed=packed)
    f = round(expand * d)
    layer = 7 * d * d + 7 * d + 2 * d * f + f + d + 6 * d
    assert models.count_parameters(model.blocks) == layers * layer - 2 * d + packed * d + 4 * d
    outside = INFO.vocabulary * d + INFO.longest * d + INFO.classes * (d + 1)
    assert models.count_parameters(model) == models.count_parameters(model.blocks) + outside


def test_weights_start_as_in_the_authors_code() -> None:
    stack = layer_of(model_of("luna-256", d_model=64))
    for name, parameter in stack.named_parameters():
        if "norm" not in name:
            value = parameter.detach()
            expected = 0.0 if name.endswith("bias") else 0.02
            assert float(value.std()) == pytest.approx(expected, rel=0.05), name
            assert abs(float(value.mean())) < 0.002, name


def test_waves_are_sines_and_cosines() -> None:
    waves = build_waves(300, 7).double()
    assert waves.shape == (300, 7)
    assert not waves[:, 6].any()
    for channel, rate in enumerate((1, 1e-2, 1e-4)):
        steps = rate * torch.arange(300.0, dtype=torch.float64)
        torch.testing.assert_close(waves[:, channel], steps.sin(), rtol=0, atol=1e-6)
        torch.testing.assert_close(waves[:, 3 + channel], steps.cos(), rtol=0, atol=1e-6)
    assert build_waves(3, 2).isfinite().all()


def test_the_name_says_the_length_of_the_second_sequence() -> None:
    stack = layer_of(model_of("luna-256"))
    assert stack.p.shape == (256, 8)


def test_one_block_holds_all_layers_and_their_norms() -> None:
    model = model_of("luna-256", layers=3)
    assert len(model.blocks) == 1
    assert len(layer_of(model).layers) == 3
    assert model.final_norm is None
    assert not models.find_family("luna-256").is_causal(config_of("luna-256"))


def test_dropout_is_that_of_channels_inside_the_stack() -> None:
    stack = small(dropout=0.5, layers=2)
    x, lengths = normal(2, 9, 8), torch.tensor([9, 5])
    assert not torch.equal(stack.train()(x, lengths), stack(x, lengths))
    assert torch.equal(stack.eval()(x, lengths), stack(x, lengths))


def test_long_sequences_keep_no_square_matrix() -> None:
    stack = layer_of(model_of("luna-256", layers=1, heads=2, packed=16))
    largest = find_largest_saved(lambda: stack(torch.randn(2, 2048, 8), torch.tensor([2048, 700])))
    assert largest <= 2 * 2048 * 32 * 4  # of both sequences, four times the width


def test_an_empty_sequence_is_no_nan() -> None:
    assert small()(normal(2, 5, 8), torch.tensor([5, 0])).isfinite().all()


def test_matrices_decay_and_the_rest_does_not() -> None:
    for path, group in groups_of(model_of("luna-256")).items():
        plain = path.endswith("bias") or "norm" in path
        assert group == ("plain" if plain else "weights"), path


def test_scale_of_the_first_p_is_that_of_the_embedding() -> None:
    """sqrt(d) times the parameter and the sines, before the norm."""
    stack = small(layers=1, norm="rms")
    seen = []
    stack.p_norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    stack(normal(1, 3, 8), torch.tensor([3]))
    torch.testing.assert_close(seen[0][0], math.sqrt(8) * stack.p + build_waves(6, 8).double())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads 3 do not divide d_model 8; set heads"),
        ({"prenorm": True}, r"prenorm: true is not supported.*set prenorm: false"),
        ({"drop_path": 0.1}, r"drop_path is not supported.*set it to 0"),
        ({"packed": 0}, "packed"),
        ({"mlp_expand": 0.01}, r"mlp_expand 0\.01 times d_model 8 is a width of 0"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("luna-256", **options)
    assert isinstance(config_of("luna-256"), LunaConfig)
    assert tokens(3)[0].shape == (1, 3)
