"""CKConv against torch's convolutions with the kernels written out, and its norms against GroupNorm."""

from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, groups_of, layer_of, model_of, shaken, tokens
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.config.baselines import CkConvConfig
from msbench.models.ckconv import ContinuousConv, ContinuousConvBlock, SequenceNorm
from msbench.models.layers import Padding

D, WIDTH, FREQUENCY, LONGEST = 5, 6, 7.0, 40


def options(**others: Any) -> CkConvConfig:
    given = {"d_model": D, "kernel_width": WIDTH, "frequency": FREQUENCY, **others}
    config = config_of("ckconv", **given)
    assert isinstance(config, CkConvConfig)
    return config


def conv(seed: int = 0) -> ContinuousConv:
    torch.manual_seed(seed)
    return shaken(ContinuousConv(options(), LONGEST).double(), 0.2)


def block(seed: int = 0, **others: Any) -> ContinuousConvBlock:
    torch.manual_seed(seed)
    return shaken(ContinuousConvBlock(options(**others), LONGEST).double().eval(), 0.2)


def signal(*size: int, seed: int = 1) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kernel_at(layer: ContinuousConv, lag: int) -> Tensor:
    """The matrix (out, in) of one lag, by the formula of the network."""
    layers: list[Any] = list(layer.network.layers)
    first, _, second, _, last = layers
    x = first.weight[:, 0] * (1 - 2 * lag / (LONGEST - 1)) + first.bias
    for linear in (second, last):
        weight = torch.stack([g * v / v.norm() for g, v in zip(linear.gain, linear.direction, strict=True)])
        x = weight @ torch.sin(FREQUENCY * x) + linear.bias
    matrix: Tensor = x.view(D, D)
    return matrix


def by_torch(layer: ContinuousConv, x: Tensor) -> Tensor:
    """x (n, d): a cross-correlation, whose last tap is now."""
    taps = torch.stack([kernel_at(layer, lag) for lag in reversed(range(len(x)))], dim=2)
    padded = functional.pad(x.T.unsqueeze(0), (len(x) - 1, 0))
    return functional.conv1d(padded, taps, layer.bias)[0].T


@pytest.mark.parametrize("length", [1, 2, 17, LONGEST])
def test_convolution_and_gradients_equal_torchs(length: int) -> None:
    layer, x, weights = conv(), signal(2, length, D), signal(2, length, D, seed=2)
    x.requires_grad_()
    y = layer(x)
    expected = torch.stack([by_torch(layer, row) for row in x])
    torch.testing.assert_close(y, expected, rtol=1e-11, atol=1e-11)
    parameters = [x, *layer.parameters()]
    found, wanted = (torch.autograd.grad((z * weights).sum(), parameters) for z in (y, expected))
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-9)


def test_kernels_are_the_same_for_every_length_of_a_batch() -> None:
    """The source takes the scale of positions from its first batch: 30 positions would span all of it."""
    layer = conv()
    torch.testing.assert_close(layer.compute_kernel(7), layer.compute_kernel(90)[:7], rtol=1e-11, atol=1e-11)
    last = layer.compute_kernel(LONGEST)[-1]
    torch.testing.assert_close(last, kernel_at(layer, LONGEST - 1), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("longest", [1, 2])
def test_tasks_of_one_position_have_a_kernel(longest: int) -> None:
    layer = ContinuousConv(options(), longest)
    assert bool(layer(torch.ones(1, longest, D)).isfinite().all())


@pytest.mark.parametrize("others", [{}, {"norm_over": "sequence"}, {"norm": "rms"}])
def test_block_and_gradients_are_the_sources(others: dict[str, Any]) -> None:
    """Each sequence alone, next to one ten times as long, and whatever the outputs in the padding are."""
    layer, lengths = block(**others), [4, LONGEST, 1]
    x, weights = signal(3, LONGEST, D), signal(3, LONGEST, D, seed=2)
    for row, length in enumerate(lengths):
        x[row, length:] = 0
        weights[row, length:] = 0
    x.requires_grad_()

    def normalise(norm: Any, y: Tensor) -> Tensor:
        if others.get("norm_over") == "sequence":
            group = functional.group_norm(y.T.unsqueeze(0), 1, norm.weight, norm.bias, eps=1e-5)
            return group[0].T
        z = y - y.mean(1, keepdim=True) if "norm" not in others else y
        scaled: Tensor = z * (z.square().mean(1, keepdim=True) + 1e-5).rsqrt() * norm.weight
        return scaled if "norm" in others else scaled + norm.bias

    def alone(row: Tensor) -> Tensor:
        y = row
        for each, norm in zip(layer.convs, layer.norms, strict=True):
            assert isinstance(each, ContinuousConv)
            y = normalise(norm, by_torch(each, y)).clamp(min=0)
        return (row + y).clamp(min=0)

    y = layer(x, torch.tensor(lengths))
    expected = [alone(row[:n]) for row, n in zip(x, lengths, strict=True)]
    for row, n in enumerate(lengths):
        torch.testing.assert_close(y[row, :n], expected[row], rtol=1e-10, atol=1e-10)
    parameters = [x, *layer.parameters()]
    found = torch.autograd.grad((y * weights).sum(), parameters)
    total = torch.stack([(e * weights[row, : len(e)]).sum() for row, e in enumerate(expected)]).sum()
    for got, want in zip(found, torch.autograd.grad(total, parameters), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-8)


def depends_on(layer: ContinuousConvBlock, position: int) -> Tensor:
    x, lengths = signal(1, 12, D), torch.tensor([12])
    jacobian = torch.func.jacrev(lambda x: layer(x, lengths)[0, position])(x)[:, 0]
    size: Tensor = jacobian.abs().amax((0, 2))
    return size


def test_nothing_of_the_future_is_seen_but_by_the_sources_norms() -> None:
    seen = depends_on(block(), 5)
    assert bool((seen[:6] > 1e-6).all())
    assert seen[6:].max() < 1e-12
    assert depends_on(block(norm_over="sequence"), 5)[6:].max() > 1e-6
    causal = models.find_family("ckconv").is_causal
    assert causal(options())
    assert not causal(options(norm_over="sequence"))


def test_statistics_of_a_sequence_are_of_its_real_positions() -> None:
    norm, x = SequenceNorm(D).double(), signal(2, 9, D) + 3
    mask = Padding.from_lengths(torch.tensor([4, 9]), 9, torch.float64).mask
    y = norm(x, mask).detach()
    for row, n in ((0, 4), (1, 9)):
        assert abs(float(y[row, :n].mean())) < 1e-12
        assert float(y[row, :n].std(correction=0)) == pytest.approx(1, rel=1e-4)
    assert not y[0, 4:].any()
    assert bool(norm(torch.ones(1, 1, D).double(), torch.ones(1, 1, 1).double()).isfinite().all())


def test_the_last_position_is_read_unless_set_otherwise() -> None:
    assert options().pooling == "last"
    model = model_of("ckconv", kernel_width=WIDTH).double().eval()
    inputs, lengths = tokens(9, 9)
    x = model.encoder(inputs)
    for index in range(2):
        x = layer_of(model, index)(x, lengths)
    torch.testing.assert_close(model(inputs, lengths), model.head(x[:, -1]), rtol=1e-10, atol=1e-10)


def test_dropout_is_inside_of_the_blocks_alone() -> None:
    model = model_of("ckconv", kernel_width=WIDTH, dropout=0.5).train()
    outer: Any = model.blocks[0]
    assert outer.dropout.p == 0
    layer = layer_of(model)
    x = torch.ones(1, 9, 8)
    torch.manual_seed(0)
    dropped = (layer.mix(x, torch.tensor([9])) == 0).all(1)[0]
    assert 0 < int(dropped.sum()) < 8


def test_kernels_lose_single_values_in_training() -> None:
    layer = layer_of(model_of("ckconv", d_model=16, kernel_width=WIDTH, kernel_dropout=0.2)).convs[0]
    whole = layer.eval().compute_kernel(30)
    torch.manual_seed(0)
    some = layer.train().compute_kernel(30)
    lost = some == 0
    assert float(lost.double().mean()) == pytest.approx(0.2, abs=0.02)
    torch.testing.assert_close(some[~lost], whole[~lost] / 0.8)
    assert torch.equal(layer.eval().compute_kernel(30), whole)


@pytest.mark.parametrize("recompute", [False, True])
def test_recomputed_layers_drop_the_same_values(recompute: bool) -> None:
    model = model_of("ckconv", kernel_width=WIDTH, kernel_dropout=0.2, dropout=0.0).train()
    model.recompute_layers(9 * recompute)
    torch.manual_seed(0)
    model(*tokens(9, 17)).square().sum().backward()
    again = model_of("ckconv", kernel_width=WIDTH, kernel_dropout=0.2).train()
    torch.manual_seed(0)
    again(*tokens(9, 17)).square().sum().backward()
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize(("init", "scale"), [("sine", (6 / 32) ** 0.5 / 20), ("torch", 32**-0.5)])
def test_initial_networks(init: str, scale: float) -> None:
    model = model_of("ckconv", d_model=16, kernel_width=32, frequency=20, kernel_init=init)
    first, _, second, _, last = layer_of(model).convs[1].network.layers
    for linear in (second, last):
        assert 0.95 * scale < float(linear.direction.detach().abs().max()) <= scale
        torch.testing.assert_close(linear.compute_weight(), linear.direction)
    for values in (first.weight, first.bias, second.bias, last.bias):
        assert 0.8 < float(values.detach().abs().max()) <= 1
        assert float(values.detach().min()) < -0.7
    assert not layer_of(model).convs[1].bias.any()


@pytest.mark.parametrize("d", [30, 8])
def test_number_of_parameters(d: int) -> None:
    """The source's 34 d^2 + 1,184 per kernel, without the 32 directions of one input, which are signs."""
    layer = layer_of(model_of("ckconv", d_model=d, kernel_width=32))
    assert models.count_parameters(layer.convs[0]) == 34 * d * d + 1_184 - 32 + d
    assert models.count_parameters(layer) == 2 * (34 * d * d + 1_152 + d) + 4 * d


def test_directions_decay_and_gains_biases_and_norms_do_not() -> None:
    for name, group in groups_of(model_of("ckconv", norm_over="sequence", layers=1)).items():
        decays = name.endswith(("direction", "network.layers.0.weight", "embedding.weight", "head.weight"))
        assert group == ("weights" if decays else "plain"), name


def test_lengths_from_one_to_the_longest_are_classified_as_alone() -> None:
    cases: list[dict[str, Any]] = [{}, {"norm_over": "sequence"}]
    for others in cases:
        model = shaken(model_of("ckconv", kernel_width=WIDTH, **others).double().eval(), 0.2)
        inputs, lengths = tokens(1, INFO.longest, 4, width=INFO.longest + 9)
        together = model(inputs, lengths)
        assert torch.equal(model(inputs, lengths), together)
        for row, n in enumerate(lengths.tolist()):
            alone = model(inputs[row : row + 1, :n], lengths[row : row + 1])
            torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"norm_over": "sequence", "norm": "batch"}, "norm_over: sequence is a layer norm.*norm: layer, or"),
        ({"prenorm": True}, "no norms around its layers"),
        ({"drop_path": 0.1}, "drop_path is not supported"),
        ({"frequency": 0.0}, "frequency"),
        ({"kernel_width": 1}, "kernel_width"),
    ],
)
def test_bad_configs_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("ckconv", **given)
