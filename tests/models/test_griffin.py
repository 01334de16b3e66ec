"""Griffin and Hawk: the recurrence by hand, its start, its gradients near a = 1, windows, steps."""

from typing import Any

import numpy as np
import pytest
import torch
from model_cases import INFO, config_of, layer_of, model_of, shaken, stepped, tokens
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from msbench import models
from msbench.config.baselines import GriffinConfig
from msbench.config.run import TrainConfig
from msbench.models.griffin import (
    GatedMlp,
    LocalAttention,
    RecurrentBlock,
    RgLru,
    compute_input_scale,
    list_temporal_blocks,
    rotate,
)
from msbench.models.layers import Recurrent
from msbench.training.optimizer import make_parameter_groups

Array = NDArray[np.float64]
BLOCKS = (RecurrentBlock, LocalAttention, GatedMlp)


def griffin(**options: Any) -> GriffinConfig:
    config = config_of("griffin", **options)
    assert isinstance(config, GriffinConfig)
    return config


def signal(length: int, width: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(2, length, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def recurrence_by_hand(p: dict[str, Array], x: Array) -> Array:
    """One sequence (l, i), one channel and one step after another."""
    heads, block = p["input_gate.bias"].shape
    h, out = np.zeros(heads * block), []
    for t, u in enumerate(x):
        before = h.copy()
        for c in range(heads * block):
            head, column = divmod(c, block)
            part = u[head * block : (head + 1) * block]
            i, r = (
                sigmoid(part @ p[f"{gate}.weight"][head, :, column] + p[f"{gate}.bias"][head, column])
                for gate in ("input_gate", "recurrence_gate")
            )
            a = np.exp(-8 * r * np.log1p(np.exp(p["Lambda"][c])))
            h[c] = i * u[c] if t == 0 else a * before[c] + np.sqrt(1 - a * a) * i * u[c]
        out.append(h.copy())
    return np.stack(out)


@pytest.mark.parametrize("length", [1, 2, 30])
@pytest.mark.parametrize("heads", [1, 3])
def test_the_recurrence_equals_its_equations(length: int, heads: int) -> None:
    unit = shaken(RgLru(6, heads).double(), 0.3)
    x = signal(length, 6)
    parameters = {name: value.detach().numpy() for name, value in unit.named_parameters()}
    expected = np.stack([recurrence_by_hand(parameters, row) for row in x.numpy()])
    np.testing.assert_allclose(unit(x).detach().numpy(), expected, rtol=1e-11, atol=1e-13)


def test_the_first_step_has_the_scale_one() -> None:
    unit = shaken(RgLru(4, 2).double(), 0.3)
    x = signal(3, 4)
    first = torch.sigmoid(unit.input_gate(x))[:, 0] * x[:, 0]
    torch.testing.assert_close(unit(x)[:, 0], first, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_scale_is_exact_near_one(dtype: torch.dtype) -> None:
    log_a = -torch.logspace(-30, 2, 200, dtype=dtype)
    expected = np.sqrt(-np.expm1(2 * log_a.double().numpy()))
    tolerance = 4 * torch.finfo(dtype).eps
    np.testing.assert_allclose(compute_input_scale(log_a).numpy(), expected, rtol=tolerance)


def test_gradients_are_finite_everywhere_near_one() -> None:
    smallest = torch.finfo(torch.float32).smallest_normal
    log_a = -torch.tensor([0.0, 1e-45, smallest / 4, smallest, 1e-30, 1e-12, 1e-6, 1.0, 1e4, 1e38])
    log_a.requires_grad_()
    (gradient,) = torch.autograd.grad(compute_input_scale(log_a).sum(), log_a)
    assert torch.isfinite(gradient).all()
    assert gradient[0] == 0
    exact = -np.exp(-2.0) / np.sqrt(-np.expm1(-2.0))
    assert float(gradient[7]) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("lambda_", "bias"), [(-200.0, 0.0), (-80.0, 0.0), (0.0, -200.0), (-85.0, -85.0)])
def test_a_recurrence_that_forgets_nothing_trains(autocast: bool, lambda_: float, bias: float) -> None:
    """A decay of exactly 1, by a parameter far out or by a gate that is shut."""
    config = griffin(d_model=8)
    torch.manual_seed(0)
    block = RecurrentBlock(config)
    with torch.no_grad():
        block.rg_lru.Lambda.fill_(lambda_)
        block.rg_lru.recurrence_gate.bias.fill_(bias)
    x = signal(50).float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = block(x, torch.tensor([50, 50])).float().square().sum()
    loss.backward()
    for value in (x, *block.parameters()):
        assert value.grad is not None
        assert torch.isfinite(value.grad).all()
        assert float(value.grad.abs().max()) < 1e4


def test_the_recurrence_is_differentiated_right() -> None:
    unit = shaken(RgLru(4, 2).double(), 0.3)
    x = signal(5, 4).requires_grad_()
    names, values = zip(*unit.named_parameters(), strict=True)

    def run(x: Tensor, *values: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(unit, dict(zip(names, values, strict=True)), (x,))
        return result

    assert torch.autograd.gradcheck(run, (x, *values))


def test_decays_and_scan_keep_their_precision_under_autocast() -> None:
    unit = RgLru(8, 2)
    x = signal(40).float()
    expected = unit(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = unit(x)
    assert torch.equal(actual, expected)


def attention_by_hand(block: LocalAttention, x: Tensor) -> Tensor:
    """One query after another, with complex numbers for the rotations."""
    p = dict(block.named_parameters())
    q, kv = x @ p["q_proj.weight"].T, x @ p["kv_proj.weight"].T
    w = block.width
    frequencies = 10_000.0 ** (-torch.arange(0, w // 2, 2, dtype=torch.float64) / (w // 2))

    def turned(v: Tensor, position: int) -> Tensor:
        pairs = torch.complex(v[: w // 4], v[w // 4 : w // 2])
        pairs = pairs * torch.polar(torch.ones_like(frequencies), position * frequencies)
        return torch.cat([pairs.real, pairs.imag, v[w // 2 :]])

    rows = []
    for t in range(len(x)):
        seen = range(max(0, t - block.window), t + 1)
        heads = []
        for h in range(block.heads):
            query = turned(q[t, h * w : (h + 1) * w], t)
            scores = torch.stack([query @ turned(kv[s, :w], s) for s in seen]) / w**0.5
            heads.append(torch.softmax(scores, 0) @ kv[list(seen), w:])
        rows.append(torch.cat(heads))
    return torch.stack(rows) @ p["out_proj.weight"].T + p["out_proj.bias"]


@pytest.mark.parametrize("window", [1, 3, 8, 100])
@pytest.mark.parametrize("length", [1, 4, 9, 23])
def test_attention_equals_its_equations(window: int, length: int) -> None:
    block = shaken(LocalAttention(griffin(window=window, heads=2, d_model=16)).double(), 0.3)
    x = signal(length, 16)
    expected = torch.stack([attention_by_hand(block, row) for row in x])
    torch.testing.assert_close(block(x, torch.tensor([length] * 2)), expected, rtol=1e-11, atol=1e-12)


def test_rotations_are_those_of_far_positions_under_autocast() -> None:
    x = torch.ones(1, 1, 2, 8, dtype=torch.bfloat16)
    turned = rotate(x, torch.tensor([4000, 4001]))
    assert turned.dtype == torch.bfloat16
    assert float((turned[0, 0, 0] - turned[0, 0, 1]).abs().max()) > 0.3
    assert torch.equal(turned[..., 4:], x[..., 4:])


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("length", [1, 3, 29, 64])
def test_steps_equal_the_whole(kind: Any, length: int) -> None:
    block = shaken(kind(griffin(window=7, heads=2, kernel=3, expand=1.5)).double(), 0.3)
    x = signal(length)
    expected = block(x, torch.tensor([length, length]))
    torch.testing.assert_close(stepped(block, x), expected, rtol=1e-10, atol=1e-10)
    assert isinstance(block, Recurrent)


def test_attention_keeps_no_more_than_its_window() -> None:
    block = LocalAttention(griffin(window=4))
    state: Any = block.start(torch.zeros(2, 8))
    for _ in range(9):
        state = block.step(torch.randn(2, 8), state)[1]
    assert [part.shape[2] for part in state[:2]] == [4, 4]
    assert state[2].tolist() == [9, 9]


def test_layers_repeat_the_pattern() -> None:
    model = model_of("griffin", layers=7)
    found = [type(layer_of(model, 2 * index)).__name__ for index in range(7)]
    assert found == ["RecurrentBlock"] * 2 + ["LocalAttention"] + ["RecurrentBlock"] * 2 + [
        "LocalAttention",
        "RecurrentBlock",
    ]
    assert all(isinstance(layer_of(model, 2 * index + 1), GatedMlp) for index in range(7))
    assert list_temporal_blocks(griffin(layers=2)) == ["recurrent", "attention"]
    assert list_temporal_blocks(griffin(layers=1)) == ["attention"]
    assert list_temporal_blocks(config_of("hawk", layers=7)) == ["recurrent"] * 7  # type: ignore[arg-type]


def test_states_are_those_of_the_recurrence() -> None:
    count = models.count_states_per_channel
    assert count("hawk", config_of("hawk")) == count("griffin", griffin(layers=3)) == 1
    assert count("hawk", config_of("hawk", bidirectional=True)) == 2
    assert count("griffin", griffin(pattern=("attention",))) == 0


@pytest.mark.parametrize(("d", "expand", "heads"), [(16, 1.0, 1), (16, 1.5, 2), (128, 1.0, None)])
def test_parameter_counts(d: int, expand: float, heads: int | None) -> None:
    config = griffin(d_model=d, expand=expand, heads=heads, kernel=4, mlp_expand=3.0)
    h, i, w = heads or 4, round(expand * d), d // (heads or 4)
    recurrent = 2 * (d * i + i) + i * (4 + 1) + 2 * (i * i // h + i) + i + i * d + d
    attention = d * d + 2 * d * w + d * d + d
    mlp = 2 * 3 * d * (d + 1) + 3 * d * d + d
    for kind, expected in zip(BLOCKS, (recurrent, attention, mlp), strict=True):
        assert models.count_parameters(kind(config)) == expected


def test_initial_values_survive_the_construction_of_the_model() -> None:
    model = model_of("griffin", d_model=128, layers=6)
    named = {name: value.detach() for name, value in model.named_parameters()}

    def of(end: str) -> list[Tensor]:
        found = [value for name, value in named.items() if name.endswith(end)]
        assert found, end
        return found

    for rates in of("Lambda"):
        decays = torch.exp(-torch.nn.functional.softplus(rates))
        assert 0.9 <= float(decays.min()) < 0.92
        assert 0.99 < float(decays.max()) <= 0.999 + 1e-6
    areas = torch.cat([torch.exp(-2 * torch.nn.functional.softplus(rates)) for rates in of("Lambda")])
    assert float(areas.mean()) == pytest.approx((0.9**2 + 0.999**2) / 2, abs=0.01)
    deviations = {
        "_gate.weight": 32**-0.5,
        "conv.weight": (0.01 / 4) ** 0.5,
        "in_proj.weight": 128**-0.5,
        "gate_proj.weight": 128**-0.5,
        "q_proj.weight": 128**-0.5,
        "kv_proj.weight": 128**-0.5,
        "up.weight": 128**-0.5,
        "out_proj.weight": (2 / 6 / 128) ** 0.5,
        "down.weight": (2 / 6 / 384) ** 0.5,
    }
    for end, deviation in deviations.items():
        for value in of(end):
            assert float(value.std()) == pytest.approx(deviation, rel=0.1), end
    biases = [value for name, value in named.items() if name.endswith("bias") and "head" not in name]
    assert biases
    assert not any(value.any() for value in biases)


@pytest.mark.parametrize("name", ["griffin", "hawk"])
def test_the_decay_parameter_has_its_group(name: str) -> None:
    model = model_of(name, layers=3)
    owners = {id(parameter): path for path, parameter in model.named_parameters()}
    groups: dict[str, dict[str, Any]] = {
        owners[id(parameter)]: group
        for group in make_parameter_groups(model, TrainConfig(lr=3e-3, ssm_lr=1e-4, weight_decay=0.1))
        for parameter in group["params"]  # type: ignore[attr-defined]
    }
    assert groups.keys() == set(owners.values())
    for path, group in groups.items():
        assert (group["name"] == "ssm") == path.endswith("Lambda"), path
        assert group["lr"] == (1e-4 if path.endswith("Lambda") else 3e-3), path
        decays = not path.endswith(("Lambda", "bias")) and "norm" not in path
        assert (group["weight_decay"] > 0) == decays, path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, r"heads 3 do not divide.*width 8.*set heads"),
        ({"d_model": 100}, r"heads 3 do not divide.*100"),
        ({"heads": 4}, r"d_model 8 is not a multiple of 4 times heads 4.*set heads"),
        ({"expand": 0.01}, r"expand 0\.01 times d_model 8 is a width of 0"),
        ({"mlp_expand": 0.01}, r"mlp_expand 0\.01 times d_model 8 is a width of 0"),
        ({"pattern": []}, "pattern"),
        ({"window": 0}, "window"),
        ({"heads": 0}, "heads"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        griffin(**options)


def test_only_attention_needs_room_for_rotations() -> None:
    assert griffin(heads=4, pattern=("recurrent",))


def test_a_model_cast_to_half_precision_is_refused() -> None:
    with pytest.raises(TypeError, match="use autocast"):
        model_of("hawk").bfloat16()(*tokens(5))


def test_long_sequences_are_finite_in_bf16() -> None:
    model = models.build("griffin", griffin(layers=3, window=64), INFO, 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(*tokens(1500)).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
