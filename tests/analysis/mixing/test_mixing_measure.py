"""Distances of layers whose answer is known, and of every model in any company."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from mixing_cases import INFOS, flow, model_of, tokens, with_layer
from torch import Tensor, nn

from msbench.analysis.benchmarks.measurement import explain_no_peak, measure_peak
from msbench.analysis.mixing.jacobian import compute_rows, list_units
from msbench.analysis.mixing.measure import (
    ChannelDistances,
    estimate_bytes_per_position,
    make_bin_edges,
    measure_model,
    measure_row,
)
from msbench.analysis.mixing.options import MeasureOptions
from msbench.config import MODELS
from msbench.errors import ConfigError
from msbench.training.step_memory import measure_step_memory


class Shifted(nn.Module):
    """The sum of the input at some distances."""

    def __init__(self, *delays: int) -> None:
        super().__init__()
        self.delays = delays

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return torch.stack([delayed(x, k) for k in self.delays]).sum(0)


def delayed(x: Tensor, k: int) -> Tensor:
    return nn.functional.pad(x, (0, 0, k, 0))[:, : x.shape[1]]


class Opposed(nn.Module):
    """Every channel reads all, now and five positions ago: the latter in every other channel with a minus."""

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        both = x.sum(2, keepdim=True)
        return both + delayed(both, 5) * torch.tensor([1.0, -1.0, 1.0, -1.0]).to(x)


class Mean(nn.Module):
    """The mean of all positions so far."""

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return x.cumsum(1) / torch.arange(1, x.shape[1] + 1).to(x).unsqueeze(1)


class Nothing(nn.Module):
    """Zero, whatever comes in; but for the first channel."""

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 0.0, 0.0, 0.0]).to(x)


def distances(layer: nn.Module, *lengths: int, **options: Any) -> np.ndarray[Any, Any]:
    (found,) = measure_model(with_layer(layer), [tokens(*lengths)], MeasureOptions(**options)).layers
    return found.distance


def row_of(
    gradient: Tensor, channel: int, positions: Tensor, lengths: Tensor, **options: Any
) -> ChannelDistances:
    return measure_row(
        gradient,
        channel,
        positions=positions,
        lengths=lengths,
        longest=int(lengths.max()),
        options=MeasureOptions(**options),
    )


def test_known_layers() -> None:
    np.testing.assert_allclose(distances(Shifted(0), 30, 12), 0)
    for k in (1, 3, 11):
        np.testing.assert_allclose(distances(Shifted(k), 30, 12), k)
    np.testing.assert_allclose(distances(Mean(), 30, 12, 1), np.repeat([[14.5], [5.5], [0]], 4, axis=1))
    np.testing.assert_allclose(distances(Shifted(0, 6), 30, 12), 3)


def test_a_residual_adds_a_spike_at_the_position_itself() -> None:
    plain, whole = (distances(Shifted(4), 30, residual=residual) for residual in (False, True))
    np.testing.assert_allclose(plain, 4)
    assert ((whole > 0) & (whole < 4)).all()


def test_positions_other_than_the_last() -> None:
    np.testing.assert_allclose(distances(Mean(), 30, 12, position=8), 4)
    found = measure_model(with_layer(Mean()), [tokens(30, 5, 12)], MeasureOptions(position=8))
    assert found.measured.tolist() == [True, False, True]
    assert found.layers[0].distance.shape == (2, 4)
    # Of 12 positions the last is number 11.
    found = measure_model(with_layer(Mean()), [tokens(30, 5, 12)], MeasureOptions(position=12))
    assert found.measured.tolist() == [True, False, False]
    np.testing.assert_allclose(found.layers[0].distance, [[6.0] * 4])
    with pytest.raises(ConfigError, match="--position 40: no example is that long"):
        measure_model(with_layer(Mean()), [tokens(30)], MeasureOptions(position=40))


def test_rows_of_zeros_have_no_distance() -> None:
    found = distances(Nothing(), 9)
    assert found[0, 0] == 0
    assert np.isnan(found[0, 1:]).all()
    (layer,) = measure_model(with_layer(Nothing()), [tokens(9)], MeasureOptions()).layers
    np.testing.assert_allclose(layer.profile[0], [1, 0, 0, 0, 0])  # of the first channel alone
    assert layer.beyond[0].tolist() == [0, 0, 0, 0]


class Constant(nn.Module):
    """The same, whatever comes in."""

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return torch.ones_like(x)


@pytest.mark.parametrize("position", [None, 4])
def test_a_layer_that_does_not_depend_on_its_input_has_rows_of_zeros(position: int | None) -> None:
    (layer,) = measure_model(with_layer(Constant()), [tokens(9, 6)], MeasureOptions(position=position)).layers
    assert np.isnan(layer.distance).all()
    assert np.isnan(layer.profile).all()
    assert layer.future_share == 0
    residual = distances(Constant(), 9, residual=True)
    assert residual.tolist() == [[0, 0, 0, 0]]  # only the position itself is left


def test_one_product_for_the_sum_of_all_channels_is_another_quantity() -> None:
    """The shortcut that suggests itself: what lies far back cancels in it, and the distance would be 0."""
    np.testing.assert_allclose(distances(Opposed(), 20), 2.5)
    (unit,), (x, padding) = list_units(with_layer(Opposed()), "layers", residual=False), flow(20, 4)
    last, length = torch.tensor([19]), torch.tensor([20])
    at_once = torch.stack(list(compute_rows(unit.apply, x, padding, last, range(4)))).sum(0)
    assert float(row_of(at_once, 0, last, length).distance) < 1e-12


def test_entries_and_normalisers_by_hand() -> None:
    gradient = torch.tensor([[[3.0, -4.0], [-1.0, 0.0], [2.0, 2.0]]])
    last, length = torch.tensor([2]), torch.tensor([3])

    def value(entries: Any, normaliser: Any = "absolute") -> float:
        return float(row_of(gradient, 1, last, length, entries=entries, normaliser=normaliser).distance)

    assert value("l1") == pytest.approx((2 * 7 + 1) / 12)
    assert value("l2") == pytest.approx((2 * 5 + 1) / (6 + 8**0.5))
    assert value("same-channel") == pytest.approx(2 * 4 / 6)
    assert value("l1", "printed") == pytest.approx(15 / (4 + 2))
    assert value("l2", "printed") == pytest.approx(11 / 20**0.5)
    assert value("same-channel", "printed") == pytest.approx(8 / 2)


def test_shares_lie_in_their_bins() -> None:
    assert make_bin_edges(1) == (0,)
    assert make_bin_edges(2) == (0, 1)
    assert make_bin_edges(65) == (0, 1, 2, 4, 8, 16, 32, 64)
    assert make_bin_edges(64) == (0, 1, 2, 4, 8, 16, 32)
    gradient = torch.zeros(1, 2000, 1)
    for share, away in ((0.1, 0), (0.2, 1), (0.3, 11), (0.15, 101), (0.25, 1001)):
        gradient[0, 1999 - away] = share
    found = row_of(gradient, 0, torch.tensor([1999]), torch.tensor([2000]))
    np.testing.assert_allclose(found.beyond[0], [0.7, 0.7, 0.4, 0.25], rtol=1e-6)
    expected = dict.fromkeys(make_bin_edges(2000), 0.0) | {0: 0.1, 1: 0.2, 8: 0.3, 64: 0.15, 512: 0.25}
    np.testing.assert_allclose(found.profile[0], list(expected.values()), atol=1e-6)


def test_padding_has_no_weight() -> None:
    gradient = torch.ones(2, 6, 3)
    found = row_of(gradient, 0, torch.tensor([3, 5]), torch.tensor([4, 6]), normaliser="printed")
    np.testing.assert_allclose(found.distance, [1.5, 2.5])


@pytest.mark.parametrize("name", [name for name in MODELS if not MODELS[name].numbers_only])
def test_an_example_is_the_same_alone_and_among_others(name: str) -> None:
    model, lengths = model_of(name), (40, 7, 1, 25, 33, 2, 12, 40, 5, 18, 3, 29, 37, 9, 21, 16)
    (inputs, true), options = tokens(*lengths), MeasureOptions(channels=2)
    together = measure_model(model, [(inputs, true)], options)
    for row in (1, 11):
        length = lengths[row]
        alone = measure_model(model, [(inputs[row : row + 1, :length], true[row : row + 1])], options)
        for one, other in zip(alone.layers, together.layers, strict=True):
            np.testing.assert_allclose(one.distance[0], other.distance[row], rtol=1e-9, atol=1e-9)
            bins = one.profile.shape[1]
            np.testing.assert_allclose(one.profile[0], other.profile[row, :bins], atol=1e-9)


@pytest.mark.parametrize("scope", ["layers", "network"])
def test_batches_make_no_difference(scope: Any) -> None:
    model, (inputs, true) = model_of("msssm-s6", norm="batch"), tokens(9, 20, 14, 20)
    options = MeasureOptions(scope=scope, residual=True)
    whole = measure_model(model, [(inputs, true)], options)
    parts = measure_model(model, [(inputs[:3], true[:3]), (inputs[3:], true[3:])], options)
    for one, other in zip(whole.layers, parts.layers, strict=True):
        np.testing.assert_allclose(one.distance, other.distance)
        np.testing.assert_allclose(one.profile, other.profile)
    assert whole.lengths.tolist() == parts.lengths.tolist() == [9, 20, 14, 20]


@pytest.mark.parametrize(
    ("kind", "name"), list(itertools.product(INFOS, ("mamba", "msssm-s6", "transformer", "s4")))
)
def test_every_kind_of_task(kind: str, name: str) -> None:
    model, info = model_of(name, kind), INFOS[kind]
    inputs, true = tokens(15, 8)
    if kind == "pairs":
        inputs, true = torch.stack([inputs, inputs.flip(0)], 1), torch.stack([true, true.flip(0)], 1)
    elif info.real_valued:
        inputs = torch.randn(2, 15, info.channels, generator=torch.Generator().manual_seed(0)).double()
    found = measure_model(model, [(inputs, true)], MeasureOptions())
    assert found.lengths.tolist() == ([15, 8, 8, 15] if kind == "pairs" else [15, 8])
    for layer in found.layers:
        assert np.isfinite(layer.distance).all()
        assert (layer.distance < found.lengths[:, None]).all()
        np.testing.assert_allclose(layer.profile.sum(1), 1)
        if kind == "pairs":
            np.testing.assert_allclose(layer.distance[:2], layer.distance[[3, 2]])


def test_a_bidirectional_model_reaches_what_is_ahead_of_a_middle_position() -> None:
    model = model_of("mamba", bidirectional=True)
    (first, _) = measure_model(model, [tokens(40)], MeasureOptions(position=20)).layers
    assert first.future_share is not None
    assert first.future_share > 0.1
    (causal, _) = measure_model(model_of("mamba"), [tokens(40)], MeasureOptions(position=20)).layers
    assert causal.future_share == 0


def test_the_whole_network_reaches_farther_than_its_layers() -> None:
    model = model_of("msssm-s6", layers=4)
    batch = [tokens(60)]
    layers = measure_model(model, batch, MeasureOptions(residual=True)).layers
    (network,) = measure_model(model, batch, MeasureOptions(scope="network")).layers
    assert network.distance.mean() > max(layer.distance.mean() for layer in layers)


@pytest.mark.skipif(bool(explain_no_peak()), reason=explain_no_peak())
@pytest.mark.parametrize("name", ["mamba", "msssm-s6", "s4"])
def test_memory_grows_no_faster_than_the_length_and_is_foreseen(name: str) -> None:
    """Not d times, as a batch of all channels would, nor with the square of the length as J itself."""
    model = model_of(name, dtype=torch.float32, layers=1, d_model=16)

    def peak(length: int, channels: int) -> int:
        call = partial(measure_model, model, [tokens(length)], MeasureOptions(channels=channels))
        return measure_peak(call, "cpu")[0].bytes or 0

    held_back = 4e6  # malloc keeps a few MB, from which a small measure may live without any growth
    peak(512, 1)
    long = peak(2048, 2)
    assert long < 4.5 * peak(512, 2) + held_back
    assert peak(2048, 8) < 1.3 * long + held_back
    memory = measure_step_memory(name, model.config, INFOS["tokens"], examples=1, length=2048, device="cpu")
    assert long < 2048 * estimate_bytes_per_position(memory, MeasureOptions()) + held_back
