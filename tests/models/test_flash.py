"""FLASH against loops over pairs of positions; in both forms, with chunks and without."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, find_largest_saved, groups_of, model_of, shaken, tokens, warmed_up
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.config.attention import FlashConfig
from msbench.models.flash import FlashUnit, RotaryBias, compute_rotations, rotate_by_position

D, KEY_DIM, VALUES = 4, 6, 10
LENGTHS = (19, 1, 8, 11)
FORMS: list[dict[str, Any]] = [{"chunk": 8}, {"chunk": 5}, {"chunk": 64}, {"chunk": None}]


def unit_of(longest: int = 19, **options: Any) -> FlashUnit:
    config = FlashConfig(d_model=D, key_dim=KEY_DIM, expand=VALUES / D, **options)
    return shaken(FlashUnit(config, longest).double(), 0.5)


def rotated(x: Tensor, position: int) -> Tensor:
    """x (s,) as complex numbers, each turned by its own angle."""
    half = len(x) // 2
    angles = position * torch.tensor([10_000 ** (-j / half) for j in range(half)], dtype=torch.float64)
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag])


def run_by_pairs(x: Tensor, p: Mapping[str, Tensor], chunk: int | None) -> Tensor:
    """The unit on one sequence (n, d)."""
    n, middle = len(x), len(p["bias.bias"]) // 2
    u, v, z = torch.split(
        functional.silu(x @ p["in_proj.weight"].T + p["in_proj.bias"]), [VALUES, VALUES, KEY_DIM], 1
    )
    scale, offset = p["queries_keys.scale"], p["queries_keys.offset"]
    turned = [[rotated(z[t] * a + b, t) for t in range(n)] for a, b in zip(scale, offset, strict=True)]
    outputs = []
    for i in range(n):
        total = torch.zeros_like(v[0])
        for j in range(n):
            if j // (chunk or n) == i // (chunk or n):
                score = (turned[0][i] * turned[1][j]).sum() / (chunk or n) + p["bias.bias"][middle + j - i]
                total = total + score.clamp(min=0) ** 2 * v[j]
            if chunk is not None:
                total = total + (turned[2][i] * turned[3][j]).sum() / n * v[j]
        outputs.append(u[i] * total)
    return torch.stack(outputs) @ p["out_proj.weight"].T + p["out_proj.bias"]


@pytest.mark.parametrize("form", FORMS)
def test_a_unit_equals_sums_over_pairs(form: dict[str, Any]) -> None:
    unit, lengths = unit_of(**form), torch.tensor(LENGTHS)
    source = torch.Generator().manual_seed(0)
    real = (torch.arange(19) < lengths.unsqueeze(1)).unsqueeze(2)
    x, weights = (torch.randn(4, 19, D, generator=source, dtype=torch.float64) * real for _ in range(2))
    x.requires_grad_()
    parameters = dict(unit.named_parameters())
    y = unit(x, lengths)
    total = torch.zeros((), dtype=torch.float64)
    for row, n in enumerate(LENGTHS):
        expected = run_by_pairs(x[row, :n], parameters, form["chunk"])
        torch.testing.assert_close(y[row, :n], expected, rtol=1e-12, atol=1e-12)
        total = total + (expected * weights[row, :n]).sum()
    leaves = [x, *parameters.values()]
    found, others = (torch.autograd.grad(each, leaves) for each in ((y * weights).sum(), total))
    for path, one, other in zip(["inputs", *parameters], found, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10, msg=path)


def test_the_bias_of_rotations_is_the_product_of_two_rotated_vectors() -> None:
    bias = shaken(RotaryBias(KEY_DIM).double(), 0.5)
    found = bias(9)
    for i in range(9):
        for j in range(9):
            expected = (rotated(bias.query, i) * rotated(bias.key, j)).sum()
            torch.testing.assert_close(found[8 + j - i], expected, rtol=1e-12, atol=1e-12)


def test_the_bias_of_rotations_is_in_full_precision_under_autocast() -> None:
    bias = shaken(RotaryBias(KEY_DIM), 0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = bias(9)
    assert torch.equal(found, bias(9))


def test_a_long_quadratic_unit_has_the_bias_of_rotations_at_any_length() -> None:
    """A table of 512 positions, as in OpenNLPLab's code, breaks beyond them."""
    assert isinstance(unit_of(513, chunk=None).bias, RotaryBias)
    assert not isinstance(unit_of(512, chunk=None).bias, RotaryBias)
    assert not isinstance(unit_of(4096, chunk=256).bias, RotaryBias)
    unit = unit_of(600, chunk=None)
    x = torch.randn(1, 600, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = unit(x, torch.tensor([600]))
    assert whole.shape == x.shape
    cut = unit(x[:, :7], torch.tensor([7]))
    torch.testing.assert_close(unit(x, torch.tensor([7]))[:, :7], cut, rtol=1e-12, atol=1e-12)


def test_rotations_are_as_exact_at_any_position_and_precision() -> None:
    x = torch.randn(1, 4000, 8, generator=torch.Generator().manual_seed(0))
    exact = rotate_by_position(x.double())
    torch.testing.assert_close(rotate_by_position(x).double(), exact, rtol=0, atol=2e-3)
    torch.testing.assert_close(rotate_by_position(x.bfloat16()).double(), exact, rtol=0, atol=4e-2)
    torch.testing.assert_close(exact.norm(dim=2), x.double().norm(dim=2))
    cos, sin = compute_rotations(torch.tensor([0, 1]), 4, torch.float64)
    torch.testing.assert_close(
        cos, torch.tensor([[1, 1], [math.cos(1), math.cos(0.01)]], dtype=torch.float64)
    )
    torch.testing.assert_close(
        sin, torch.tensor([[0, 0], [math.sin(1), math.sin(0.01)]], dtype=torch.float64)
    )


@pytest.mark.parametrize("form", [*FORMS, {"chunk": 8, "norm": "batch", "prenorm": False}])
def test_padding_is_never_read(form: dict[str, Any]) -> None:
    info = replace(INFO, longest=90)
    model = warmed_up(models.build("flash", config_of("flash", key_dim=6, **form), info, 0).double())
    inputs, lengths = tokens(8, 80, 1, 16)
    together = model(inputs, lengths)
    for row, length in enumerate(lengths.tolist()):
        for width in (length, length + 3):
            alone = model(inputs[row : row + 1, :width], lengths[row : row + 1])
            torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-12)
    junk = torch.where(inputs == 0, 7, inputs)
    torch.testing.assert_close(model(junk, lengths), together, rtol=1e-12, atol=1e-12)
    assert torch.equal(model(inputs, lengths), together)


def find_seen(unit: FlashUnit, position: int) -> list[bool]:
    """The positions of a sequence of 12 that an output depends on."""
    x = torch.randn(1, 12, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(unit(x, torch.tensor([12]))[0, position].sum(), x)
    seen: list[bool] = (gradient[0].abs().sum(1) > 0).tolist()
    return seen


def test_both_sides_are_seen_and_beyond_the_chunk_linearly() -> None:
    whole, unit = unit_of(12, chunk=None), unit_of(12, chunk=4)
    with torch.no_grad():
        for each in (whole, unit):
            each.bias.get_parameter("bias").fill_(10)  # no score below 0
    assert find_seen(whole, 5) == find_seen(unit, 5) == [True] * 12
    with torch.no_grad():
        unit.queries_keys.scale[2].zero_()
        unit.queries_keys.offset[2].zero_()
    assert find_seen(unit, 5) == [4 <= t < 8 for t in range(12)]
    assert not models.find_family("flash").is_causal(config_of("flash"))


def test_an_empty_sequence_is_no_nan() -> None:
    unit = unit_of(chunk=4)
    assert torch.isfinite(unit(torch.randn(2, 9, D).double(), torch.tensor([9, 0]))).all()


def test_order_matters_without_positions_too() -> None:
    inputs, lengths = tokens(9)
    for chunk in (None, 4):
        model = model_of("flash", positions="none", chunk=chunk, key_dim=6).eval().double()
        shaken(model)
        assert float((model(inputs, lengths) - model(inputs.flip(1), lengths)).detach().abs().max()) > 1e-6


def test_start_values() -> None:
    unit = FlashUnit(FlashConfig(d_model=64, key_dim=128), 4096)
    for layer in (unit.in_proj, unit.out_proj):
        bound = layer.in_features**-0.5
        assert 0.98 * bound < float(layer.weight.detach().abs().max()) <= bound
    for path in ("queries_keys.scale", "bias.bias"):
        value = unit.get_parameter(path).detach()
        assert float(value.std()) == pytest.approx(0.02, rel=5 / math.sqrt(2 * value.numel())), path
    assert not unit.queries_keys.offset.any()
    turned = torch.cat(list(RotaryBias(512).parameters())).detach()
    assert float(turned.std()) == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    ("d", "s", "chunk", "longest"), [(64, 128, 256, 4096), (8, 6, None, 40), (8, 6, None, 900)]
)
def test_parameter_counts(d: int, s: int, chunk: int | None, longest: int) -> None:
    e, rows = 2 * d, 2 if chunk is None else 4
    largest = min(chunk or longest, longest)
    bias = 2 * largest - 1 if largest <= 512 else 2 * s
    unit = FlashUnit(FlashConfig(d_model=d, key_dim=s, chunk=chunk), longest)
    maps = 6 * d * d + d * s + (2 * e + s) + d
    assert models.count_parameters(unit) == maps + 2 * rows * s + bias


def test_long_sequences_keep_no_square_matrix() -> None:
    length = 2048
    config = config_of("flash", layers=1, key_dim=8, chunk=None)
    model = models.build("flash", config, replace(INFO, longest=length), 0)
    largest = find_largest_saved(lambda: model(*tokens(length, 700)))
    assert largest <= 2 * length * 40 * 4  # of both sequences, the map of three parts


def test_matrices_decay_and_the_rest_does_not() -> None:
    for model in (
        model_of("flash"),
        models.build("flash", config_of("flash", chunk=None), replace(INFO, longest=600), 0),
    ):
        for path, group in groups_of(model).items():
            plain = path.endswith(("bias", "offset", "bias.query", "bias.key")) or "norm" in path
            assert group == ("plain" if plain else "weights"), path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_dim": 5}, "key_dim 5 is odd, but queries and keys are rotated in pairs: make it even"),
        ({"expand": 0.01}, r"expand 0\.01 times d_model 8 is a width of 0"),
        ({"chunk": 0}, "chunk"),
        ({"bidirectional": True}, "bidirectional"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("flash", **options)
