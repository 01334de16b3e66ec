"""InceptionTime against the same network composed of PyTorch's own layers, from the same weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, groups_of, layer_of, model_of, tokens
from torch import Tensor, nn
from torch.nn import functional

from msbench import models
from msbench.config.baselines import InceptionTimeConfig
from msbench.config.layers import LocatedValues
from msbench.config.run import resolve_model
from msbench.errors import ConfigError
from msbench.models.classifier import Classifier
from msbench.models.inceptiontime import InceptionModule, compute_local_maxima
from msbench.models.layers import Padding


class Theirs(nn.Module):
    """A module of the paper for (b, d, l), from torch's layers; `ours` lends the weights."""

    def __init__(self, ours: InceptionModule, d: int, bottleneck: int, kernels: tuple[int, ...]) -> None:
        super().__init__()
        filters = d // (len(kernels) + 1)
        self.bottleneck = nn.Conv1d(d, bottleneck, 1, bias=False)
        self.pads = nn.ModuleList(nn.ConstantPad1d(((k - 1) // 2, k // 2), 0.0) for k in kernels)
        self.convs = nn.ModuleList(nn.Conv1d(bottleneck, filters, k, bias=False) for k in kernels)
        self.pool = nn.MaxPool1d(3, stride=1, padding=1)
        self.pooled = nn.Conv1d(d, filters, 1, bias=False)
        self.norm = nn.BatchNorm1d(d)
        weights = ours.state_dict()
        for name in ("bottleneck.weight", "pooled.weight"):
            weights[name] = weights[name].unsqueeze(2)
        weights["norm.num_batches_tracked"] = torch.tensor(0)
        self.double().load_state_dict(weights)

    def forward(self, x: Tensor) -> Tensor:
        narrow = self.bottleneck(x)
        branches = [conv(pad(narrow)) for conv, pad in zip(self.convs, self.pads, strict=True)]
        return functional.relu(self.norm(torch.cat([*branches, self.pooled(self.pool(x))], dim=1)))


class Shortcut(nn.Module):
    def __init__(self, ours: Any, d: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(d, d, 1, bias=False), nn.BatchNorm1d(d)
        self.double()
        with torch.no_grad():
            self.conv.weight.copy_(ours.shortcut.weight.unsqueeze(2))
        self.norm.load_state_dict({**ours.norm.state_dict(), "num_batches_tracked": torch.tensor(0)})

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        return functional.relu(self.norm(self.conv(x)) + inside)


def composed(model: Classifier, config: InceptionTimeConfig) -> Callable[[Tensor], Tensor]:
    """The whole network on (b, d, l), from encoder to pooling."""
    modules = [module for index in range(len(model.blocks)) for module in layer_of(model, index).inception]
    size = (config.d_model, config.bottleneck, config.kernels)
    theirs = [Theirs(module, *size) for module in modules]
    spans = [layer_of(model, index) for index in range(len(model.blocks))]
    shortcuts = [Shortcut(span, config.d_model) for span in spans if span.shortcut is not None]

    def run(x: Tensor) -> Tensor:
        around = x
        for depth, module in enumerate(theirs):
            module.train(model.training)
            x = module(x)
            if depth % config.shortcut_every == config.shortcut_every - 1:
                shortcut = shortcuts[depth // config.shortcut_every]
                x = around = shortcut.train(model.training)(around, x)
        return x.mean(2)

    return run


def inception(**options: Any) -> tuple[Classifier, InceptionTimeConfig]:
    """A model whose norms are nobody's default, in double precision."""
    config = config_of("inceptiontime", **{"bottleneck": 5, **options})
    assert isinstance(config, InceptionTimeConfig)
    model = models.build("inceptiontime", config, INFO, 0).double()
    source = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if "norm" in name:
                value.add_(torch.rand(value.shape, generator=source, dtype=torch.float64))
    return model, config


@pytest.mark.parametrize("kernels", [[39, 19, 9], [40, 20, 10], [2]])
@pytest.mark.parametrize("layers", [3, 6, 7])
@pytest.mark.parametrize("training", [False, True])
def test_network_equals_torchs_layers(kernels: list[int], layers: int, training: bool) -> None:
    model, config = inception(kernels=kernels, layers=layers)
    reference = composed(model, config)
    model.train(training)
    inputs, lengths = tokens(57, 57, 57)
    with torch.no_grad():
        expected = model.head(reference(model.encoder(inputs).mT))
        torch.testing.assert_close(model(inputs, lengths), expected, rtol=1e-10, atol=1e-10)


def test_gradients_equal_those_of_torchs_layers() -> None:
    model, config = inception(layers=3)
    module = layer_of(model).inception[0]
    theirs = Theirs(module, config.d_model, config.bottleneck, config.kernels)
    x = torch.randn(3, 21, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, two = x.clone().requires_grad_(), x.mT.clone().requires_grad_()
    weights = torch.linspace(-1, 1, 21 * 8, dtype=torch.float64).view(21, 8)
    ours = torch.autograd.grad(
        (module(one, one.new_ones(3, 21, 1)) * weights).sum(), [one, *module.parameters()]
    )
    other = torch.autograd.grad((theirs(two).mT * weights).sum(), [two, *theirs.parameters()])
    torch.testing.assert_close(ours[0], other[0].mT, rtol=1e-9, atol=1e-11)
    by_name = dict(zip((name for name, _ in theirs.named_parameters()), other[1:], strict=True))
    for (name, parameter), gradient in zip(module.named_parameters(), ours[1:], strict=True):
        torch.testing.assert_close(gradient, by_name[name].view_as(parameter), rtol=1e-9, atol=1e-11)


def test_pooling_does_not_see_padding_as_zero() -> None:
    x = torch.tensor([-3.0, -1, -2, 0, 0]).view(1, 5, 1)
    assert compute_local_maxima(x, Padding.from_lengths(torch.tensor([3]), 5).mask)[0, :, 0].tolist() == [
        -1,
        -1,
        -1,
        0,
        0,
    ]
    assert compute_local_maxima(x[:, :3], torch.ones(1, 3, 1))[0, :, 0].tolist() == [-1, -1, -1]
    assert compute_local_maxima(x[:, :1], torch.ones(1, 1, 1))[0, :, 0].tolist() == [-3]


def test_statistics_in_training_are_those_of_real_positions() -> None:
    """More padding behind short sequences moves neither logits nor running statistics."""
    results = []
    for width in (None, 60):
        model, _ = inception(layers=3)
        logits = model(*tokens(7, 31, 12, width=width))
        results.append([logits.detach(), *(value.clone() for value in model.state_dict().values())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_both_sides_are_seen() -> None:
    model, _ = inception(kernels=[3], layers=1, d_model=8)
    layer = layer_of(model.eval())
    x = torch.randn(1, 9, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    jacobian = torch.func.jacrev(lambda value: layer(value, torch.tensor([9]))[0, 4])(x)[:, 0]
    seen = jacobian.abs().sum((0, 2)) > 0
    assert seen.tolist() == [False] * 3 + [True] * 3 + [False] * 3


def test_recomputed_layers_count_each_batch_once() -> None:
    states = []
    for on in (False, True):
        model, _ = inception(layers=3, dropout=0.3)
        model.recompute_layers(9 * on)
        torch.manual_seed(0)
        for seed in range(2):
            model(*tokens(9, 17, seed=seed)).square().sum().backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        states.append({**model.state_dict(), **{f"grad of {name}": g for name, g in gradients.items()}})
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


@pytest.mark.parametrize(
    ("d", "bottleneck", "kernels", "layers"),
    [(128, 32, [39, 19, 9], 6), (128, 32, [40, 20, 10], 7), (8, 4, [5], 2)],
)
def test_number_of_parameters(d: int, bottleneck: int, kernels: list[int], layers: int) -> None:
    filters = d // (len(kernels) + 1)
    module = d * bottleneck + bottleneck * filters * sum(kernels) + d * filters + 2 * d
    shortcut = d * d + 2 * d
    model = model_of("inceptiontime", d_model=d, bottleneck=bottleneck, kernels=kernels, layers=layers)
    assert models.count_parameters(model.blocks) == layers * module + layers // 3 * shortcut


def test_blocks_are_groups_without_outer_norm_and_residual() -> None:
    model = model_of("inceptiontime", layers=7, bottleneck=4)
    assert [len(layer_of(model, index).inception) for index in range(len(model.blocks))] == [3, 3, 1]
    assert [layer_of(model, index).shortcut is None for index in range(3)] == [False, False, True]
    assert model.final_norm is None
    names = {name.split(".")[2] for name, _ in model.named_parameters() if name.startswith("blocks")}
    assert names == {"layer"}


def test_weights_decay_and_norms_do_not() -> None:
    for name, group in groups_of(model_of("inceptiontime", layers=3, bottleneck=4)).items():
        assert group == ("plain" if "norm" in name or name.endswith("bias") else "weights"), name


def test_initial_weights_are_those_of_torch() -> None:
    layer = layer_of(model_of("inceptiontime", d_model=128, layers=3))
    for weight in (layer.inception[0].convs[0].weight, layer.inception[1].bottleneck.weight):
        bound = weight[0].numel() ** -0.5
        assert 0.98 * bound < float(weight.detach().abs().max()) <= bound


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 30}, r"d_model 30.*4 branches.*multiple of 4"),
        ({"prenorm": True}, "prenorm"),
        ({"kernels": []}, "kernels"),
        ({"kernels": [3, 0]}, "kernels"),
        ({"bottleneck": 0}, "bottleneck"),
    ],
)
def test_bad_configs_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_model("inceptiontime", LocatedValues(options, {}, "suite"))
