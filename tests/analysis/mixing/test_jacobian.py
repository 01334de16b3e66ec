"""The rows of every layer of every model are those of the full Jacobian, whatever computes them."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mixing_cases import flow, model_of, tokens
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from msbench import models
from msbench.analysis.mixing.jacobian import (
    MixingUnit,
    compute_rows,
    exact_mode,
    list_units,
    measure_future,
)
from msbench.analysis.mixing.measure import measure_model
from msbench.analysis.mixing.options import MeasureOptions
from msbench.config import MODELS
from msbench.errors import ConfigError, RunError
from msbench.models.classifier import Classifier
from msbench.models.layers import Padding

SEQUENCE_MODELS = [name for name in MODELS if not MODELS[name].numbers_only]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in SEQUENCE_MODELS),
    *((name, {"bidirectional": True}) for name in ("mamba", "msssm-s6", "griffin", "s4", "lstm")),
    ("msssm-s6", {"block": "vit", "norm": "batch"}),
    ("mamba", {"prenorm": False, "norm": "rms"}),
]
QUICK: list[tuple[str, dict[str, Any]]] = [("mamba", {}), ("msssm-s6", {}), ("s4", {}), ("inceptiontime", {})]

RECURRENT = ("hippo-rnn", "ur-gru", "lipschitz-rnn")
"""Models without residuals."""
OWN_SHORTCUTS = ("inceptiontime", "cdil", "luna-256", "mega", "r-lstm", "ckconv", "spacetime")
"""Models without the classifier's residuals."""


def name_of(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


def rows_of(model: Classifier, unit: MixingUnit, x: Tensor, padding: Padding, position: int) -> Tensor:
    """(d, l, d): output channel, input position, input channel."""
    with exact_mode(model):
        channels = range(x.shape[2])
        found = compute_rows(unit.apply, x, padding, torch.full((len(x),), position), channels)
        return torch.stack([gradient[0] for gradient in found])


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_rows_are_those_of_the_full_jacobian(case: tuple[str, dict[str, Any]]) -> None:
    name, options = case
    model = model_of(name, **options)
    x, padding = flow(64, 4)
    for unit in list_units(model, "layers", residual=False):

        def last(x: Tensor, apply: Callable[[Tensor, Padding], Tensor] = unit.apply) -> Tensor:
            return apply(x, padding)[0, -1]

        expected = jacobian(last, x)[:, 0]  # type: ignore[no-untyped-call]
        found = rows_of(model, unit, x, padding, 63)
        assert found.abs().max() > 1e-6
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_rows_are_central_differences(case: tuple[str, dict[str, Any]]) -> None:
    """To 1e-4 of the largest entry: no differentiation, but inputs moved either way, all in one batch."""
    name, options = case
    model = model_of(name, **options)
    length, d, step = 16, 4, 1e-5
    x, padding = flow(length, d)
    moves = step * torch.eye(length * d, dtype=torch.float64).view(-1, length, d)
    both = torch.cat([x + moves, x - moves])
    for unit in list_units(model, "layers", residual=False):
        with torch.no_grad():
            ahead, back = unit.apply(both, Padding.none_of(both))[:, -1].chunk(2)
        expected = ((ahead - back) / (2 * step)).T.view(d, length, d)
        found = rows_of(model, unit, x, padding, length - 1)
        assert (found - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize("name", ["mamba", "msssm-s6"])
def test_every_position_has_its_rows(name: str) -> None:
    model, (x, padding) = model_of(name), flow(12, 4)
    (unit, _) = list_units(model, "layers", residual=False)
    full = jacobian(lambda x: unit.apply(x, padding)[0], x)[:, :, 0]  # type: ignore[no-untyped-call]
    for position in range(12):
        torch.testing.assert_close(rows_of(model, unit, x, padding, position), full[position])
        assert not full[position, :, position + 1 :].any()


@pytest.mark.parametrize(
    "name", [name for name in SEQUENCE_MODELS if name not in (*OWN_SHORTCUTS, *RECURRENT)]
)
def test_a_block_is_its_mixer_and_a_residual(name: str) -> None:
    model, (x, padding) = model_of(name, prenorm=True), flow(20, 4)
    pairs = zip(
        list_units(model, "layers", residual=True), list_units(model, "layers", residual=False), strict=True
    )
    for whole, mixer in pairs:
        torch.testing.assert_close(whole.apply(x, padding), x + mixer.apply(x, padding))
        expected = rows_of(model, mixer, x, padding, 19)
        expected[:, 19] += torch.eye(4, dtype=torch.float64)
        torch.testing.assert_close(rows_of(model, whole, x, padding, 19), expected)


def test_a_residual_with_the_norm_behind_it_is_left_out() -> None:
    model, (x, padding) = model_of("mamba", prenorm=False, norm="rms"), flow(20, 4)
    whole, mixer = (list_units(model, "layers", residual=residual)[0] for residual in (True, False))
    norm: Any = model.blocks[0].norm
    torch.testing.assert_close(whole.apply(x, padding), norm(x + mixer.apply(x, padding)))


def test_a_shortcut_of_inceptiontime_is_left_out() -> None:
    model, (x, padding) = model_of("inceptiontime", layers=3), flow(20, 4)
    (whole,), (mixer,) = (list_units(model, "layers", residual=residual) for residual in (True, False))
    assert not torch.equal(whole.apply(x, padding), mixer.apply(x, padding))
    group: Any = whole.at.layer
    group.shortcut = None
    torch.testing.assert_close(whole.apply(x, padding), mixer.apply(x, padding))


def test_a_shortcut_of_cdil_is_left_out() -> None:
    model, (x, padding) = model_of("cdil"), flow(20, 4)
    wholes, mixers = (list_units(model, "layers", residual=residual) for residual in (True, False))
    assert [unit.kind for unit in mixers] == ["CircularConv"] * 2
    for whole, mixer in zip(wholes, mixers, strict=True):
        torch.testing.assert_close(whole.apply(x, padding), x + mixer.apply(x, padding))


def test_the_shortcut_of_ckconv_is_left_out_and_so_is_its_last_relu() -> None:
    model, (x, padding) = model_of("ckconv"), flow(20, 4)
    wholes, mixers = (list_units(model, "layers", residual=residual) for residual in (True, False))
    for whole, mixer in zip(wholes, mixers, strict=True):
        expected = (x + mixer.apply(x, padding)).clamp(min=0)
        torch.testing.assert_close(whole.apply(x, padding), expected)
        assert not torch.equal(expected, x + mixer.apply(x, padding))


def test_of_megas_gate_the_input_is_left_out_and_so_is_its_network() -> None:
    model, (x, padding) = model_of("mega"), flow(20, 4)
    whole, mixer = (list_units(model, "layers", residual=residual)[0] for residual in (True, False))
    block: Any = whole.at.layer
    with torch.no_grad():
        block.down.weight.zero_()
        block.down.bias.zero_()
    kept = (whole.apply(x, padding) - mixer.apply(x, padding)) / x
    assert float(kept.detach().min()) > 0.1
    assert float(kept.detach().max()) < 0.9


def test_layers_that_look_at_positions_alone_are_none() -> None:
    assert [unit.kind for unit in list_units(model_of("transformer"), "layers", residual=False)] == [
        "SelfAttention"
    ] * 2
    kinds = [unit.kind for unit in list_units(model_of("griffin", layers=3), "layers", residual=False)]
    assert kinds == ["RecurrentBlock", "RecurrentBlock", "LocalAttention"]
    assert len(list_units(model_of("mamba-2x-param"), "layers", residual=False)) == 4
    (unit,) = list_units(model_of("mamba"), "network", residual=False)
    assert unit.name == "network"


@pytest.mark.parametrize("scope", ["layers", "network"])
@pytest.mark.parametrize(("name", "options"), QUICK)
def test_a_model_is_left_as_it_was(name: str, options: dict[str, Any], scope: Any) -> None:
    """In training before and after, dropout and batch statistics unused; the numbers are evaluation's."""
    model = model_of(name, norm="batch", dropout=0.5, **options)
    batch, chosen = tokens(9, 14), MeasureOptions(scope=scope)
    expected = measure_model(model, [batch], chosen)
    model.train()
    model.blocks[-1].eval()
    model.encoder.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    flags = [parameter.requires_grad for parameter in model.parameters()]
    random = torch.get_rng_state()
    found = measure_model(model, [batch], chosen)
    for one, other in zip(found.layers, expected.layers, strict=True):
        np.testing.assert_array_equal(one.distance, other.distance)
    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(block._forward_pre_hooks for block in model.blocks)


@pytest.mark.parametrize("name", ["mamba", "msssm-s6", "s4", "lstm", "griffin"])
def test_the_modes_of_a_caller_do_not_reach_it(name: str) -> None:
    model, batch = model_of(name, dtype=torch.float32), tokens(9, 14)
    expected = measure_model(model, [batch], MeasureOptions()).layers
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)):
        with mode:
            found = measure_model(model, [batch], MeasureOptions()).layers
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.distance, other.distance)


def test_nothing_is_rounded_to_tf32() -> None:
    both: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in both]
    try:
        for backend in both:
            backend.allow_tf32 = True
        with exact_mode(model_of("mamba")):
            assert [backend.allow_tf32 for backend in both] == [False, False]
        assert [backend.allow_tf32 for backend in both] == [True, True]
    finally:
        for backend, allowed in zip(both, before, strict=True):
            backend.allow_tf32 = allowed


def test_the_network_ends_behind_its_last_norm() -> None:
    model, (x, padding) = model_of("mamba", norm="rms"), flow(20, 4)
    (network,) = list_units(model, "network", residual=False)
    whole = x
    for block in model.blocks:
        whole = block(whole, padding)
    norm: Any = model.final_norm
    torch.testing.assert_close(network.apply(x, padding), norm(whole))


def test_less_than_float32_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"weight is torch.bfloat16: .* measure in float32"):
        measure_model(model_of("mamba", dtype=torch.bfloat16), [tokens(5)], MeasureOptions())


def test_a_gradient_that_is_not_finite_is_an_error() -> None:
    model = model_of("mamba")
    with torch.no_grad():
        next(model.blocks[1].parameters())[0] = torch.inf
    with pytest.raises(RunError, match=r"layer 2 \(MambaBlock\): the gradient of .* is not finite"):
        measure_model(model, [tokens(5)], MeasureOptions())


BOTH_SIDES = [
    name for name in SEQUENCE_MODELS if not models.find_family(name).is_causal(model_of(name).config)
]
"""Models that look ahead."""


@pytest.mark.parametrize("name", [name for name in SEQUENCE_MODELS if name not in BOTH_SIDES])
def test_nothing_comes_from_the_future(name: str) -> None:
    """Exactly, but for the rounding of FFTs."""
    model, (x, padding) = model_of(name, dtype=torch.float32), flow(64, 4)
    for unit in list_units(model, "layers", residual=False):
        seen = measure_future(unit.apply, x.float(), Padding.none_of(x.float()), padding.lengths)
        assert seen is not None
        assert seen.share < 1e-4
        if name in ("mamba", "msssm-s6", "hawk", "griffin", "lstm", *RECURRENT):
            assert seen == (0, 0)


class Ahead(nn.Module):
    """Each position gets the next one's values, by a thousandth of it: enough to be detected."""

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return x + 1e-3 * x.roll(-1, 1)


def test_a_causal_model_that_looks_ahead_is_an_error() -> None:
    from mixing_cases import with_layer

    with pytest.raises(RunError, match=r"layer 1 \(Ahead\): a causal model sees the future: 0\.\d+%"):
        measure_model(with_layer(Ahead()), [tokens(9)], MeasureOptions())


@pytest.mark.parametrize("name", BOTH_SIDES)
def test_a_model_of_both_sides_may_look_ahead(name: str) -> None:
    share = measure_model(model_of(name), [tokens(40)], MeasureOptions()).layers[0].future_share
    assert share is not None
    # In Luna's stack are its residuals, which carry most of a position to itself.
    assert (0.001 if name == "luna-256" else 0.05) < share < 0.95
