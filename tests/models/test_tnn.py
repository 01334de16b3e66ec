"""TNN against dense Toeplitz matrices of SciPy and, on pictures, sums over all pairs of pixels."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, groups_of, layer_of, model_of, shaken, tokens
from pydantic import ValidationError
from scipy.linalg import toeplitz
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.config import RunSpec
from msbench.config.baselines import TnnConfig
from msbench.config.layers import LocatedValues
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError
from msbench.models.classifier import Classifier
from msbench.models.tnn import GatedToeplitzUnit, SwishGlu, ToeplitzOperator

SIDE = 5
DECAY = 0.9


def unit(seed: int = 0, **options: Any) -> GatedToeplitzUnit:
    config = config_of("tnn", **{"d_model": 6, "expand": 2, "kernel_width": 5, "decay": DECAY, **options})
    assert isinstance(config, TnnConfig)
    torch.manual_seed(seed)
    return shaken(GatedToeplitzUnit(config, SIDE**2).double(), 0.3)


def signal(*size: int, seed: int = 1) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kernel_at(operator: Any, lag: int) -> Tensor:
    """The kernel (c,) of one lag, by the network's formula."""
    first, _, second, _, third, norm, _, last = operator.network.layers
    x = first.weight[:, 0] * lag + first.bias
    x = second.weight @ x.clamp(min=0) + second.bias
    x = third.weight @ x.clamp(min=0) + third.bias
    x = (x - x.mean()) / (x.var(correction=0) + norm.eps).sqrt() * norm.weight + norm.bias
    return DECAY ** abs(lag) * (last.weight @ x.clamp(min=0) + last.bias)  # type: ignore[no-any-return]


def matrices(operator: Any, length: int) -> Tensor:
    """The Toeplitz matrix of every channel, (c, length, length), by SciPy's order of the lags."""
    lags = toeplitz(range(length), [-lag for lag in range(length)])
    rows = [torch.stack([kernel_at(operator, int(lag)) for lag in row]) for row in lags]
    return torch.stack(rows).permute(2, 0, 1)


def along_a_line(operator: Any, v: Tensor) -> Tensor:
    """v (n, c)."""
    return torch.einsum("cts,sc->tc", matrices(operator, len(v)), v)


def over_a_picture(operator: Any, v: Tensor) -> Tensor:
    """v (n, c), the first n pixels of a picture: both orders of rows and columns, as in the source."""
    rows, columns = matrices(operator.rows, SIDE), matrices(operator.columns, SIDE)
    pixels = torch.cat([v, v.new_zeros(SIDE**2 - len(v), v.shape[1])]).view(SIDE, SIDE, -1)
    along = torch.einsum("cts,rsc->rtc", rows, pixels)
    both = torch.einsum("cqr,rtc->qtc", columns, along)
    down = torch.einsum("cqr,rsc->qsc", columns, pixels)
    both = both + torch.einsum("cts,qsc->qtc", rows, down)
    return both.flatten(0, 1)[: len(v)]


def by_hand(gtu: GatedToeplitzUnit, x: Tensor) -> Tensor:
    """x (n, d): one sequence without padding."""
    up, out = gtu.up, gtu.out_proj
    hidden = x @ up.weight.T + up.bias
    u, v = (hidden * torch.sigmoid(hidden)).chunk(2, dim=1)
    mix = along_a_line if isinstance(gtu.operator, ToeplitzOperator) else over_a_picture
    return (u * mix(gtu.operator, v)) @ out.weight.T + out.bias


@pytest.mark.parametrize(
    ("dimensions", "lengths"), [(1, [3, 30, 1, 17]), (2, [SIDE**2, SIDE**2]), (2, [3, SIDE**2, 1, 17])]
)
def test_unit_and_gradients_equal_dense_matrices(dimensions: int, lengths: list[int]) -> None:
    """Each sequence alone, next to a longer one, and whatever the outputs in the padding are."""
    gtu = unit(dimensions=dimensions)
    x, weights = signal(len(lengths), max(lengths), 6), signal(len(lengths), max(lengths), 6, seed=2)
    for row, length in enumerate(lengths):
        x[row, length:] = 0
        weights[row, length:] = 0
    x.requires_grad_()
    y = gtu(x, torch.tensor(lengths))
    expected = [by_hand(gtu, row[:n]) for row, n in zip(x, lengths, strict=True)]
    for row, n in enumerate(lengths):
        torch.testing.assert_close(y[row, :n], expected[row], rtol=1e-11, atol=1e-11)
    parameters = [x, *gtu.parameters()]
    found = torch.autograd.grad((y * weights).sum(), parameters)
    total = torch.stack([(e * weights[row, : len(e)]).sum() for row, e in enumerate(expected)]).sum()
    wanted = torch.autograd.grad(total, parameters)
    for row, n in enumerate(lengths):
        assert not found[0][row, n:].any()
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def test_padding_is_masked_after_the_activation() -> None:
    """The bias of v makes it nonzero where the input is 0: without the mask more padding changes outputs."""
    gtu, x = unit(), signal(1, 9, 6)
    longer = functional.pad(x, (0, 0, 0, 90))
    y = gtu(x, torch.tensor([9]))
    torch.testing.assert_close(gtu(longer, torch.tensor([9]))[:, :9], y, rtol=1e-12, atol=1e-12)
    unmasked = gtu(longer, torch.tensor([99]))[:, :9]
    assert (unmasked - y).abs().max() > 1e-2 * y.abs().max()


def test_pictures_may_be_padded_beyond_the_longest() -> None:
    gtu, x, lengths = unit(dimensions=2), signal(2, SIDE**2, 6), torch.tensor([SIDE**2] * 2)
    longer = functional.pad(x, (0, 0, 0, 7))
    torch.testing.assert_close(gtu(longer, lengths)[:, : SIDE**2], gtu(x, lengths), rtol=1e-12, atol=1e-12)


def test_kernels_are_the_same_for_every_length() -> None:
    operator: Any = unit().operator
    for short, long in zip(operator.compute_kernel(4), operator.compute_kernel(90), strict=True):
        torch.testing.assert_close(short, long[:4], rtol=1e-12, atol=1e-12)
    past, future = operator.compute_kernel(3)
    expected = [kernel_at(operator, lag) for lag in (0, 1, 2, -1, -2, -3)]
    torch.testing.assert_close(torch.cat([past, future]), torch.stack(expected), rtol=1e-12, atol=1e-12)


def seen_from(gtu: GatedToeplitzUnit, length: int, position: int) -> list[int]:
    x, lengths = signal(1, length, 6), torch.tensor([length])
    jacobian = torch.func.jacrev(lambda x: gtu(x, lengths)[0, position])(x)[:, 0]
    seen: list[int] = (jacobian.abs().amax((0, 2)) > 1e-12).nonzero().flatten().tolist()
    return seen


def test_everything_is_seen_from_everywhere() -> None:
    assert seen_from(unit(), 12, 5) == list(range(12))
    assert seen_from(unit(dimensions=2), SIDE**2, 7) == list(range(SIDE**2))


def test_gated_linear_unit_is_its_formula() -> None:
    glu = shaken(SwishGlu(6, 2.5).double(), 0.3)
    x = signal(2, 7, 6)
    gate, value = (x @ glu.up.weight.T + glu.up.bias).chunk(2, dim=2)
    expected = (gate * torch.sigmoid(gate) * value) @ glu.down.weight.T + glu.down.bias
    torch.testing.assert_close(glu(x, torch.tensor([7, 7])), expected, rtol=1e-12, atol=1e-12)


def test_initial_values_survive_construction() -> None:
    model = model_of("tnn", d_model=128, layers=2, kernel_width=64)
    gtu, glu = layer_of(model), layer_of(model, 1)
    for part in (gtu.up, gtu.out_proj):
        assert float(part.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
        assert float(part.bias.detach().std()) == pytest.approx(0.02, rel=0.25)
    assert 0.9 < float(gtu.operator.network.layers[0].weight.detach().abs().max()) <= 1
    for linear, width in ((gtu.operator.network.layers[4], 64), (glu.up, 128)):
        assert 0.98 * width**-0.5 < float(linear.weight.detach().abs().max()) <= width**-0.5


@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize(("d", "e", "f", "width"), [(128, 2, 3, 16), (64, 3, 2.5, 16), (8, 1, 1, 2)])
def test_number_of_parameters(d: int, e: int, f: float, width: int, dimensions: int) -> None:
    config = config_of(
        "tnn", d_model=d, expand=e, mlp_expand=f, kernel_width=width, dimensions=dimensions, layers=1
    )
    model = models.build("tnn", config, replace(INFO, longest=36), 0)
    gtu, glu = (layer_of(model, index) for index in (0, 1))
    network = 2 * width + 2 * (width**2 + width) + 2 * width + (width + 1) * e * d
    assert models.count_parameters(gtu) == 3 * e * d * d + 2 * e * d + d + dimensions * network
    assert models.count_parameters(glu) == 3 * f * d * d + 2 * f * d + d


def test_weights_decay_and_biases_and_norms_do_not() -> None:
    groups = groups_of(model_of("tnn", layers=1, norm="batch"))
    for name, group in groups.items():
        is_norm = "norm" in name or ".network.layers.5." in name
        assert group == ("plain" if is_norm or name.endswith("bias") else "weights"), name


PICTURE = TaskInfo("signal", 0, 3, SIDE**2, "accuracy", 0.33, {}, channels=1)


def picture_model() -> Classifier:
    config = config_of("tnn", dimensions=2, kernel_width=5, norm="batch", expand=1.5)
    return shaken(models.build("tnn", config, PICTURE, 0).double().eval(), 0.2)


def test_pictures_are_classified_as_alone_and_with_the_same_bits_again() -> None:
    model, x = picture_model(), signal(3, SIDE**2, 1)
    lengths = torch.full((3,), SIDE**2)
    logits = model(x, lengths)
    assert torch.equal(model(x, lengths), logits)
    for row in range(3):
        alone = model(x[row : row + 1], lengths[:1])
        torch.testing.assert_close(logits[row : row + 1], alone, rtol=1e-10, atol=1e-10)


def test_a_transposed_picture_is_that_of_exchanged_networks() -> None:
    gtu, x = unit(dimensions=2), signal(1, SIDE**2, 6)
    lengths = torch.tensor([SIDE**2])
    turned = x.view(SIDE, SIDE, 6).transpose(0, 1).reshape(1, SIDE**2, 6)
    operator: Any = gtu.operator
    expected = gtu(x, lengths).view(SIDE, SIDE, 6).transpose(0, 1).reshape(1, SIDE**2, 6)
    operator.rows, operator.columns = operator.columns, operator.rows
    torch.testing.assert_close(gtu(turned, lengths), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_kernels_stay_in_full_precision_under_autocast(precision: torch.dtype) -> None:
    model = model_of("tnn", kernel_width=5)
    operator = layer_of(model).operator
    expected = operator.compute_kernel(40)
    with torch.autocast("cpu", dtype=precision, enabled=precision == torch.bfloat16):
        for found, want in zip(operator.compute_kernel(40), expected, strict=True):
            assert found.dtype == torch.float32
            assert torch.equal(found, want)
        assert torch.isfinite(model(*tokens(30, 40))).all()


def spec_of(dimensions: int, **data: Any) -> RunSpec:
    values = {"suite": "s", "task": "t", "model_name": "tnn", "seed": 0, "data": data, "train": {}}
    values["model"] = {"dimensions": dimensions}
    return RunSpec.resolve(LocatedValues(values, {}, "x"))


@pytest.mark.parametrize(
    "data",
    [
        {"dataset": "listops"},
        {"dataset": "imdb"},
        {"dataset": "ptbxl", "crop": 900},
        {"dataset": "mnist", "permuted": True},
    ],
    ids=lambda data: str(data["dataset"]),
)
def test_two_dimensions_need_pictures(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^x: model.dimensions: 2 needs square pictures in reading order"):
        spec_of(2, **data)
    assert spec_of(1, **data)


@pytest.mark.parametrize(
    "data",
    [
        {"dataset": "cifar10", "colour": "grey"},
        {"dataset": "pathfinder", "size": 128},
        {"dataset": "mnist"},
        {"dataset": "imagenet"},
    ],
    ids=lambda data: str(data["dataset"]),
)
def test_pictures_may_have_two_dimensions(data: dict[str, Any]) -> None:
    assert spec_of(2, **data)


def test_pictures_that_are_not_square_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"dimensions: 2 needs square pictures, .* 40 positions; set it to 1"
    ):
        models.build("tnn", config_of("tnn", dimensions=2), INFO, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimensions": 3}, "dimensions"),
        ({"decay": 0.0}, "decay"),
        ({"decay": 1.1}, "decay"),
        ({"kernel_width": 1}, "kernel_width"),
        ({"expand": 0.01}, "expand 0.01 times d_model 8 is a width of 0"),
    ],
)
def test_bad_configs_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("tnn", **options)
