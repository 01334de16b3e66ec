"""CDIL against torch's circular convolutions, and where these raise, against sums written out by position."""

import copy
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, groups_of, layer_of, model_of, shaken, tokens
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from msbench import models
from msbench.config.baselines import CdilConfig
from msbench.config.layers import LocatedValues
from msbench.config.run import resolve_model
from msbench.errors import ConfigError
from msbench.models.cdil import CircularConv
from msbench.models.classifier import Classifier

D = 6


def layer(dilation: int, kernel: int = 3, seed: int = 0) -> CircularConv:
    config = config_of("cdil", d_model=D, kernel=kernel)
    assert isinstance(config, CdilConfig)
    torch.manual_seed(seed)
    return shaken(CircularConv(config, dilation).double(), 0.3)


def signal(*size: int, seed: int = 1) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_torch(ours: CircularConv) -> Any:
    """Torch's convolution with the same weights, (b, d, l) -> (b, d, l)."""
    pad, d = ours.dilation * (ours.kernel // 2), ours.conv.bias.numel()
    plain = nn.Conv1d(d, d, ours.kernel, padding=pad, dilation=ours.dilation, padding_mode="circular")
    conv = weight_norm(plain.double())
    with torch.no_grad():
        conv.bias.copy_(ours.conv.bias)
        conv.parametrizations.weight.original0.copy_(ours.conv.gain.view(-1, 1, 1))
        conv.parametrizations.weight.original1.copy_(ours.conv.direction.view(d, d, ours.kernel))
    return conv


def by_position(ours: CircularConv, x: Tensor) -> Tensor:
    """x (n, d): every output as a sum over the taps, at indices that Python wraps around."""
    rows = [g * v / v.norm() for g, v in zip(ours.conv.gain, ours.conv.direction, strict=True)]
    taps = torch.stack(rows).view(D, D, ours.kernel).unbind(2)
    reach = ours.kernel // 2
    outputs = []
    for t in range(len(x)):
        seen = [tap @ x[(t + (j - reach) * ours.dilation) % len(x)] for j, tap in enumerate(taps)]
        outputs.append(x[t] + functional.relu(torch.stack(seen).sum(0) + ours.conv.bias))
    return torch.stack(outputs)


@pytest.mark.parametrize(("length", "dilation", "kernel"), [(17, 1, 3), (17, 8, 3), (16, 16, 3), (31, 4, 7)])
def test_layer_and_gradients_equal_torchs_circular_convolution(
    length: int, dilation: int, kernel: int
) -> None:
    ours = layer(dilation, kernel)
    theirs = by_torch(ours)
    x, weights = signal(3, length, D), signal(3, length, D, seed=2)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    y = ours(one, torch.tensor([length] * 3))
    expected = two + functional.relu(theirs(two.mT)).mT
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    conv = ours.conv
    found = torch.autograd.grad((y * weights).sum(), [one, conv.bias, conv.gain, conv.direction])
    original = theirs.parametrizations.weight
    wanted = torch.autograd.grad(
        (expected * weights).sum(), [two, theirs.bias, original.original0, original.original1]
    )
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want.reshape(got.shape), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dilation", [1, 4, 64, 2**31])
@pytest.mark.parametrize("kernel", [3, 5])
def test_each_sequence_wraps_around_at_its_own_end(dilation: int, kernel: int) -> None:
    """Next to one ten times as long, with dilations far beyond it, and whatever stands in the padding."""
    ours, lengths = layer(dilation, kernel), [4, 40, 1, 13]
    x = signal(4, 40, D)
    weights = signal(4, 40, D, seed=2)
    for row, length in enumerate(lengths):
        weights[row, length:] = 0
    inputs = x.clone().requires_grad_()
    y = ours(inputs, torch.tensor(lengths))
    expected = [by_position(ours, row[:n]) for row, n in zip(inputs, lengths, strict=True)]
    for row, n in enumerate(lengths):
        torch.testing.assert_close(y[row, :n], expected[row], rtol=1e-12, atol=1e-12)
    parameters = [inputs, *ours.parameters()]
    found = torch.autograd.grad((y * weights).sum(), parameters, retain_graph=True)
    total = torch.stack([(e * weights[row, : len(e)]).sum() for row, e in enumerate(expected)]).sum()
    for got, want in zip(found, torch.autograd.grad(total, parameters), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-11)


def test_the_last_layer_reaches_the_whole_sequence_from_both_sides() -> None:
    model = model_of("cdil", layers=4).double().eval()
    lengths = torch.tensor([31])

    def run(x: Tensor) -> Tensor:
        for index in range(4):
            x = layer_of(model, index)(x, lengths)
        return x[0, 7]

    x = signal(1, 31, 8)
    seen = torch.func.jacrev(run)(x)[:, 0].abs().amax((0, 2)) > 0
    assert bool(seen.all())
    short = model_of("cdil", layers=3).double().eval()
    two = torch.func.jacrev(lambda x: layer_of(short, 1)(x, lengths)[0, 7])(x)[:, 0].abs().amax((0, 2)) > 0
    assert two.nonzero().flatten().tolist() == [5, 7, 9]


def test_dilations_double_from_one() -> None:
    model = model_of("cdil", layers=5)
    assert [layer_of(model, index).dilation for index in range(5)] == [1, 2, 4, 8, 16]


def whole_by_torch(model: Classifier, inputs: Tensor) -> Tensor:
    """The network of one sequence, padding included, from torch's layers."""
    x = model.encoder(inputs)
    for index in range(len(model.blocks)):
        x = x + functional.relu(by_torch(layer_of(model, index))(x.mT)).mT
    return model.head(x.mean(1))  # type: ignore[no-any-return]


def test_network_is_that_of_the_source_without_norms() -> None:
    model = shaken(model_of("cdil", layers=5, embedding_std=1.0).double().eval(), 0.2)
    inputs, lengths = tokens(33, 33)
    with torch.no_grad():
        expected = whole_by_torch(model, inputs)
        torch.testing.assert_close(model(inputs, lengths), expected, rtol=1e-12, atol=1e-12)
    names = {name.split(".")[2] for name, _ in model.named_parameters() if name.startswith("blocks")}
    assert names == {"layer"}
    assert model.final_norm is None


def test_padding_and_mean_of_the_source_would_change_predictions() -> None:
    """What the authors' code does: one longer batch, and other logits; here the same."""
    model = shaken(model_of("cdil", layers=5, embedding_std=1.0).double().eval(), 0.2)
    inputs, lengths = tokens(20, width=33)
    with torch.no_grad():
        alone = model(inputs[:, :20], lengths)
        torch.testing.assert_close(model(inputs, lengths), alone, rtol=1e-12, atol=1e-12)
        assert (whole_by_torch(model, inputs) - alone).abs().max() > 0.01 * alone.abs().max()


def test_initial_weights_are_those_of_torchs_convolutions_and_biases_are_small() -> None:
    model = model_of("cdil", d_model=64, layers=4)
    for index in range(4):
        conv = layer_of(model, index).conv
        torch.testing.assert_close(conv.compute_weight(), conv.direction)
        bound = (3 * 64) ** -0.5
        assert 0.99 * bound < float(conv.direction.detach().abs().max()) <= bound
        assert float(conv.direction.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.03)
        assert float(conv.bias.detach().std()) == pytest.approx(0.01, rel=0.35)


@pytest.mark.parametrize(("d", "kernel", "layers"), [(64, 3, 11), (8, 5, 2)])
def test_number_of_parameters(d: int, kernel: int, layers: int) -> None:
    model = model_of("cdil", d_model=d, kernel=kernel, layers=layers)
    assert models.count_parameters(model.blocks) == layers * (kernel * d * d + 2 * d)


def test_directions_decay_and_gains_and_biases_do_not() -> None:
    groups = groups_of(model_of("cdil", layers=1))
    assert {name.split(".")[-1]: group for name, group in groups.items() if "layer" in name} == {
        "direction": "weights",
        "gain": "plain",
        "bias": "plain",
    }


def test_evaluation_repeats_bit_for_bit_from_a_checkpoint_too() -> None:
    model, batch = shaken(model_of("cdil", layers=4).eval(), 0.2), tokens(9, INFO.longest, 1)
    expected = model(*batch)
    assert torch.equal(model(*batch), expected)
    other = model_of("cdil", layers=4, seed=1).eval()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(other(*batch), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": 4}, "kernel 4 is even.*make it odd"),
        ({"kernel": 1}, "kernel"),
        ({"layers": 33}, "layers"),
        ({"prenorm": True}, "no norms around its layers; set it to false"),
        ({"drop_path": 0.1}, "drop_path is not supported"),
    ],
)
def test_bad_configs_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_model("cdil", LocatedValues(options, {}, "suite"))
